"""Counts the syncs of a process by their Python stack."""

from __future__ import annotations

import dis
import linecache
import os
import sys
import threading

from . import steps, syncs
from .driver import Driver
from .ranks import own_rank

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Callable

    Key = tuple[Any, ...]

#: Frames of a stack that are kept, innermost first.
_DEPTH = 256
#: Stacks that are told apart; further ones by their innermost frames only.
_STACKS = 5_000
_FEW = 8


class _Stack:
    """One stack: what is seen of the syncs there.

    calls, in_loop (between the first and the last step boundary), allowed; waits: calls by their time in ns, to three
    digits; total, largest: ns. size: bytes of the largest copy.
    """

    def __init__(self, sync: syncs.Sync, frames: list[tuple[CodeType, int]]) -> None:
        self.seen_by = sync.seen_by
        self.api = sync.api
        self.frames = frames
        self.calls = 0
        self.allowed = 0
        self.in_loop = 0
        self.waits: dict[int, int] = {}
        self.total = 0
        self.largest = 0
        self.copy = sync.copy
        self.size = 0
        self.threads: set[int] = set()
        self._pending = 0
        self._step = 0

    def count(self, sync: syncs.Sync, step: int) -> None:
        """Add a sync that happened after so many step boundaries."""
        self._settle(step)
        self.calls += 1
        self.allowed += sync.allowed
        self._pending += 1
        self.threads.add(threading.get_ident())
        self.size = max(self.size, sync.size)
        if sync.wait_ns is not None:
            self.total += sync.wait_ns
            self.largest = max(self.largest, sync.wait_ns)
            rounded = _three_digits(sync.wait_ns)
            self.waits[rounded] = self.waits.get(rounded, 0) + 1

    def leave_loop(self) -> None:
        """The steps are others: what came so far is before the first of them."""
        self.in_loop, self._pending, self._step = 0, 0, 0

    def _settle(self, step: int) -> None:
        """What came before a boundary, and after the first, is inside the loop."""
        if step != self._step:
            if self._step:
                self.in_loop += self._pending
            self._pending = 0
            self._step = step

    def values(self, step: int, frames: Callable[[CodeType, int], int]) -> dict[str, Any]:
        """What is known, as JSON has it; frames: number of a frame in the process's list."""
        self._settle(step)
        return {
            "seen_by": self.seen_by,
            "api": self.api or None,
            "frames": [frames(code, at) for code, at in self.frames],
            "calls": self.calls,
            "allowed": self.allowed,
            "in_loop": self.in_loop,
            "waits": self.waits,
            "total_ns": self.total if self.waits else None,
            "max_ns": self.largest if self.waits else None,
            "copy": self.copy or None,
            "max_bytes": self.size if self.copy else None,
            "threads": sorted(self.threads),
        }


class Recorder(syncs.Listener):
    """Counts while it is started. Everything is of this process; a forked child begins anew.

    after_steps: leave out what comes before so many steps have ended. stop_at_first: raise SyncError at the first sync.
    changed: called now and then when there is something new, by the thread that brought it.
    """

    def __init__(
        self, after_steps: int = 0, *, stop_at_first: bool = False, changed: Callable[[], None] | None = None
    ) -> None:
        self.after_steps = after_steps
        self.stop_at_first = stop_at_first
        self._changed = changed
        self._folder = _folder()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything."""
        self._lock = threading.RLock()
        self._stacks: dict[Key, _Stack] = {}
        self._step = 0
        self._steps = 0
        self._source: str | None = None
        self._left_out = 0
        self.stopped_at: str | None = None

    def after_fork(self) -> None:
        """The parent's counts are not this child's."""
        self.begin_anew()

    def start(self) -> None:
        """Begin to count."""
        syncs.listen(self)
        steps.listen(self.boundary)

    def stop(self) -> None:
        """Stop counting; what was counted stays."""
        steps.unlisten(self.boundary)
        syncs.unlisten(self)

    def boundary(self, source: str) -> None:
        """A step has ended. Steps that the program marks itself count in place of the optimizers'."""
        with self._lock:
            if source != self._source:
                if self._source == "user":
                    return
                self._source, self._steps, self._step = source, 0, 0
                for stack in self._stacks.values():
                    stack.leave_loop()
            self._steps += 1
            if self._steps == self.after_steps:
                self._left_out += sum(stack.calls for stack in self._stacks.values())
                self._stacks.clear()
            if self._steps >= self.after_steps:
                self._step += 1

    def check(self, sync: syncs.Sync) -> None:
        """Stop the program at the first sync, if that was asked for."""
        __tracebackhide__ = True
        if not self.stop_at_first or sync.allowed or self.stopped_at is not None or self._steps < self.after_steps:
            return
        self.stopped_at = syncs.place_of(sync)
        self.record(sync)
        raise syncs.SyncError(f"{self.stopped_at} waits for the GPU; this run stops at the first sync")

    def record(self, sync: syncs.Sync) -> None:
        """Count a sync."""
        key = _key(sync)
        with self._lock:
            stack = self._stacks.get(key)
            if stack is None:
                stack = self._add(key, sync)
            stack.count(sync, self._step)
        if self._changed is not None:
            self._changed()

    def _add(self, key: Key, sync: syncs.Sync) -> _Stack:
        frames = _frames(sync)
        if len(self._stacks) >= _STACKS:
            del frames[_FEW:]
            key = (sync.seen_by, sync.copy, *(part for code, at in frames for part in (id(code), at)))
        return self._stacks.setdefault(key, _Stack(sync, frames))

    def _path(self, file: str) -> str:
        """A file's whole path: before Python 3.9 a script's is as it was typed."""
        file = _plain(file)
        return os.path.join(self._folder, file) if file.endswith(".py") else file

    def values(self) -> dict[str, Any]:
        """What this process has to say, as JSON has it."""
        frames: dict[tuple[int, int], int] = {}
        listed: list[tuple[str, str, int]] = []

        def number(code: CodeType, at: int) -> int:
            # By identity: code of two files may be equal.
            key = (id(code), at)
            if key not in frames:
                frames[key] = len(listed)
                listed.append((_plain(code.co_name), self._path(code.co_filename), _line(code, at)))
            return frames[key]

        with self._lock:
            stacks = [stack.values(self._step, number) for stack in list(self._stacks.values())]
            return {
                "pid": os.getpid(),
                "name": _plain(os.path.basename(sys.argv[0] if getattr(sys, "argv", None) else "")) or "python",
                "rank": getattr(own_rank(), "number", None),
                "steps": self._steps,
                "steps_counted": max(0, self._step - 1),
                "steps_from": self._source,
                "left_out": self._left_out if self._steps >= self.after_steps else sum(s["calls"] for s in stacks),
                "stopped_at": self.stopped_at,
                "frames": listed,
                "stacks": stacks if self._steps >= self.after_steps else [],
                "sources": _unsaved({file for _, file, _ in listed}),
                **_frameworks(),
            }


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return os.sep  # it has been deleted


def _plain(text: str) -> str:
    """The text without what UTF-8 cannot say (bytes of file names that are no text)."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _key(sync: syncs.Sync) -> Key:
    """What tells a sync's stack from others. Made at every sync, so it is in a hurry: identities, and no lines."""
    parts: list[Any] = [sync.seen_by, sync.copy]
    add = parts.append
    frame: FrameType | None = sync.frame
    outermost = sync.frame
    while frame is not None:
        add(id(frame.f_code))
        add(frame.f_lasti)
        outermost, frame = frame, frame.f_back
    if not _is_of_python(outermost):
        for code, at in _backward_caller():
            add(id(code))
            add(at)
    return tuple(parts)


def _frames(sync: syncs.Sync) -> list[tuple[CodeType, int]]:
    """(code, position in it) of the stack, innermost first, without this package's own frames."""
    frames = [(code, -1) for code in sync.below]
    frame: FrameType | None = sync.frame
    outermost = sync.frame
    while frame is not None:
        if not syncs.is_own(frame.f_code):
            frames.append((frame.f_code, frame.f_lasti))
        outermost, frame = frame, frame.f_back
    if not _is_of_python(outermost):
        frames += _backward_caller()
    return frames[:_DEPTH]


def _is_of_python(outermost: FrameType) -> bool:
    """Whether the stack is whole: of a thread that Python started. Those of PyTorch's backward pass are not."""
    if threading.get_ident() == threading.main_thread().ident:
        return True
    return outermost.f_code.co_filename == threading.__file__


def _backward_caller() -> list[tuple[CodeType, int]]:
    """The stack of the one thread that waits for a backward pass, whose work this thread does; nothing if unclear."""
    waiting = [frame for frame in sys._current_frames().values() if _runs_backward(frame.f_code)]
    if len(waiting) != 1:
        return []
    found: list[tuple[CodeType, int]] = []
    at: FrameType | None = waiting[0]
    while at is not None:
        found.append((at.f_code, at.f_lasti))
        at = at.f_back
    return found


def _runs_backward(code: CodeType) -> bool:
    names = ("_engine_run_backward", "backward", "grad")
    return code.co_name in names and "/torch/autograd/" in code.co_filename.replace(os.sep, "/")


def _line(code: CodeType, at: int) -> int:
    """The line at a position of the code; of a leaf, that of its definition."""
    line = code.co_firstlineno
    for start, number in dis.findlinestarts(code):
        if start > at:
            break
        line = number or line
    return line


def _three_digits(ns: int) -> int:
    scale: int = 10 ** max(0, len(str(ns)) - 3)
    return round(ns / scale) * scale


def _unsaved(files: set[str]) -> dict[str, str]:
    """Texts that no file holds, such as the cells of a notebook."""
    found = {}
    for file in files:
        if file in linecache.cache and not os.path.exists(file):
            lines = linecache.getlines(file)
            if lines:
                found[file] = "".join(lines)
    return found


def _frameworks() -> dict[str, Any]:
    """What the process could be seen through."""
    torch: Any = sys.modules.get("torch")
    driver = Driver.loaded()
    mode = hasattr(getattr(torch, "_C", None), "_cuda_set_sync_debug_mode")
    return {
        "torch": str(torch.__version__) if torch is not None and hasattr(torch, "__version__") else None,
        "debug_mode": mode,
        "frameworks": [name for name in ("torch", "cupy", "jax") if name in sys.modules],
        "cuda": driver is not None and bool(driver.devices()),
    }
