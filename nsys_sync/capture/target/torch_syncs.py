"""PyTorch: its sync debug mode, explicit synchronisation, copies that block though they are called non-blocking."""

from __future__ import annotations

import sys
import time

from . import syncs

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from typing import Any

    from .patches import Patches

#: Pageable copies to the GPU up to this size (bytes) are staged by the driver without waiting.
_STAGED = 64 << 10


def install(patches: Patches) -> None:
    """Watch PyTorch, which the program has imported."""
    torch: Any = sys.modules["torch"]
    _watch_mode(torch, patches)
    _watch_waits(torch, patches)
    copies = _Copies(torch)
    patches.method(torch.Tensor, "to", copies.to)
    patches.method(torch.Tensor, "cuda", copies.cuda)
    patches.method(torch.Tensor, "copy_", copies.copy)
    _bring_warnings_to_python(torch, patches)


def _watch_mode(torch: Any, patches: Patches) -> None:
    setter = getattr(torch._C, "_cuda_set_sync_debug_mode", None)
    getter = getattr(torch._C, "_cuda_get_sync_debug_mode", None)
    if setter is None or getter is None:
        return  # built without CUDA, or older than the mode
    # Not through torch.cuda: that would start CUDA, and processes forked later could not use it.
    syncs.take_over_mode(setter, getter, patches)

    def setting(original: Any) -> Any:
        def set_mode(value: Any) -> None:
            if value in (syncs.OFF, syncs.WARN, syncs.ERROR):
                syncs.mode_for_program(value)
            else:
                original(value)

        return set_mode

    patches.function(torch._C, "_cuda_set_sync_debug_mode", setting)
    patches.function(torch._C, "_cuda_get_sync_debug_mode", lambda _original: syncs.mode_for_program)


def _watch_waits(torch: Any, patches: Patches) -> None:
    device, stream, event = "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"
    around = syncs.watching
    patches.function(torch._C, "_cuda_synchronize", around("torch.cuda.synchronize", device))
    patches.function(torch._C, "_accelerator_synchronizeDevice", around("torch.accelerator.synchronize", device))
    patches.method(torch.cuda.Stream, "synchronize", around("torch.cuda.Stream.synchronize", stream))
    patches.method(torch.cuda.Event, "synchronize", around("torch.cuda.Event.synchronize", event))


class _Copies:
    """Stands around the methods that copy. Only plain tensors: those of other types say themselves what they do."""

    def __init__(self, torch: Any) -> None:
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._not_devices = (torch.dtype, torch.Tensor)

    def to(self, original: Any) -> Any:
        """``tensor.to(device, dtype, non_blocking)``, ``tensor.to(dtype or tensor, non_blocking)``."""

        def to(tensor: Any, *arguments: Any, **options: Any) -> Any:
            at = 1 if arguments and isinstance(arguments[0], self._not_devices) else 2
            if _asks(arguments, options, at) and type(tensor) in self._plain:
                return _copied("torch.Tensor.to", original, None, tensor, *arguments, **options)
            return original(tensor, *arguments, **options)

        return to

    def cuda(self, original: Any) -> Any:
        """``tensor.cuda(device, non_blocking)``."""

        def cuda(tensor: Any, *arguments: Any, **options: Any) -> Any:
            if _asks(arguments, options, 1) and type(tensor) in self._plain:
                return _copied("torch.Tensor.cuda", original, None, tensor, *arguments, **options)
            return original(tensor, *arguments, **options)

        return cuda

    def copy(self, original: Any) -> Any:
        """``tensor.copy_(source, non_blocking)``."""

        def copy_(tensor: Any, *arguments: Any, **options: Any) -> Any:
            if _asks(arguments, options, 1) and type(tensor) in self._plain:
                source = options.get("src", arguments[0] if arguments else None)
                if type(source) in self._plain:
                    return _copied("torch.Tensor.copy_", original, source, tensor, *arguments, **options)
            return original(tensor, *arguments, **options)

        return copy_


def _asks(arguments: tuple[Any, ...], options: dict[str, Any], at: int) -> bool:
    """Whether the call asks for a non-blocking copy; at: position of that argument."""
    asked = options.get("non_blocking", arguments[at] if len(arguments) > at else False)
    return asked is True and syncs.is_watching()


def _copied(seen_by: str, original: Any, source: Any, tensor: Any, *arguments: Any, **options: Any) -> Any:
    """Make a non-blocking copy, and tell of it if it could only be a blocking one."""
    began = time.perf_counter_ns()
    result = original(tensor, *arguments, **options)
    passed = time.perf_counter_ns() - began
    source = tensor if source is None else source
    try:
        direction = _blocking_direction(source, result)
        if direction is not None:
            syncs.tell_copy(seen_by, passed, direction, source.nbytes)
    except syncs.SyncError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the program must run
        syncs.complain_once(error)
    return result


def _blocking_direction(source: Any, target: Any) -> str | None:
    """The direction of a non-blocking copy that waits, as its host side is not pinned; None for one that does not."""
    if source.is_cuda and target.device.type == "cpu":
        return None if target.is_pinned() else "device->pageable"
    if source.device.type == "cpu" and target.is_cuda and source.nbytes > _STAGED:
        return None if source.is_pinned() else "pageable->device"
    return None


def _bring_warnings_to_python(torch: Any, patches: Patches) -> None:
    """Operators called through ``torch.ops``, as compiled code does, print warnings to stderr, unlike all others.

    Called through a function that collects warnings for Python they do not. Of those this is the one that changes
    nothing else: it turns overrides by tensor subclasses off, and is used where there are none.
    """
    call: Any = getattr(torch._C, "_disabled_torch_function_impl", None)
    if call is None:
        return
    has_overrides = _finder_of_overrides(torch.overrides.has_torch_function)

    def calling(original: Any) -> Any:
        def __call__(self: Any, /, *arguments: Any, **options: Any) -> Any:  # noqa: N807
            if not syncs.is_watching() or has_overrides(arguments, options):
                return original(self, *arguments, **options)
            return call(original, (), (self, *arguments), options)

        return __call__

    operators: Any = torch._ops
    for name in ("OpOverload", "OpOverloadPacket"):
        kind = getattr(operators, name, None)
        if kind is not None:
            patches.attribute(kind, "__call__", calling(kind.__call__))  # not found through instances


def _finder_of_overrides(overridden: Any) -> Any:
    def has_overrides(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        values = (*arguments, *options.values()) if options else arguments
        if overridden(values):
            return True
        return any(isinstance(value, (list, tuple)) and overridden(value) for value in values)

    return has_overrides
