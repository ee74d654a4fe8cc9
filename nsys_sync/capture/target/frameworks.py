"""Where frameworks tell of steps, of their first use of CUDA and of calls to the profiler API."""

from __future__ import annotations

import os
import sys

from .imports import when_imported

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from typing import Any, Callable

    from .range import Capture

    FindCapture = Callable[[], "Capture | None"]
    Boundary = Callable[[str], None]

#: Packages other than PyTorch through which Python programs reach CUDA.
_OTHERS = ("cupy", "jax", "numba.cuda", "pycuda", "tensorflow", "tensorrt", "cuda", "warp", "tinygrad")


def is_imported(name: str) -> bool:
    """Whether the program has imported the module."""
    return name in sys.modules


def follow_frameworks(find_capture: FindCapture) -> None:
    """Let the frameworks call the process's capture once the program has imported them."""

    def then(follow: Callable[[Capture], None]) -> Callable[[], None]:
        def follow_capture() -> None:
            capture = find_capture()
            if capture is not None:
                follow(capture)

        return follow_capture

    when_imported("torch.optim.optimizer", then(lambda capture: _follow_optimizers(capture.boundary)))
    when_imported("torch.cuda", then(_follow_torch_cuda))
    for name in _OTHERS:
        when_imported(name, then(lambda capture: capture.watch()))


def follow_optimizers(boundary: Boundary) -> None:
    """Call ``boundary("optimizer")`` after each step of the program's optimizers."""
    when_imported("torch.optim.optimizer", lambda: _follow_optimizers(boundary))


def has_optimizer() -> bool:
    """Whether any PyTorch optimizer is alive in this process."""
    import gc

    module: Any = sys.modules.get("torch.optim.optimizer")
    if module is None:
        return False
    # type() and not isinstance(): a proxy's __class__ may run code of the program.
    return any(issubclass(type(thing), module.Optimizer) for thing in gc.get_objects())


class Rounds:
    """Tells where a step ends when several optimizers step in turn: a step ends when the first of them steps again."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def ends_step(self, optimizer: object) -> bool:
        """Whether this call of the optimizer is the first of a new round."""
        if self._seen and id(optimizer) not in self._seen:
            self._seen.add(id(optimizer))
            return False
        self._seen = {id(optimizer)}
        return True


def _follow_optimizers(boundary: Boundary) -> None:
    module: Any = sys.modules["torch.optim.optimizer"]
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        return
    torch: Any = sys.modules["torch"]
    rounds = Rounds()

    def after_step(optimizer: object, _args: object, _kwargs: object) -> None:
        # Where the step is compiled this is traced: a constant that ends it, so that no graph breaks.
        if torch.compiler.is_compiling():
            return
        if not _is_capturing(torch) and rounds.ends_step(optimizer):
            boundary("optimizer")

    register(after_step)


def _is_capturing(torch: Any) -> bool:
    """Whether a CUDA graph is being recorded: no step runs then, and a synchronisation would spoil the recording."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _follow_torch_cuda(capture: Capture) -> None:
    cuda: Any = sys.modules["torch.cuda"]
    once_initialised = getattr(cuda, "_lazy_call", None)
    if once_initialised is None:
        capture.watch()
    else:
        once_initialised(capture.watch)
    runtime = getattr(cuda, "_cudart", None)
    if runtime is not None and hasattr(runtime, "cudaProfilerStart"):
        _wrap_profiler(runtime, capture)


def _wrap_profiler(runtime: Any, capture: Capture) -> None:
    start: Callable[[], Any] = runtime.cudaProfilerStart
    stop: Callable[[], Any] = runtime.cudaProfilerStop

    def start_profiler() -> Any:
        if capture.ignores_script:
            return runtime.cudaError.success
        result = start()
        capture.script_started(_caller())
        return result

    def stop_profiler() -> Any:
        if capture.ignores_script:
            return runtime.cudaError.success
        capture.script_stops()
        return stop()

    runtime.cudaProfilerStart = start_profiler
    runtime.cudaProfilerStop = stop_profiler


def _caller() -> str:
    """``FILE:LINE`` of the innermost frame outside of PyTorch and of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        path = frame.f_code.co_filename
        if os.path.dirname(path) != os.path.dirname(__file__) and "/torch/cuda/" not in path.replace(os.sep, "/"):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
