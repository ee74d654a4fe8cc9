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
    _watch_copies(torch, patches)
    _bring_warnings_to_python(torch, patches)


def _watch_mode(torch: Any, patches: Patches) -> None:
    setter = getattr(torch._C, "_cuda_set_sync_debug_mode", None)
    getter = getattr(torch._C, "_cuda_get_sync_debug_mode", None)
    if setter is None or getter is None:
        return  # built without CUDA, or older than the mode
    # Not through torch.cuda: that would start CUDA, and processes forked later could not use it.
    syncs.take_over_mode(setter, getter, patches)

    def set_mode(original: Any, value: Any) -> None:
        if value in (syncs.OFF, syncs.WARN, syncs.ERROR):
            syncs.mode_for_program(value)
        else:
            original(value)

    patches.function(torch._C, "_cuda_set_sync_debug_mode", set_mode)
    patches.function(torch._C, "_cuda_get_sync_debug_mode", lambda _original: syncs.mode_for_program())


def _watch_waits(torch: Any, patches: Patches) -> None:
    def waits(seen_by: str, api: str) -> Any:
        return lambda original, *arguments: syncs.watched(seen_by, api, original, *arguments)

    device, stream, event = "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"
    patches.function(torch._C, "_cuda_synchronize", waits("torch.cuda.synchronize", device))
    patches.function(torch._C, "_accelerator_synchronizeDevice", waits("torch.accelerator.synchronize", device))
    patches.method(torch.cuda.Stream, "synchronize", waits("torch.cuda.Stream.synchronize", stream))
    patches.method(torch.cuda.Event, "synchronize", waits("torch.cuda.Event.synchronize", event))


def _watch_copies(torch: Any, patches: Patches) -> None:
    plain = (torch.Tensor, torch.nn.Parameter)

    def to(original: Any, tensor: Any, *arguments: Any, **options: Any) -> Any:
        at = 1 if arguments and isinstance(arguments[0], (torch.dtype, torch.Tensor)) else 2
        if not _asks(arguments, options, at) or type(tensor) not in plain:
            return original(tensor, *arguments, **options)
        return _copied("torch.Tensor.to", original, None, tensor, *arguments, **options)

    def cuda(original: Any, tensor: Any, *arguments: Any, **options: Any) -> Any:
        if not _asks(arguments, options, 1) or type(tensor) not in plain:
            return original(tensor, *arguments, **options)
        return _copied("torch.Tensor.cuda", original, None, tensor, *arguments, **options)

    def copy(original: Any, tensor: Any, *arguments: Any, **options: Any) -> Any:
        source = options.get("src", arguments[0] if arguments else None)
        if not _asks(arguments, options, 1) or type(tensor) not in plain or type(source) not in plain:
            return original(tensor, *arguments, **options)
        return _copied("torch.Tensor.copy_", original, source, tensor, *arguments, **options)

    patches.method(torch.Tensor, "to", to)
    patches.method(torch.Tensor, "cuda", cuda)
    patches.method(torch.Tensor, "copy_", copy)


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
    overridden = torch.overrides.has_torch_function

    def has_overrides(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        values = (*arguments, *options.values())
        lists = (value for value in values if isinstance(value, (list, tuple)))
        return bool(overridden(values)) or any(overridden(value) for value in lists)

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
            patches.attribute(kind, "__call__", calling(kind.__call__))
