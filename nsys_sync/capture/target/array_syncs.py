"""CuPy and JAX: arrays brought to the host, and explicit synchronisation, where their classes allow to stand around."""

from __future__ import annotations

import sys

from . import syncs

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from typing import Any

    from .patches import Patches

#: Methods of a CuPy array that copy it to the host.
_CUPY_READS = ("get", "item", "tolist", "__float__", "__int__", "__bool__", "__index__", "__complex__")
_CUPY_WAITS = {
    "deviceSynchronize": "cudaDeviceSynchronize",
    "streamSynchronize": "cudaStreamSynchronize",
    "eventSynchronize": "cudaEventSynchronize",
}
_GPU = ("gpu", "cuda", "rocm")


def install_cupy(patches: Patches) -> None:
    """Watch CuPy, which the program has imported."""
    cupy: Any = sys.modules["cupy"]

    def reading(name: str) -> Any:
        def around(original: Any) -> Any:
            def read(array: Any, *arguments: Any, **options: Any) -> Any:
                if options.get("blocking", True) is False:
                    return original(array, *arguments, **options)
                return syncs.watched(f"cupy.ndarray.{name}", "cudaMemcpyAsync", original, array, *arguments, **options)

            return read

        return around

    for name in _CUPY_READS:
        patches.method(cupy.ndarray, name, reading(name))
    around = syncs.watching
    stream = next((kind for kind in cupy.cuda.Stream.__mro__ if "synchronize" in vars(kind)), cupy.cuda.Stream)
    patches.method(stream, "synchronize", around("cupy.cuda.Stream.synchronize", "cudaStreamSynchronize"))
    patches.method(cupy.cuda.Event, "synchronize", around("cupy.cuda.Event.synchronize", "cudaEventSynchronize"))
    for name, api in _CUPY_WAITS.items():
        patches.function(cupy.cuda.runtime, name, around(f"cupy.cuda.runtime.{name}", api))


def install_jax(patches: Patches) -> None:
    """Watch JAX, which the program has imported."""
    arrays: Any = sys.modules.get("jax._src.array")
    kind = getattr(arrays, "ArrayImpl", None)
    if kind is None:
        return

    def waiting(original: Any) -> Any:
        def block_until_ready(array: Any) -> Any:
            if not _on_gpu(array):
                return original(array)
            return syncs.watched("jax.Array.block_until_ready", "", original, array)

        return block_until_ready

    patches.method(kind, "block_until_ready", waiting)
    value = vars(kind).get("_value")
    if isinstance(value, property) and value.fget is not None:
        patches.attribute(kind, "_value", property(_reading_value(value.fget)))

    def waiting_for_all(original: Any) -> Any:
        def batched_block_until_ready(batch: Any) -> Any:
            if not any(_on_gpu(array) for array in batch):
                return original(batch)
            return syncs.watched("jax.block_until_ready", "", original, batch)

        return batched_block_until_ready

    client = getattr(sys.modules.get("jax._src.api"), "xc", None)
    if client is not None:
        patches.function(client, "batched_block_until_ready", waiting_for_all)


def _reading_value(read: Any) -> Any:
    def value(array: Any) -> Any:
        if getattr(array, "_npy_value", None) is not None or not _on_gpu(array):
            return read(array)
        return syncs.watched("jax.Array", "", read, array)

    return value


def _on_gpu(array: Any) -> bool:
    try:
        return any(device.platform in _GPU for device in array.devices())
    except Exception:  # noqa: BLE001 - deleted, or a version that says it in another way
        return False
