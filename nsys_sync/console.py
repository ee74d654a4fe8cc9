"""What all commands share: how errors are said, and where output goes."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from nsys_sync.errors import ExitCode, InputError, NsysSyncError, OutputError, UsageError
from nsys_sync.paths import check_new, write_new

STDOUT = "-"
#: Outputs that are no text for a pipe.
_NO_TEXT = {"perfetto", "save"}
_CANNOT_WRITE = {errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF}


def run(command: Callable[[], object]) -> None:
    """Run a command: errors become one sentence on stderr and their exit code."""
    _open_standard_files()
    try:
        _here()
        try:
            command()
        finally:
            sys.stdout.flush()
    except NsysSyncError as error:
        say_error(error)
        sys.exit(int(error.exit_code))
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`: not our failure.
        _drop_stdout()
        sys.exit(int(ExitCode.OK))
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _CANNOT_WRITE:
            _drop_stdout()
            say(f"nsys-sync: Standard output cannot be written: {error.strerror}.")
            sys.exit(int(ExitCode.ERROR))
        if os.environ.get("NSYS_SYNC_TRACEBACK"):
            raise
        say(f"nsys-sync: internal error: {type(error).__name__}: {error}")
        say("  Please report it with the output of the same command under NSYS_SYNC_TRACEBACK=1.")
        sys.exit(int(ExitCode.ERROR))


def _here() -> None:
    """Raises InputError where the current folder has been removed, for then no path says anything."""
    try:
        Path.cwd()
    except OSError as error:
        raise InputError("no-current-folder", f"The current folder is gone: {error.strerror}.", "cd FOLDER") from None


def say(text: str) -> None:
    """A line for people, beside the output proper."""
    print(text, file=sys.stderr, flush=True)


def say_error(error: NsysSyncError) -> None:
    """An error for people: what is wrong and what to do."""
    say(f"nsys-sync: {_visible(error.message)}")
    if error.hint:
        say(f"  {_visible(error.hint)}")


def _visible(text: str) -> str:
    """Text in which a trace or a file name can have put characters that move a terminal's cursor."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _open_standard_files() -> None:
    """Where standard output or error is closed, no file of ours may get its number; odd characters are escaped."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Open for as long as the process lives.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_stdout() -> None:
    """Let nothing fail that is still to be written there."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Outputs:
    """The files that a command was asked for; ``-`` is stdout, at most once, and then people's text goes to stderr.

    reads: the files that the command was given, which are never written over.
    """

    def __init__(self, reads: Sequence[Path | None] = (), *, force: bool, **targets: str | None) -> None:
        self._force = force
        self._targets = {name: target for name, target in targets.items() if target is not None}
        for name in sorted(_NO_TEXT & self._targets.keys()):
            if self._targets[name] == STDOUT:
                raise UsageError("stdout-file", f"--{name} needs a file, not stdout.", f"Name one: --{name} PATH")
        if list(self._targets.values()).count(STDOUT) > 1:
            raise UsageError("stdout-twice", "Only one output can go to stdout (-).", "Name files for the others.")
        if self.stdout_taken and sys.__stdout__ is None:
            raise OutputError("unwritable", "Standard output cannot be written: it is closed.")
        inputs = [path for path in reads if path is not None]
        files = [check_new(target, force=force, reads=inputs) for target in self._targets.values() if target != STDOUT]
        if len({file.resolve() for file in files}) < len(files):
            raise UsageError("same-output", "Two outputs would go to the same file.", "Name different files.")

    @property
    def stdout_taken(self) -> bool:
        """Whether stdout belongs to a file format."""
        return STDOUT in self._targets.values()

    @property
    def people(self) -> IO[str]:
        """Where text for people goes."""
        return sys.stderr if self.stdout_taken else sys.stdout

    def write(self, name: str, content: Callable[[], bytes]) -> None:
        """Write one output, if it was asked for."""
        target = self._targets.get(name)
        if target == STDOUT:
            sys.stdout.buffer.write(content())
            sys.stdout.buffer.flush()
        elif target is not None:
            say(f"Written: {write_new(target, content(), force=self._force)}")

    def save(self, name: str, writer: Callable[[Path], Path]) -> None:
        """Let a writer make one output, if it was asked for; it needs a file."""
        target = self._targets.get(name)
        if target is not None:
            say(f"Written: {writer(Path(target))}")
