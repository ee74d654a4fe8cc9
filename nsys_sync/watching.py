"""Watch a program's syncs without nsys: a whole program, or a part of this one.

What reads them is imported once there is something to read: NumPy starts threads, and while a program runs its signals
must find no thread but the one that holds them back (see ``capture.watching``).
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.watch.findings import WatchReport
from nsys_sync.capture import watching
from nsys_sync.capture.here import target
from nsys_sync.capture.naming import Program
from nsys_sync.errors import ExitCode, GateFailed, NothingToAnalyze, NsysSyncError
from nsys_sync.report import watch_text

if TYPE_CHECKING:
    from nsys_sync.analysis.watch.seen import Seen

Say = Callable[[str], None]


@dataclass(frozen=True)
class Reading:
    """How to read what was seen. project, library: folders that are or are not the user's; rules: that go first."""

    project: Sequence[str] = ()
    library: Sequence[str] = ()
    rules: Path | None = None

    def report(self, seen: Seen) -> WatchReport:
        """The report. Raises NothingToAnalyze, and InputError for a bad file of rules."""
        from nsys_sync.analysis.sites import Users
        from nsys_sync.analysis.watch.assemble import report

        return report(seen, Users(self.project, self.library), Catalogue.load(self.rules))


@dataclass(frozen=True)
class Outcome:
    """What a watch of a whole program gave. Without a report ``error`` says why."""

    program_exit: int
    report: WatchReport | None = None
    error: NsysSyncError | None = None

    @property
    def exit_code(self) -> int:
        """That the program was stopped at a sync first, its own failure next, then ours."""
        if isinstance(self.error, GateFailed) and self.report is not None and self.report.watch.stopped_at:
            return ExitCode.GATE_FAILED
        return self.program_exit or (0 if self.error is None else int(self.error.exit_code))


def watch_program(
    program: Program,
    plan: watching.Plan,
    reading: Reading,
    say: Say,
    *,
    fail: bool = False,
    to_stderr: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a program to its end and report its syncs.

    fail: whether a sync that is not allowed is an error. to_stderr: where its standard output goes. What goes wrong
    once the program has run is returned; only what keeps it from starting raises (see ``capture.watching.run``).
    """
    Catalogue.load(reading.rules)
    environment = dict(os.environ) if environment is None else environment
    done = watching.run(program, plan, environment, say, to_stderr=to_stderr)
    from nsys_sync.analysis.watch.seen import Seen, decode

    try:
        if not done.loaded:
            raise _not_loaded(done)
        found = reading.report(Seen(_name(program), decode(done.told), done.started, done.exit_code, plan.after_steps))
    except NsysSyncError as error:
        return Outcome(done.exit_code, error=error)
    return Outcome(done.exit_code, found, _failure(found, fail=fail or plan.stop_at_first))


def _name(program: Program) -> str:
    """The script's file name, else what the program is called."""
    return next((Path(word).name for word in program.command[1:] if word.endswith(".py")), program.name)


def _not_loaded(done: watching.Watched) -> NothingToAnalyze:
    return NothingToAnalyze(
        "nothing-watched",
        "No Python of the program loaded the watching module (a container, python -I, sudo, or no Python at all?)"
        + (f"; it ended with exit code {done.exit_code}." if done.exit_code else "."),
        "A program of any kind: nsys-sync profile PROGRAM",
    )


def _failure(found: WatchReport, *, fail: bool) -> GateFailed | None:
    if not fail or not found.not_allowed:
        return None
    if found.watch.stopped_at:
        return GateFailed("syncs-found", f"The program waits for the GPU: {found.watch.stopped_at}.")
    calls = "1 call" if found.not_allowed == 1 else f"{found.not_allowed:,} calls"
    return GateFailed(
        "syncs-found",
        f"{calls} waited for the GPU.",
        "Accepted ones: with nsys_sync.allow_syncs():",
    )


class watch:  # noqa: N801 - used like a function
    """Watch the syncs of this process within a ``with`` block: ``with nsys_sync.watch() as w: ...; w.show()``.

    error: raise SyncError at the first sync. after_steps: leave out what comes before so many steps have ended (those
    of PyTorch optimizers, or ``nsys_sync.step()``). project, library: folders whose code is yours, or not. rules: a
    file of rules of your own. name: what the report calls this part, the script's name if None.
    """

    def __init__(
        self,
        *,
        error: bool = False,
        after_steps: int = 0,
        project: Sequence[str] = (),
        library: Sequence[str] = (),
        rules: str | Path | None = None,
        name: str | None = None,
    ) -> None:
        self._name = name or (Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python")
        self._reading = Reading(project, library, None if rules is None else Path(rules))
        self._recorder: Any = target("recorder").Recorder(after_steps, stop_at_first=error)
        self._started = time.time_ns()
        self._told: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        self._recorder.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._recorder.stop()
        self._told = self._recorder.values()

    @property
    def report(self) -> WatchReport:
        """What was seen so far. Raises NothingToAnalyze where nothing could be: no CUDA in use, or too few steps."""
        from nsys_sync.analysis.watch.seen import Seen, decode

        told = self._recorder.values() if self._told is None else self._told
        return self._reading.report(
            Seen(self._name, decode([told]), self._started, after_steps=self._recorder.after_steps)
        )

    def show(self, *, file: IO[str] | None = None, limit: int | None = None) -> None:
        """Print the report. limit: sites to list, None for all."""
        watch_text.render(self.report, file=file, limit=limit)

    def __str__(self) -> str:
        text = io.StringIO()
        try:
            watch_text.render(self.report, file=text, width=100, color=False)
        except NothingToAnalyze as error:
            return str(error)
        return text.getvalue().rstrip()

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 - IPython's protocol
        printer.text(str(self))
