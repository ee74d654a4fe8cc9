"""Runs the user's program under nsys: its own output untouched, signals passed on, progress told on the way.

nsys copies a program's output through pipes of its own and into the report. Here the program gets back the terminal
(or file) that it would have without a profiler, so that progress bars work and the report holds no output; what nsys
itself says goes to a log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

from nsys_sync.capture.injection import injected, session_with
from nsys_sync.capture.naming import Program
from nsys_sync.capture.plan import CaptureRange
from nsys_sync.capture.prepare import Launch
from nsys_sync.capture.target import Session
from nsys_sync.errors import CaptureError

Say = Callable[[str], None]
Identity = tuple[str, int, int, int]

_LOG = "nsys.log"
_PID = "pid"
_STUCK = "stuck"
#: Around nsys: the launcher's own output is kept open as 8 and 9, nsys writes to the log.
_OUTSIDE = 'exec "$@" 8>&1 9>&2 >"$NSYS_SYNC_SESSION/nsys.log" 2>&1'
#: Around the program, below nsys: note the pid, take the launcher's output back, become the program. Where the two
#: descriptors did not get through, the launcher's own are reached through /proc.
_INSIDE = """
echo "$$" >"$NSYS_SYNC_SESSION/pid"
launcher="/proc/$NSYS_SYNC_LAUNCHER/fd"
if { true >&8 && true >&9; } 2>/dev/null
then exec >&8 2>&9 8>&- 9>&-
elif { true >>"$launcher/1" && true >>"$launcher/2"; } 2>/dev/null
then exec >>"$launcher/1" 2>>"$launcher/2"
fi
exec "$@"
"""
_POLL_S = 0.05
_HANDSHAKE_S = 15.0
_LAST_WORDS_S = 60.0
#: How long nsys may say nothing after the end of a program whose profiler did not stop: it may never finish then.
_SILENCE_S = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Run:
    """A finished run under nsys, before anything is believed of it.

    exit_code: nsys's, which is the program's if that was started. started: of the launch, ns since the epoch. before:
    the run's files that were there already. log: what nsys said. loaded: Pythons that loaded the target package.
    reports: what the target's processes told (see ``target.range``). range_began: whether anyone opened the range.
    stuck: whether the call that closes it did not return. signals: how many a person sent.
    """

    launch: Launch
    exit_code: int
    started: int
    before: frozenset[Identity]
    log: str
    program_started: bool
    loaded: int
    reports: list[dict[str, Any]]
    range_began: bool
    stuck: bool
    signals: int


def run(launch: Launch, environment: Mapping[str, str], say: Say) -> Run:
    """Run the program under nsys to its end.

    Ctrl-C and SIGTERM go to the program once, and the report is waited for; the second time nsys is told to stop at
    once; the third time everything is killed. Raises CaptureError if nsys cannot be started, OutputError if there is no
    place for temporary files.
    """
    with session_with("capture", launch.captured.target) as session:
        started = time.time_ns()
        before = frozenset(map(identity, launch.base.parent.glob(f"{escape(launch.base.name)}*")))
        command = launch.command(["sh", "-c", _INSIDE, "sh", *launch.program.command])
        with _caught_signals() as caught:
            process = _start(command, target_environment(session, launch.captured, environment))
            watched = _Watched(process, session, launch.captured, caught, say)
            exit_code = watched.wait()
        log = _read(session, _LOG)
        return Run(
            launch=launch,
            exit_code=exit_code,
            started=started,
            before=before,
            log=log,
            program_started=session.marked(_PID),
            loaded=session.count("loaded-"),
            reports=session.reports("capture"),
            range_began=not launch.captured.waits or watched.range_began(),
            stuck=session.marked(_STUCK),
            signals=watched.sent,
        )


def identity(path: Path) -> Identity:
    """What tells a file from another of the same name: inode, time of change, size; zeros if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return str(path), 0, 0, 0
    return str(path), found.st_ino, found.st_mtime_ns, found.st_size


def run_plainly(program: Program) -> None:
    """Become the program, without nsys. Does not return. Raises CaptureError if it cannot be started."""
    try:
        os.execvp(program.command[0], program.command)  # noqa: S606 - the user's own command line
    except OSError as error:
        raise CaptureError("program-failed", f"{program.command[0]} cannot be started: {error.strerror}.") from None


def target_environment(session: Session, captured: CaptureRange, environment: Mapping[str, str]) -> dict[str, str]:
    """The program's environment: its own, and what makes its Pythons load the target package."""
    own = {**captured.environment, "NSYS_SYNC_LAUNCHER": str(os.getpid())}
    return injected(session, captured.modules, {**environment, **own})


def _start(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    for number in range(3):
        # One that was closed when we began is the null device now, and must be open below us too.
        with suppress(OSError):
            os.set_inheritable(number, True)
    try:
        return subprocess.Popen(
            ["sh", "-c", _OUTSIDE, "sh", *command],
            env=environment,
            # Its own group: a Ctrl-C on the terminal reaches the launcher alone, which passes it on.
            process_group=0,
        )
    except OSError as error:
        raise CaptureError("nsys-broken", f"{command[0]} cannot be started: {error.strerror}.") from None


@contextmanager
def _caught_signals() -> Iterator[deque[int]]:
    """The signals that come while the block runs. Whoever waits there acts on them: a handler may meet anything."""
    caught: deque[int] = deque()
    before = {number: signal.signal(number, lambda number, _: caught.append(number)) for number in _SIGNALS}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Watched:
    """nsys and the program below it, while they run."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        session: Session,
        captured: CaptureRange,
        signals: deque[int],
        say: Say,
    ) -> None:
        self._process = process
        self._session = session
        self._captured = captured
        self._signals = signals
        self._say = say
        self._began = time.monotonic()
        self._told: set[str] = set()
        self._deadline: float | None = None
        self._heard = (0, 0.0)
        self.sent = 0

    def wait(self) -> int:
        """Wait for nsys; its exit code, 128 + N for a signal as shells have it."""
        while self._process.poll() is None:
            while self._signals:
                self._pass_on(self._signals.popleft())
            self._tell_progress()
            if self._deadline is None and self._session.marked(_STUCK) and self._has_gone_silent():
                self._say(
                    "The profiler never stopped, and nsys does not finish; stopping it and keeping what it wrote."
                )
                self._stop()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._kill()
            time.sleep(_POLL_S)
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def range_began(self) -> bool:
        """Whether the range was opened, by the target module or, as nsys's log tells, by the program."""
        return self._session.marked("open") or "Capture range started" in _read(self._session, _LOG)

    def _pass_on(self, number: int) -> None:
        self.sent += 1
        pid = self._program()
        if self.sent == 1 and pid is not None:
            self._say("Passed on to the program; waiting for the report. Once more stops at once.")
            _send_all(pid, number)
        elif self.sent <= 2:
            self._say("Stopping at once; nsys writes what it has.")
            self._stop()
        else:
            self._kill()

    def _stop(self) -> None:
        self._deadline = time.monotonic() + _LAST_WORDS_S
        # nsys alone: it ends the program, and its own helpers when they have written the report.
        self._process.terminate()

    def _has_gone_silent(self) -> bool:
        """Whether the program has ended and nsys has said nothing for too long since."""
        now, length = time.monotonic(), len(_read(self._session, _LOG))
        if self._program() is not None or length != self._heard[0] or not self._heard[1]:
            self._heard = (length, now)
        return now - self._heard[1] > _SILENCE_S

    def _kill(self) -> None:
        pid = self._program()
        if pid is not None:
            _send_all(pid, signal.SIGKILL)
        _send_all(self._process.pid, signal.SIGKILL)

    def _program(self) -> int | None:
        """The program's pid while it lives."""
        pid = self._pid()
        if pid is None:
            return None
        try:
            # After the name in parentheses: state, then the parent. The name may be cut within a character.
            state = Path("/proc", str(pid), "stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return None
        return None if state in "ZX" else pid

    def _pid(self) -> int | None:
        """The program's pid once it has been started, whether or not it still lives."""
        text = _read(self._session, _PID)
        # The shell makes the file first and writes the line then.
        return int(text) if text.endswith("\n") else None

    def _tell_progress(self) -> None:
        passed = time.monotonic() - self._began
        if self._captured.waits and self.range_began():
            self._tell("open", "Capturing.")
        if self._captured.waits and self._session.marked("closed"):
            self._tell("closed", "Captured. The program runs on; Ctrl-C ends it and keeps the capture.")
        if passed > _HANDSHAKE_S and self._captured.target["mode"] != "marks" and not self._session.count("loaded-"):
            self._tell(
                "handshake",
                "No Python of the program has loaded the step module (a container, python -I, sudo, or no Python at "
                "all?): the range cannot be opened from inside. Use --capture script, nvtx:NAME or all.",
            )
        if self._pid() is not None and self._program() is None:
            self._tell("ended", "The program has ended; nsys is writing the report.")

    def _tell(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._say(text)


def _send_all(pid: int, number: int) -> None:
    """Send to the process, and to its whole group if it leads one (nsys starts the program in a session of its own)."""
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _read(session: Session, name: str) -> str:
    try:
        return Path(session.path(name)).read_text("utf-8", "replace")
    except OSError:
        return ""
