"""The CUDA driver, as far as opening and closing a capture needs it; only if the program has loaded and started it."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

_LIBRARY = "libcuda.so.1"
#: dlopen: find a library that is loaded already, never load it.
_ONLY_IF_LOADED = 4
_RELAXED = 2


class Driver:
    """Calls of ``libcuda`` on the devices whose primary context is in use (PyTorch, CuPy, JAX, Numba all use it)."""

    def __init__(self, library: Any) -> None:
        self._cuda = library

    @classmethod
    def loaded(cls) -> Driver | None:
        """The driver that this process has loaded, None if it has not."""
        try:
            return cls(ctypes.CDLL(_LIBRARY, mode=_ONLY_IF_LOADED))
        except OSError:
            return None

    def devices(self) -> list[int]:
        """Devices with an active primary context; none before the program has initialised CUDA."""
        count = ctypes.c_int()
        if self._cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return []
        found = []
        for ordinal in range(count.value):
            device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
            if self._cuda.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
                continue
            state = self._cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
            if state == 0 and active.value:
                found.append(device.value)
        return found

    def synchronize(self) -> None:
        """Wait until every device in use is done. The calling thread's own context stays current."""
        for device in self.devices():
            self._within(device, self._cuda.cuCtxSynchronize)

    def start_profiler(self) -> bool:
        """cuProfilerStart; False if the driver refused."""
        return self._profiler(self._cuda.cuProfilerStart)

    def stop_profiler(self) -> bool:
        """cuProfilerStop; False if the driver refused."""
        return self._profiler(self._cuda.cuProfilerStop)

    def _profiler(self, call: Callable[[], int]) -> bool:
        devices = self.devices()
        return bool(devices) and self._within(devices[0], call) == 0

    def _within(self, device: int, call: Callable[[], int]) -> int:
        """Make the call with the device's primary context current and CUDA-graph captures of other threads unharmed."""
        context = ctypes.c_void_p()
        result = int(self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), ctypes.c_int(device)))
        if result != 0:
            return result
        mode = ctypes.c_int(_RELAXED)
        self._cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        try:
            result = int(self._cuda.cuCtxPushCurrent_v2(context))
            if result == 0:
                result = int(call())
                self._cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        finally:
            self._cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
            self._cuda.cuDevicePrimaryCtxRelease_v2(ctypes.c_int(device))
        return result
