"""Files as people name them: what can be read; results that are written whole or not at all, over nothing unasked."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nsys_sync.errors import InputError, OutputError


def check_file(path: Path) -> None:
    """Raises InputError where there is no file to read: nothing, a folder, a pipe, what this user may not look at."""
    try:
        mode = path.stat().st_mode
        # The usual name for an empty file is the one device that can be read to its end.
        if stat.S_ISREG(mode) or path.samefile(os.devnull):
            return
    except FileNotFoundError:
        raise InputError("missing-file", f"{path} does not exist.", "Check the path.") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if stat.S_ISDIR(mode):
        raise InputError("not-a-file", f"{path} is a folder, not a file.", "Name a file in it.")
    what = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    raise InputError("not-a-file", f"{path} is {what}, not a file.", "Write its content to a file, and name that.")


def is_file(path: Path) -> bool:
    """Whether there is a file; no where the system refuses to say, as for a name that is too long."""
    return _kind_is(path, stat.S_ISREG)


def is_folder(path: Path) -> bool:
    """The same of a folder."""
    return _kind_is(path, stat.S_ISDIR)


def _kind_is(path: Path, test: Callable[[int], bool]) -> bool:
    try:
        return test(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def expanded(name: str) -> Path:
    """A path with ``~`` replaced, where it stands for somebody's folder."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def read_bytes(path: Path) -> bytes:
    """All of a file. Raises InputError where there is none, or it cannot be read."""
    check_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError | ValueError) -> InputError:
    """The error for a path that the operating system will not let us read."""
    return InputError("unreadable", f"{path} cannot be read: {_reason(error)}.", f"See ls -l {shlex.quote(str(path))}")


def unwritable(path: Path, error: OSError | ValueError) -> OutputError:
    """The error for a path that the operating system will not let us write."""
    return OutputError("unwritable", f"{path} cannot be written: {_reason(error)}.", "Name another place.")


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def check_new(path: str | Path, *, force: bool, reads: Iterable[Path] = (), plain: bool = False) -> Path:
    """The absolute path, if something may be written there: a new file, or a device or pipe.

    reads: inputs, which are never written over. plain: whether it has to be a file. Raises OutputError.
    """
    target = Path(path).absolute()
    try:
        if target.is_dir():
            raise OutputError("output-is-a-folder", f"{target} is a folder.", "Name a file in it.")
        if not target.parent.is_dir():
            _refuse_folder(target.parent)
        if any(is_same(target, given) for given in reads):
            raise OutputError("output-is-input", f"{target} is an input, which is never changed.", "Name another file.")
        if plain and target.exists() and not target.is_file():
            raise OutputError("unwritable", f"{target} is not a file, and a database needs one.", "Name a file.")
        if target.is_file() and not force:
            raise OutputError("output-exists", f"{target} exists already.", "Choose another name or add --force.")
    except (OSError, ValueError) as error:
        raise unwritable(target, error) from None
    return target


def _refuse_folder(folder: Path) -> None:
    if folder.exists():
        raise OutputError("no-such-folder", f"{folder} is a file, not a folder.", "Name another place.")
    command = f"mkdir -p {shlex.quote(str(folder))}"
    raise OutputError("no-such-folder", f"The folder {folder} does not exist.", command)


def is_same(one: Path, other: Path) -> bool:
    """Whether two names are of one file that is there."""
    try:
        return one.is_file() and one.samefile(other)
    except (OSError, ValueError):
        return False


@contextmanager
def writing(path: str | Path, *, force: bool) -> Iterator[Path]:
    """A temporary file that becomes ``path`` when the block ends, and is gone if it fails.

    What is not a plain file (a device, a pipe) is written through. Raises OutputError.
    """
    target = check_new(path, force=force)
    folder = target.parent if target.is_file() or not target.exists() else None
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=".nsys-sync-")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            if folder is None:
                with temporary.open("rb") as whole, target.open("wb") as through:
                    shutil.copyfileobj(whole, through)
            else:
                temporary.chmod(0o666 & ~_umask())
                temporary.replace(target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        raise unwritable(target, error) from None


def write_new(path: str | Path, content: bytes, *, force: bool) -> Path:
    """Write a file whole or not at all; returns its absolute path. Raises OutputError."""
    with writing(path, force=force) as temporary:
        temporary.write_bytes(content)
    return Path(path).absolute()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
