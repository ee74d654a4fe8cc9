"""Marks and ranges in the profiler's timeline, through the injection library that the profiler itself names.

NVTX has no library of its own: a client asks the injection library for its functions. Doing that here takes neither
PyTorch nor the nvtx package, which the program may lack and whose newer releases (0.2.13 on) write events that
Nsight Systems 2023.4 drops. Texts go to the default domain; ranges are start/end ranges, so that the program's own
push/pop nesting stays as it is.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_LIBRARY_VARIABLE = "NVTX_INJECTION64_PATH"
_FUNCTIONS = 16
_CORE, _CORE2 = 1, 5
_CALLBACKS_TABLE, _VERSION_TABLE = 1, 3
_MARK, _RANGE_START, _RANGE_END = 2, 5, 7

_GetModuleTable = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint)
)
_SetVersion = ctypes.CFUNCTYPE(None, ctypes.c_uint32)
_GetExportTable = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)


class _Callbacks(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("get_module_table", _GetModuleTable)]


class _Version(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("set_version", _SetVersion),
    ]


class _Slots:
    """A module's functions: the injection library writes an address into each slot that it serves."""

    def __init__(self) -> None:
        self.functions = (ctypes.c_void_p * _FUNCTIONS)()
        size = ctypes.sizeof(ctypes.c_void_p)
        first = ctypes.addressof(self.functions)
        self.pointers = (ctypes.c_void_p * (_FUNCTIONS + 1))(*[first + size * i for i in range(_FUNCTIONS)], None)


class Nvtx:
    """A client of the injection library; every method does nothing where no profiler is attached."""

    def __init__(self, library: str | None = None) -> None:
        self._kept: list[Any] = []
        self._modules = {_CORE: _Slots(), _CORE2: _Slots()}
        path = os.environ.get(_LIBRARY_VARIABLE) if library is None else library
        if path:
            self._connect(path)
        self._mark = self._function(_MARK, None, ctypes.c_char_p)
        self._start = self._function(_RANGE_START, ctypes.c_uint64, ctypes.c_char_p)
        self._end = self._function(_RANGE_END, None, ctypes.c_uint64)

    def mark(self, text: str) -> None:
        """A point in time."""
        if self._mark is not None:
            self._mark(text.encode("utf-8", "replace"))

    def start(self, text: str) -> int:
        """Begin a range; the value ends it, from any thread."""
        return int(self._start(text.encode("utf-8", "replace"))) if self._start is not None else 0

    def end(self, handle: int) -> None:
        """End a range."""
        if self._end is not None and handle:
            self._end(handle)

    def _connect(self, path: str) -> None:
        try:
            initialise = ctypes.CDLL(path).InitializeInjectionNvtx2
        except (OSError, AttributeError):
            return

        def module_table(module: int, table: Any, size: Any) -> int:
            slots = self._modules.get(module)
            if slots is None:
                return 0
            table[0] = ctypes.addressof(slots.pointers)
            size[0] = _FUNCTIONS
            return 1

        callbacks = _Callbacks(ctypes.sizeof(_Callbacks), _GetModuleTable(module_table))
        version = _Version(ctypes.sizeof(_Version), 3, 0, _SetVersion(lambda _: None))
        tables = {_CALLBACKS_TABLE: ctypes.addressof(callbacks), _VERSION_TABLE: ctypes.addressof(version)}
        exports = _GetExportTable(lambda table: tables.get(table, 0))
        # The library may call these at any time while the process lives.
        self._kept += [callbacks, version, exports]
        initialise(exports)

    def _function(self, index: int, result: Any, argument: Any) -> Any:
        address = self._modules[_CORE].functions[index]
        return ctypes.CFUNCTYPE(result, argument)(address) if address else None
