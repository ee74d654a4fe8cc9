"""Opens and closes the capture range at step boundaries or by time, marks steps and ranks, and times the steps.

The launcher's ``capture.json`` is the plan (see ``Plan``). Every process tells the launcher what it did in
``capture-PID.json``. Processes of one session share one range: the first to ask for it leads, opens and closes it for
all, and the others meet it at both ends so that no rank's steps are cut.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections import deque
from typing import Any, Callable, NamedTuple, TypeVar

from . import Session, complain
from .driver import Driver
from .frameworks import has_optimizer, is_imported
from .nvtx import Nvtx
from .ranks import own_rank

SECOND = 1_000_000_000

#: States of a process's capture. LISTENING: somebody else opens the range, here steps are only marked.
WAITING, LEADING, FOLLOWING, LISTENING, DONE = "waiting", "leading", "following", "listening", "done"

#: In mode ``auto``: with an optimizer steps are still to be expected, without PyTorch none can come.
PATIENCE_WITH_OPTIMIZER_S = 60.0
PATIENCE_WITHOUT_TORCH_S = 5.0
#: An open range is closed when no step has come for this long, or for ten times the usual step if that is longer.
STALL_S = 60.0
_POLL_S = 0.25
#: How long ranks wait for one another at the ends of the range.
_MEET_S = 5.0
#: How long a call of the driver may take that waits for devices or the profiler.
_PATIENT_S = 30.0

Method = TypeVar("Method", bound=Callable[..., Any])


class Plan(NamedTuple):
    """What to capture. Seconds where the name says so.

    mode: ``auto`` (the script's own range, else steps, else time), ``steps``, ``time``, or ``marks`` (the range is
    opened by someone else; only mark). delay_s counts from the program's first use of CUDA.
    """

    mode: str = "marks"
    skip: int = 10
    steps: int = 20
    delay_s: float = 20.0
    duration_s: float = 5.0

    @classmethod
    def of(cls, config: dict[str, Any]) -> Plan:
        """The plan that the launcher wrote; what it does not say is the default."""
        return cls(**{key: value for key, value in config.items() if key in cls._fields})


def _harmless(method: Method) -> Method:
    """Let no failure of ours reach the program: one line on stderr, and this process captures nothing more."""

    @functools.wraps(method)
    def guarded(self: Capture, *arguments: Any) -> Any:
        with self.lock:
            try:
                return method(self, *arguments)
            except Exception as error:  # noqa: BLE001 - whatever it is, the program must run
                self.state = DONE
                complain(f"the capture failed: {error!r}")
                return None

    return guarded  # type: ignore[return-value]


class Capture:
    """The capture of this process."""

    def __init__(
        self,
        session: Session,
        plan: Plan,
        nvtx: Nvtx | None = None,
        find_driver: Callable[[], Driver | None] = Driver.loaded,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.session = session
        self.plan = plan
        self.nvtx = Nvtx() if nvtx is None else nvtx
        self._find_driver = find_driver
        self._now = now
        self.after_fork()

    def after_fork(self) -> None:
        """Begin anew: in a forked child its parent's thread, lock and range do not exist."""
        self.lock = threading.RLock()
        self.state = LISTENING if self.plan.mode == "marks" else WAITING
        self._source: str | None = None
        self._steps = 0
        self._captured = 0
        self._before: deque[int] = deque(maxlen=64)
        self._inside: list[int] = []
        self._last: int | None = None
        self._range: int | None = None
        self._watching = False
        self._first_cuda: int | None = None
        self._expects_steps: bool | None = None
        self._opened_at = 0
        self._opened_by: str | None = None
        self._closed_by: str | None = None
        self._script_call: str | None = None
        self._script_ranges = 0
        self._other_profiler: str | None = None

    # Steps

    @_harmless
    def boundary(self, source: str) -> None:
        """A step has ended. Steps that the script marks itself (``user``) count in place of the optimizer's."""
        if source != self._source and not self._switch_to(source):
            return
        now = self._now()
        self._steps += 1
        if self._last is not None:
            self._record(now - self._last)
        self._end_range()
        if self.state == WAITING and self._steps_due():
            self._open("steps")
        elif self._enough_steps():
            self._close("steps")
        if self._is_open():
            self._begin_range()
        self._last = self._now()

    def _switch_to(self, source: str) -> bool:
        if self._source == "user" or self.state in (LEADING, FOLLOWING):
            return False
        self._source = source
        self.session.mark(f"stepping-{os.getpid()}")
        self._steps = 0
        self._last = None
        self._before.clear()
        return True

    def _record(self, duration: int) -> None:
        if self._range is not None:
            self._captured += 1
            self._inside.append(duration)
        elif self.state == WAITING:
            self._before.append(duration)

    def _steps_due(self) -> bool:
        return self.plan.mode in ("auto", "steps") and self._steps >= self.plan.skip and self._uses_cuda()

    def _enough_steps(self) -> bool:
        by_time = self._opened_by == "time"
        return self.state in (LEADING, FOLLOWING) and not by_time and self._captured >= self.plan.steps

    def _is_open(self) -> bool:
        if self.state == FOLLOWING and self.session.marked("closed"):
            self.state = DONE
        return self.state in (LEADING, LISTENING) or (self.state == FOLLOWING and self.session.marked("open"))

    def _begin_range(self) -> None:
        if self.state != LEADING:
            # Whether somebody else's range is open is not known here; a rank marked outside of it would be lost.
            self._mark_rank()
        self._range = self.nvtx.start(f"nsys-sync:step {self._steps}")

    def _end_range(self) -> None:
        if self._range is not None:
            self.nvtx.end(self._range)
        self._range = None

    # The range

    def _open(self, how: str) -> None:
        self._look_at_sources()
        if self.plan.mode == "auto" and self._script_call:
            self.state = LISTENING
            self._report()
            return
        self.session.mark(f"at-open-{os.getpid()}")
        if self.session.mark("leader"):
            if how == "steps":
                self._meet("at-open-", "stepping-")
            self._lead(how)
        else:
            self.state = FOLLOWING
            self._synchronize()
            self._wait(lambda: self.session.marked("open") or self.session.marked("refused"), 2 * _MEET_S)
        self._report()

    def _lead(self, how: str) -> None:
        driver = self._find_driver()
        self._synchronize()
        if driver is None or not driver.start_profiler():
            complain("the CUDA driver refused to start the profiler; nothing is captured")
            self.session.mark("refused")
            self.state = DONE
            return
        self.state = LEADING
        self._opened_by = how
        self._opened_at = self._now()
        self.session.mark("open")
        self._mark_rank()
        # Once more, so that it runs before what the program has registered so far, such as the end of its CUDA context.
        atexit.register(self.finish)

    def _close(self, why: str) -> None:
        """End the capture; what this process waits for after the mark is our own doing.

        A step that is cut off is left without an end, so that nobody takes it for a whole one.
        """
        self._range = None
        leading = self.state == LEADING
        self.state = DONE
        self._closed_by = why
        self.nvtx.mark("nsys-sync:close")
        self._synchronize()
        self.session.mark(f"at-close-{os.getpid()}")
        if leading:
            if why in ("steps", "exit"):
                self._meet("at-close-", "at-open-")
            driver = self._find_driver()
            if driver is not None and not _within(_PATIENT_S, driver.stop_profiler):
                self.session.mark("stuck")
                complain("the profiler did not stop; the capture goes on until the program ends")
            self.session.mark("closed")
        elif why == "steps":
            self._wait(lambda: self.session.marked("closed"), 2 * _MEET_S)
        self._report()

    @_harmless
    def finish(self) -> None:
        """The program ends: close what is open and say how many steps ran."""
        if self.state in (LEADING, FOLLOWING) and self._is_open():
            self._close("exit")
        if self._source is not None or self._uses_cuda():
            self._look_at_sources()
            self._report()

    # The script's own calls of the profiler API

    @property
    def ignores_script(self) -> bool:
        """Whether the user asked for another range than the script's own."""
        return self.plan.mode in ("steps", "time")

    @_harmless
    def script_started(self, place: str) -> None:
        """The script has opened a capture, at PLACE (``FILE:LINE``); in mode ``auto`` that is the range."""
        self._script_ranges += 1
        if self.state not in (WAITING, LISTENING):
            return
        self.state = LISTENING
        self._script_call = place
        self._opened_by = "script"
        self._before.extend(self._inside)
        self._inside.clear()
        self._captured = 0
        self._mark_rank()
        self._report()

    @_harmless
    def script_stops(self) -> None:
        """The script is about to close its capture: let the devices finish first, so that no work is cut off."""
        if self.state == LISTENING and self._opened_by == "script":
            self._close("script")

    # Time

    @_harmless
    def watch(self) -> None:
        """Watch the clock from here on: the program has begun to use CUDA, or may."""
        if not self._watching and self.plan.mode != "marks":
            self._watching = True
            threading.Thread(target=self._keep_watching, name="nsys-sync", daemon=True).start()

    def _keep_watching(self) -> None:
        while self.tick():
            time.sleep(_POLL_S)

    @_harmless
    def tick(self) -> bool:
        """Open or close by time; False when there is nothing left to watch for."""
        now = self._now()
        if self.state == WAITING and self._time_due(now):
            self._open("time")
            self._last = None
        elif self.state == LEADING and self._opened_by == "time":
            if now - self._opened_at >= self.plan.duration_s * SECOND:
                self._close("time")
        elif self.state == LEADING and self._last is not None and now - self._last >= self._stall():
            self._close("stall")
        return self.state in (WAITING, LEADING)

    def _time_due(self, now: int) -> bool:
        if self._first_cuda is None and self._uses_cuda():
            self._first_cuda = now
        if self._first_cuda is None:
            return False
        waited = now - self._first_cuda
        if self.plan.mode == "time":
            return waited >= self.plan.delay_s * SECOND
        if self.plan.mode != "auto" or self._steps > 0:
            return False
        if waited < self._patience() * SECOND:
            return False
        if self._expects_steps is None:
            self._expects_steps = has_optimizer()
        return not self._expects_steps or waited >= PATIENCE_WITH_OPTIMIZER_S * SECOND

    def _patience(self) -> float:
        return self.plan.delay_s if is_imported("torch") else min(self.plan.delay_s, PATIENCE_WITHOUT_TORCH_S)

    def _stall(self) -> float:
        usual = _usual(self._inside) or _usual(list(self._before)) or 0
        return max(STALL_S * SECOND, 10 * usual)

    # Around it

    def _uses_cuda(self) -> bool:
        driver = self._find_driver()
        return driver is not None and bool(driver.devices())

    def _synchronize(self) -> None:
        driver = self._find_driver()
        if driver is not None and not _within(_PATIENT_S, driver.synchronize):
            complain("the devices did not finish their work in time; the capture may be cut off")

    def _mark_rank(self) -> None:
        rank = own_rank()
        if rank is not None:
            self.nvtx.mark(f"nsys-sync:rank {rank.number}/{rank.world}")

    def _look_at_sources(self) -> None:
        from .sources import profiler_calls  # ast is slow to import, and most processes never come here

        opening, other = profiler_calls()
        self._script_call = self._script_call or opening
        self._other_profiler = self._other_profiler or other

    def _meet(self, arrived: str, expected: str) -> None:
        """Wait until as many processes have set the one marker as the other: ranks step in time with one another."""
        self._wait(lambda: self.session.count(arrived) >= self.session.count(expected), _MEET_S)

    def _wait(self, reached: Callable[[], bool], seconds: float) -> None:
        until = self._now() + seconds * SECOND
        while not reached() and self._now() < until:
            time.sleep(0.001)

    def _report(self) -> None:
        rank = own_rank()
        known = self._opened_by is not None
        try:
            self.session.report(
                "capture",
                {
                    "pid": os.getpid(),
                    "rank": None if rank is None else rank.number,
                    "state": self.state,
                    "source": self._source,
                    "steps_run": None if self._source is None else self._steps,
                    "steps_captured": self._captured if known else None,
                    "step_ns_before": _usual(list(self._before)[2:]) if known else None,
                    "step_ns_inside": _usual(self._inside) if known else None,
                    "opened_by": self._opened_by,
                    "closed_by": self._closed_by,
                    "script_call": self._script_call,
                    "script_ranges": self._script_ranges,
                    "other_profiler": self._other_profiler,
                    "cuda": self._first_cuda is not None or self._uses_cuda(),
                },
            )
        except OSError as error:
            complain(f"the session's folder cannot be written: {error}")


def _within(seconds: float, call: Callable[[], object]) -> bool:
    """Make a call that might never return, in a thread of its own; whether it returned in time."""

    def guarded() -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, the program must run
            complain(f"a call of the CUDA driver failed: {error!r}")

    thread = threading.Thread(target=guarded, name="nsys-sync", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # Some versions of Python start no thread while the interpreter shuts down.
        guarded()
        return True
    thread.join(seconds)
    return not thread.is_alive()


def _usual(durations: list[int]) -> int | None:
    """Low median (ns), None for nothing; ``statistics`` takes longer to import than all of this package."""
    return sorted(durations)[(len(durations) - 1) // 2] if durations else None
