"""SQLite's answer to a query as int64 columns, by way of ADBC and Arrow's C stream interface.

The stream is called through ctypes, which lets other Python threads run meanwhile: two tables are read at once where
there are two cores. Structures and their meaning: https://arrow.apache.org/docs/format/CStreamInterface.html
"""

from __future__ import annotations

import ctypes
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nsys_sync.trace.tables import Column

if TYPE_CHECKING:
    import adbc_driver_manager

#: Rows at a time: few enough for their memory to be used again, many enough for Python's part not to count.
_BATCH_ROWS = 1 << 14

_INT64 = b"l"
_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Schema(ctypes.Structure):
    pass


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", _Release),
    ("private_data", ctypes.c_void_p),
]


class _Array(ctypes.Structure):
    pass


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", _Release),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    _fields_: ClassVar = [
        ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
        ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
        ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
        ("release", _Release),
        ("private_data", ctypes.c_void_p),
    ]


def fetch(uri: str, sql: str, width: int) -> list[Column]:
    """The ``width`` columns of a query's result, NULL as -1.

    Raises sqlite3.DatabaseError for a database that cannot be read to the end, TypeError for a column that is not of
    integers, and ADBC's own errors.
    """
    import adbc_driver_manager
    import adbc_driver_sqlite

    with (
        adbc_driver_sqlite.connect(uri) as database,
        adbc_driver_manager.AdbcConnection(database) as connection,
        adbc_driver_manager.AdbcStatement(connection) as statement,
    ):
        statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
        statement.set_sql_query(sql)
        with _answer(statement) as stream:
            _check_types(stream, width)
            batches = list(_batches(stream, width))
    if not batches:
        return [np.empty(0, dtype=np.int64) for _ in range(width)]
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]


@contextmanager
def _answer(statement: adbc_driver_manager.AdbcStatement) -> Iterator[_Stream]:
    """The stream of a statement's result; it ends before the statement does."""
    handle, _ = statement.execute_query()
    # In the handle's own memory, so that the handle sees that the stream has been released.
    stream = _Stream.from_address(handle.address)
    try:
        yield stream
    finally:
        stream.release(ctypes.addressof(stream))


def _check_types(stream: _Stream, width: int) -> None:
    schema = _Schema()
    _call(stream, stream.get_schema, schema)
    try:
        formats = [schema.children[i].contents.format for i in range(schema.n_children)]
    finally:
        schema.release(ctypes.addressof(schema))
    if formats != [_INT64] * width:
        raise TypeError(f"columns of Arrow's types {formats}")


def _batches(stream: _Stream, width: int) -> Iterator[list[Column]]:
    """The columns of each batch, as copies: its own memory is given back before the next one is asked for."""
    while True:
        batch = _Array()
        _call(stream, stream.get_next, batch)
        if not batch.release:
            return
        try:
            columns = [_column(child.contents) for child in batch.children[:width]]
        finally:
            batch.release(ctypes.addressof(batch))
        yield columns


def _call(stream: _Stream, function: Callable[[int, int], int], into: ctypes.Structure) -> None:
    if function(ctypes.addressof(stream), ctypes.addressof(into)):
        message = stream.get_last_error(ctypes.addressof(stream)) or b"it cannot be read to the end"
        raise sqlite3.DatabaseError(message.decode("utf-8", "replace"))


def _column(array: _Array) -> Column:
    """A copy of the values of an array of int64."""
    if not array.length:
        return np.empty(0, dtype=np.int64)
    stop = array.offset + array.length
    valid, values = array.buffers[0], array.buffers[1]
    column = np.frombuffer((ctypes.c_int64 * stop).from_address(values), dtype=np.int64)[array.offset :].copy()
    if array.null_count and valid is not None:
        bits = np.frombuffer((ctypes.c_uint8 * (-(-stop // 8))).from_address(valid), dtype=np.uint8)
        column[np.unpackbits(bits, count=stop, bitorder="little")[array.offset :] == 0] = -1
    return column
