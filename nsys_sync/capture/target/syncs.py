"""Tells listeners of the program's syncs, as far as Python can see them, at the moment and place where they happen.

PyTorch's sync debug mode warns at every operation that waits for its stream; ``warned`` hears those. What it does not
warn of is seen by standing around the call: explicit synchronisation, copies that are called non-blocking and block,
arrays of CuPy and JAX that are brought to the host. Everything is in place while somebody listens, and for the whole
process, as PyTorch's mode is.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
import warnings

from . import complain, is_ours, warned
from .imports import when_imported
from .patches import Patches

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType
    from typing import Any, Callable

    Install = Callable[[Patches], None]

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CALLED = ("called a synchronizing CUDA operation", "called a synchronizing HIP operation")
_PROTOTYPE = "Synchronization debug mode is a prototype feature"
#: What a person typed has no file.
_TYPED = ("<ipython-input", "<python-input", "<stdin>", "<string>")
#: Values of PyTorch's sync debug mode.
OFF, WARN, ERROR = 0, 1, 2


class SyncError(RuntimeError):
    """The program waited for the GPU where that is forbidden. The message names the place."""

    __module__ = "nsys_sync"


class Sync:
    """One sync. Times in ns.

    seen_by: ``pytorch`` for its warning, else the name of the call. api: the CUDA call that waits, "" if unknown.
    frame: the innermost frame of the program; valid while the listener runs. below: code of the frames below it that
    are the call's own, innermost first. wait_ns: time in the call, None where only its warning was seen. copy, size:
    direction of a copy ("" if it is none, or unknown) and its bytes. allowed: whether ``allow_syncs`` is in force here.
    """

    __slots__ = ("allowed", "api", "below", "copy", "frame", "seen_by", "size", "wait_ns")

    def __init__(
        self,
        seen_by: str,
        api: str,
        frame: FrameType,
        below: tuple[CodeType, ...] = (),
    ) -> None:
        self.seen_by = seen_by
        self.api = api
        self.frame = frame
        self.below = below
        self.wait_ns: int | None = None
        self.copy = ""
        self.size = 0
        self.allowed = _ALLOWED.get()


class Listener:
    """Base of those who want to know. ``check`` may raise, and the exception is then raised in the program."""

    def check(self, sync: Sync) -> None:
        """A sync is about to happen, or has just happened where only PyTorch's warning tells of it."""

    def record(self, sync: Sync) -> None:
        """A sync has happened."""

    def after_fork(self) -> None:
        """This is a forked child now."""


class _State:
    """What is in place in this process. mode: the value of PyTorch's debug mode as the program has set it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners: tuple[Listener, ...] = ()
        self.patches = Patches()
        self.installed: set[str] = set()
        self.awaited: set[str] = set()
        self.mode = OFF
        self.registries: dict[str, dict[Any, Any]] = {}
        self.complained = False


class _Thread(threading.local):
    """depth: watched calls that this thread is in. quiet: our own setting of the mode. passing: a warning sent on."""

    depth = 0
    quiet = False
    passing = False


_STATE = _State()
_THREAD = _Thread()
_ALLOWED: contextvars.ContextVar[bool] = contextvars.ContextVar("nsys_sync_allowed", default=False)


def _after_fork() -> None:
    _STATE.lock = threading.RLock()
    _THREAD.depth = 0
    for listener in _STATE.listeners:
        listener.after_fork()


os.register_at_fork(after_in_child=_after_fork)


# Listening


def listen(listener: Listener) -> None:
    """Begin to tell a listener. Frameworks that the program has not imported yet are followed once it does."""
    with _STATE.lock:
        _STATE.listeners = (*_STATE.listeners, listener)
        if len(_STATE.listeners) == 1:
            warned.start_hearing(_hear)
        for framework in _FRAMEWORKS:
            if framework in sys.modules:
                _follow(framework)
            elif framework not in _STATE.awaited:
                _STATE.awaited.add(framework)
                when_imported(framework, _following(framework))


def unlisten(listener: Listener) -> None:
    """Stop telling it; with the last listener everything is put back."""
    with _STATE.lock:
        _STATE.listeners = tuple(other for other in _STATE.listeners if other is not listener)
        if not _STATE.listeners:
            _STATE.patches.undo()
            _STATE.installed.clear()
            _STATE.registries.clear()
            warned.stop_hearing()


def _following(framework: str) -> Callable[[], None]:
    return lambda: _follow(framework)


def _follow(framework: str) -> None:
    with _STATE.lock:
        _STATE.awaited.discard(framework)
        if not _STATE.listeners or framework in _STATE.installed:
            return
        _STATE.installed.add(framework)
        try:
            _FRAMEWORKS[framework](_STATE.patches)
        except Exception as error:  # noqa: BLE001 - whatever it is, the program must run
            complain(f"syncs of {framework} are not all seen: {error!r}")


def _install_torch(patches: Patches) -> None:
    from .torch_syncs import install

    install(patches)


def _install_cupy(patches: Patches) -> None:
    from .array_syncs import install_cupy

    install_cupy(patches)


def _install_jax(patches: Patches) -> None:
    from .array_syncs import install_jax

    install_jax(patches)


_FRAMEWORKS: dict[str, Install] = {"torch": _install_torch, "cupy": _install_cupy, "jax": _install_jax}


# PyTorch's warnings


def take_over_mode(setter: Callable[[int], None], getter: Callable[[], int], patches: Patches) -> None:
    """Turn PyTorch's sync debug mode on. What the program itself sets from here on is kept for it and obeyed here."""
    _STATE.mode = getter()
    _THREAD.quiet = True
    try:
        setter(WARN)
    finally:
        _THREAD.quiet = False
    patches.at_undo(lambda: setter(_STATE.mode))


def mode_for_program(value: int | None = None) -> int:
    """The debug mode as the program knows it, after setting it where a value is given."""
    if value is not None:
        _STATE.mode = value
    return _STATE.mode


def _hear(text: str) -> bool:
    """Answer whether a warning goes no further. Called with the text of every warning, in its thread, by its frame."""
    __tracebackhide__ = True  # pytest shows the program's own line last
    if not text.startswith(_CALLED):
        return _THREAD.quiet and text.startswith(_PROTOTYPE)
    if _THREAD.passing:
        return False
    frame = program_frame(sys._getframe(2))
    if not _THREAD.depth:
        sync = _noticed("pytorch", "cudaStreamSynchronize", frame)
        if sync is not None:
            _record(sync)
    if _STATE.mode == ERROR:
        raise RuntimeError(text.partition(" (")[0])
    if _STATE.mode == WARN:
        _pass_on(text, frame)
    return True


def _pass_on(text: str, frame: FrameType) -> None:
    """Issue the warning to the program, which asked for it: its own filters apply, and no registry of its own keeps it
    (a warning in a registry is not issued again, and so would not be heard).
    """
    file = frame.f_code.co_filename
    registry = _STATE.registries.setdefault(file, {})
    _THREAD.passing = True
    try:
        warnings.warn_explicit(text, UserWarning, file, frame.f_lineno, frame.f_globals.get("__name__"), registry)
    finally:
        _THREAD.passing = False


# Calls


def watched(seen_by: str, api: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Make a call that waits for the GPU, and tell the listeners."""
    __tracebackhide__ = True
    if not _STATE.listeners or _THREAD.depth:
        return call(*arguments, **options)
    sync = _noticed(seen_by, api, program_frame(sys._getframe(1)), _code_of(call))
    _THREAD.depth += 1
    began = time.perf_counter_ns()
    try:
        return call(*arguments, **options)
    finally:
        passed = time.perf_counter_ns() - began
        _THREAD.depth -= 1
        if sync is not None:
            sync.wait_ns = passed
            _record(sync)


def watching(seen_by: str, api: str) -> Callable[[Any], Callable[..., Any]]:
    """For ``Patches``: a function that waits for the GPU becomes one that tells of it."""

    def around(original: Any) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            return watched(seen_by, api, original, *arguments, **options)

        return call

    return around


def is_watching() -> bool:
    """Whether anybody listens, and this thread is in no watched call already."""
    return bool(_STATE.listeners) and not _THREAD.depth


def tell_copy(seen_by: str, wait_ns: int, direction: str, size: int) -> None:
    """Tell of a copy (of so many bytes) that has just blocked in a call of the program."""
    sync = _noticed(seen_by, "cudaMemcpyAsync", program_frame(sys._getframe(1)))
    if sync is not None:
        sync.wait_ns, sync.copy, sync.size = wait_ns, direction, size
        _record(sync)


def program_frame(frame: FrameType) -> FrameType:
    """The innermost frame that is not this package's, from this one outwards."""
    while is_own(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def is_own(code: CodeType) -> bool:
    """Whether code belongs to this package."""
    return code.co_filename.startswith(_OWN_FOLDER)


def _code_of(call: Any) -> tuple[CodeType, ...]:
    """The code of a function, that of what it wraps first; nothing for a function written in C."""
    found: list[CodeType] = []
    while hasattr(call, "__code__") and call.__code__ not in found:
        found.insert(0, call.__code__)
        call = getattr(call, "__wrapped__", None)
    return tuple(found)


def _noticed(seen_by: str, api: str, frame: FrameType, below: tuple[CodeType, ...] = ()) -> Sync | None:
    """A sync that no listener forbids; None if a failure of ours lost it. Raises only SyncError."""
    __tracebackhide__ = True
    try:
        sync = Sync(seen_by, api, frame, below)
        for listener in _STATE.listeners:
            listener.check(sync)
    except SyncError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the program must run
        complain_once(error)
        return None
    return sync


def _record(sync: Sync) -> None:
    try:
        for listener in _STATE.listeners:
            listener.record(sync)
    except Exception as error:  # noqa: BLE001 - whatever it is, the program must run
        complain_once(error)


def complain_once(error: Exception) -> None:
    """Say once in a process that something of ours failed. An error that is not ours is raised again."""
    if not is_ours(error):
        raise error
    if not _STATE.complained:
        _STATE.complained = True
        complain(f"syncs are not all counted: {error!r}")


# Forbidding


class _Forbidding(Listener):
    def check(self, sync: Sync) -> None:
        __tracebackhide__ = True
        if not sync.allowed:
            raise SyncError(f"{place_of(sync)} waits for the GPU, and syncs are forbidden here")


def place_of(sync: Sync) -> str:
    """``FILE:LINE in FUNCTION: CALL`` of a sync: the innermost frame outside of installed packages if there is one."""
    frame: FrameType | None = sync.frame
    while frame is not None and _is_installed(frame.f_code.co_filename):
        frame = frame.f_back
    frame = frame or sync.frame
    what = "a synchronizing PyTorch operation" if sync.seen_by == "pytorch" else sync.seen_by
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}: {what}"


def _is_installed(file: str) -> bool:
    path = file.replace(os.sep, "/")
    if path.startswith("<"):
        return not path.startswith(_TYPED)
    in_library = "/site-packages/" in path or "/dist-packages/" in path
    return in_library or file.startswith(_OWN_FOLDER) or file == threading.__file__


class _Setting:
    """Whether syncs are allowed, within a ``with`` block."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._before = False

    def __enter__(self) -> None:
        self._before = _ALLOWED.get()
        _ALLOWED.set(self._allowed)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _ALLOWED.set(self._before)


class forbidding(_Setting):  # noqa: N801 - used like a function
    """Within the ``with`` block a sync of any thread raises SyncError, unless it is allowed where it happens."""

    def __init__(self) -> None:
        super().__init__(allowed=False)
        self._listener = _Forbidding()

    def __enter__(self) -> None:
        super().__enter__()
        listen(self._listener)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        unlisten(self._listener)
        super().__exit__(kind, error, at)


class allowing(_Setting):  # noqa: N801 - used like a function
    """Within the ``with`` block syncs of this thread (or task) are allowed."""

    def __init__(self) -> None:
        super().__init__(allowed=True)
