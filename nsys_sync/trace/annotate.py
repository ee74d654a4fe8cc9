"""Writes into a fresh export what nsys leaves out of it: the launcher's note, and the Python frames of old versions.

These are the only functions of the project that change a trace; they are given files that the exporter has just made.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from nsys_sync.errors import InputError
from nsys_sync.trace import files, stacks
from nsys_sync.trace.capture_info import TABLE, CaptureInfo
from nsys_sync.trace.database import Database

#: Domain of stacks that old versions record both at CUDA calls and periodically, and what newer ones call the latter.
_MIXED_DOMAIN = "Python Backtrace"
_SAMPLES_DOMAIN = "Python Periodic Sampling"
_MARK, _DOMAIN, _BACKTRACE_CLASS = 34, 75, 67
#: The payload of old versions, which has no schema in the export: thread state and frame count, then for each frame
#: function, file and line. What is skipped is not initialised.
_HEAD = struct.Struct("<I4xI4x")
_FRAME = struct.Struct("<QQI4x")
_PROCESS = "(globalTid & ~16777215)"


class RawMark(NamedTuple):
    """A mark's payload as a JSON export has it: globalTid, time (ns), domain, bytes."""

    tid: int
    time: int
    domain: int
    data: bytes


def annotate(path: Path, info: CaptureInfo) -> None:
    """Write, or replace, the launcher's note in an .sqlite. Raises InputError if it cannot be written."""
    with _writing(path) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        text = msgspec.json.encode(info).decode()
        connection.execute(f"INSERT OR REPLACE INTO {TABLE} VALUES ('capture', ?)", (text,))


def is_whole(path: Path) -> bool:
    """Whether a file is a complete export: not cut off, its strings there, and its Python stacks not left empty."""
    try:
        with files.sqlite_file(path) as plain:
            database = Database(plain, path)
            try:
                return database.has("StringIds", "id", "value") and not _stacks_missing(database)
            finally:
                database.close()
    except InputError:
        return False


def stacks_missing(path: Path) -> bool:
    """Whether Python stacks were recorded but this export has none of their frames. Raises InputError."""
    with files.sqlite_file(path) as plain:
        database = Database(plain, path)
        try:
            return _stacks_missing(database)
        finally:
            database.close()


def _stacks_missing(database: Database) -> bool:
    if not database.has("NVTX_EVENTS", "eventType", "domainId", "globalTid", "text"):
        return False
    table = database.table("NVTX_EVENTS")
    payloads = [column for column in ("jsonText", "jsonTextId", "binaryData") if database.has("NVTX_EVENTS", column)]
    filled = " OR ".join(f"{column} IS NOT NULL" for column in payloads) or "0"
    named = ",".join(f"'{name}'" for name in stacks.PYTHON_DOMAINS)
    domains = f"SELECT {_PROCESS}, domainId FROM {table} WHERE eventType = {_DOMAIN} AND text IN ({named})"
    found, empty = database.rows(
        f"SELECT count(*), coalesce(sum(NOT ({filled})), 0) FROM {table}"
        f" WHERE eventType = {_MARK} AND ({_PROCESS}, domainId) IN ({domains})"
    )[0]
    return bool(found) and found == empty


def write_frames(path: Path, marks: Iterable[RawMark]) -> int:
    """Give the Python marks of an export their frames, in the JSON form of newer exports; how many got theirs.

    Marks that stand at no traced CUDA call are periodic samples: they move into the domain that newer versions have
    for them. Marks of other domains are left alone. Raises InputError if the file cannot be written.
    """
    with _writing(path) as connection:
        rows = connection.execute(
            f"SELECT {_PROCESS}, domainId FROM NVTX_EVENTS WHERE eventType = {_DOMAIN} AND text = ?", (_MIXED_DOMAIN,)
        )
        domains = set(rows.fetchall())
        connection.execute(
            "CREATE TEMP TABLE frames (tid INTEGER, time INTEGER, domain INTEGER, list TEXT,"
            " PRIMARY KEY (tid, time, domain)) WITHOUT ROWID"
        )
        connection.executemany(
            "INSERT OR REPLACE INTO frames VALUES (?, ?, ?, ?)",
            (
                (mark.tid, mark.time, mark.domain, text)
                for mark in marks
                if (mark.tid & ~0xFFFFFF, mark.domain) in domains and (text := _as_json(mark.data)) is not None
            ),
        )
        filled = _fill(connection, _MIXED_DOMAIN)
        _separate_samples(connection)
        connection.execute("DROP TABLE frames")
    return filled


def _fill(connection: sqlite3.Connection, name: str) -> int:
    found = "(SELECT list FROM temp.frames f WHERE f.tid = globalTid AND f.time = start AND f.domain = domainId)"
    return connection.execute(
        f"UPDATE NVTX_EVENTS SET jsonText = '{{\"{name}\":' || {found} || '}}'"
        f" WHERE eventType = {_MARK} AND {found} IS NOT NULL"
    ).rowcount


def _separate_samples(connection: sqlite3.Connection) -> None:
    """Move the marks that stand at no call into a domain of their own."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_RUNTIME'").fetchone():
        connection.execute(
            "CREATE TEMP TABLE calls AS SELECT DISTINCT globalTid AS tid, start AS time"
            f" FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass = {_BACKTRACE_CLASS}"
        )
    else:
        connection.execute("CREATE TEMP TABLE calls (tid INTEGER, time INTEGER)")
    connection.execute("CREATE INDEX temp.calls_by ON calls (tid, time)")
    (highest,) = connection.execute("SELECT max(domainId) FROM NVTX_EVENTS").fetchone()
    own = (highest or 0) + 1
    moved = connection.execute(
        f"UPDATE NVTX_EVENTS SET domainId = {own}, jsonText = replace(jsonText, ?, ?) WHERE eventType = {_MARK}"
        " AND EXISTS (SELECT 1 FROM temp.frames f WHERE f.tid = globalTid AND f.time = start AND f.domain = domainId)"
        " AND NOT EXISTS (SELECT 1 FROM temp.calls c WHERE c.tid = globalTid AND c.time = start)",
        (f'{{"{_MIXED_DOMAIN}":', f'{{"{_SAMPLES_DOMAIN}":'),
    ).rowcount
    if moved:
        connection.execute(
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId)"
            f" SELECT start, eventType, ?, globalTid, {own} FROM NVTX_EVENTS WHERE eventType = {_DOMAIN} AND text = ?",
            (_SAMPLES_DOMAIN, _MIXED_DOMAIN),
        )
    connection.execute("DROP TABLE calls")


def _as_json(data: bytes) -> str | None:
    """The payload's frames as newer exports spell them; None if the bytes are no stack."""
    if len(data) < _HEAD.size:
        return None
    state, count = _HEAD.unpack_from(data)
    if _HEAD.size + count * _FRAME.size > len(data):
        return None
    frames = [
        {"Function": function, "File": file, "Line": line}
        for function, file, line in (_FRAME.unpack_from(data, _HEAD.size + i * _FRAME.size) for i in range(count))
    ]
    return msgspec.json.encode({"Thread state ID": state, "Frames count": count, "Frames": frames}).decode()


@contextmanager
def _writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A transaction on the file: all of the block's changes, or none."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as connection, connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
    except sqlite3.Error as error:
        raise InputError(
            "unwritable-trace",
            f"{path} cannot be changed: {error}.",
            "Copy it to a place with room, or fix its rights.",
        ) from None
