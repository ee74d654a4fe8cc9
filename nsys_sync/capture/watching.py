"""Runs the user's program with its syncs watched from inside, without nsys: as if it had been started directly."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nsys_sync.capture.injection import injected, session_with
from nsys_sync.capture.naming import Program
from nsys_sync.capture.target import SESSION_VARIABLE, Session
from nsys_sync.errors import CaptureError, UsageError

Say = Callable[[str], None]

_POLL_S = 0.05
_HANDSHAKE_S = 15.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The sender of a signal is a process and not the terminal, which sends it to the program too.
_FROM_PROCESS = 0


@dataclass(frozen=True)
class Plan:
    """How to watch. stop_at_first: raise an error in the program at its first sync."""

    after_steps: int = 0
    stop_at_first: bool = False


@dataclass(frozen=True)
class Watched:
    """A finished run.

    exit_code: the program's, 128 + N for a signal. started: ns since the epoch. loaded: Pythons that loaded the target
    package. told: what the processes told (see ``target.recorder``).
    """

    exit_code: int
    started: int
    loaded: int
    told: list[dict[str, Any]]


def run(program: Program, plan: Plan, environment: Mapping[str, str], say: Say, *, to_stderr: bool = False) -> Watched:
    """Run the program to its end, in the foreground where it is.

    to_stderr: send its standard output to ours for errors. Raises UsageError if a profile or a watch is under way
    already, CaptureError if the program cannot be started, OutputError if there is no place for temporary files.
    """
    if SESSION_VARIABLE in environment:
        raise UsageError(
            "profiled-already",
            "This program is being profiled or watched by nsys-sync already.",
            "Start only the outermost one.",
        )
    config: dict[str, object] = {"after_steps": plan.after_steps, "stop_at_first": plan.stop_at_first}
    with session_with("watch", config) as session, _held_signals() as before:
        started = time.time_ns()
        sys.stdout.flush()
        try:
            process = subprocess.Popen(
                program.command,
                env=injected(session, ("watch",), environment),
                stdout=sys.stderr.fileno() if to_stderr else None,
                # We have no other threads by now, which is what this asks for.
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509
            )
        except OSError as error:
            raise CaptureError("program-failed", f"{program.command[0]} cannot be started: {error.strerror}.") from None
        code = _wait(process, session, say)
        return Watched(code, started, session.count("loaded-"), session.reports("watch"))


@contextmanager
def _held_signals() -> Iterator[set[int]]:
    """Hold back the signals that go to the program, while it runs; the mask of before. Those that came as it ended
    are forgotten: they were meant for it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield before
    finally:
        while signal.sigtimedwait(_SIGNALS, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(process: subprocess.Popen[bytes], session: Session, say: Say) -> int:
    """Wait for the program. What a terminal sends, it gets itself; what only we get is passed on."""
    began = time.monotonic()
    asked = False
    while process.poll() is None:
        time.sleep(_POLL_S)
        # Without waiting in it: what CPython returns after a pause of this process (Ctrl-Z, fg) is no signal that came.
        got = signal.sigtimedwait(_SIGNALS, 0)
        if got is not None and (got.si_code <= _FROM_PROCESS or got.si_signo != signal.SIGINT):
            process.send_signal(got.si_signo)
        if not asked and time.monotonic() - began > _HANDSHAKE_S:
            asked = True
            if not session.count("loaded-"):
                say(
                    "No Python of the program has loaded the watching module (a container, python -I, sudo, or no "
                    "Python at all?): nothing will be seen."
                )
    code = process.returncode
    return code if code >= 0 else 128 - code
