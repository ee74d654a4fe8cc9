"""``open_trace``: an export becomes a ``Trace``. What an export lacks is an empty table and a name in ``missing``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from nsys_sync.errors import InputError
from nsys_sync.trace import capture_info, files, nvtx
from nsys_sync.trace.columns import distinct, order, positions
from nsys_sync.trace.database import LATEST, Database
from nsys_sync.trace.meta import Meta, read_capture, read_meta
from nsys_sync.trace.names import api_kind, bare_name
from nsys_sync.trace.tables import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    Brackets,
    Calls,
    Column,
    Copies,
    EventRecords,
    GilSpans,
    Marks,
    NativeFrame,
    Ops,
    Ranges,
    StackFrame,
    SyncRecords,
    os_pid,
)

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_OP_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": MEMCPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": MEMSET,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": GRAPH,
}
_SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_OPTIONAL = (*_OP_TABLES, _SYNC, "CUDA_CALLCHAINS", "NVTX_EVENTS")
#: Columns that every known version has, and that nothing can stand in for.
_PLACE = ("globalPid", "deviceId", "contextId", "streamId", "correlationId")
_NEEDED = {
    RUNTIME: ("start", "end", "globalTid", "correlationId", "nameId"),
    **dict.fromkeys(_OP_TABLES, ("start", "end", *_PLACE)),
    _SYNC: _PLACE,
    _EVENT: _PLACE,
    "NVTX_EVENTS": ("start", "end", "eventType", "globalTid"),
}
_NEEDED["CUPTI_ACTIVITY_KIND_MEMCPY"] += ("srcKind", "dstKind")
_LAST_DEVICE = 0xFFFF
_DAY = 86_400 * 10**9
#: Times (ns) that are less apart can be summed over as many threads as there can be.
_LONG = 1 << 44
_NO_EVENT = (-1, 0, 0xFFFFFFFF)


@dataclass
class Trace:
    """An open export: its columns, and stacks and strings on request.

    devices: GPU names by device id. processes: names by global process id. threads: names by global thread id.
    python_frames: whether Python stacks are in the file. missing: optional tables that the export lacks.
    warnings: (slug, sentence). at_call, samples: marks with a Python stack. gil: None where it was not traced.
    """

    path: Path
    meta: Meta
    calls: Calls
    ops: Ops
    syncs: SyncRecords
    events: EventRecords
    brackets: Brackets
    at_call: Marks
    samples: Marks
    ranges: Ranges
    gil: GilSpans | None
    devices: dict[int, str]
    processes: dict[int, str]
    threads: dict[int, str]
    capture: capture_info.CaptureInfo | None
    python_frames: nvtx.PythonFrames
    missing: frozenset[str]
    warnings: list[tuple[str, str]]
    _db: Database
    _digest: Future[str]
    _stacks: dict[object, tuple[StackFrame, ...]] = field(default_factory=dict)

    @cached_property
    def sha256(self) -> str:
        """Hex digest of the file that was named."""
        return self._digest.result()

    def strings(self, ids: Sequence[int] | Column) -> dict[int, str]:
        """String values by id."""
        return self._db.strings(ids)

    def python_stacks(self, rows: Column) -> list[tuple[StackFrame, ...]]:
        """The Python stack of each mark (by ``Marks.row``), innermost first; empty where it has no payload."""
        with self._db.reading():
            return nvtx.read_stacks(self._db, rows, self._stacks)

    def native_chains(self, chains: Column) -> dict[int, tuple[NativeFrame, ...]]:
        """Native call chains by id, innermost first."""
        with self._db.reading():
            return _native_chains(self._db, chains)


@contextmanager
def open_trace(path: str | Path) -> Iterator[Trace]:
    """Open an export (.sqlite or .sqlite.xz) read-only.

    Raises InputError when it is not an Nsight Systems export or is damaged.
    """
    path = Path(path)
    with files.sqlite_file(path) as readable, ThreadPoolExecutor(1) as beside:
        db = Database(readable, path)
        try:
            check_export(db, path)
            _check_columns(db, path)
            with db.reading():
                trace = _read(db, path, beside)
            _check_times(trace)
            yield trace
        finally:
            db.close()


def check_export(db: Database, path: Path) -> None:
    """Raises InputError for a database that nsys did not export."""
    if not db.has("StringIds", "id", "value") or not db.tables & {"META_DATA_EXPORT", RUNTIME, "PROCESSES"}:
        raise InputError(
            "not-a-trace",
            f"{path} is an SQLite database, but not an Nsight Systems export.",
            "Give the .sqlite that nsys-sync export writes.",
        )


def _check_columns(db: Database, path: Path) -> None:
    """Raises InputError where a table lacks a column without which its rows would silently count for something else."""
    for table, columns in _NEEDED.items():
        lacking = [column for column in columns if db.table(table) and not db.has(table, column)]
        if lacking:
            raise InputError(
                "missing-column",
                f"{path} has no column {lacking[0]} in {table}, and the numbers rest on it.",
                "Export the report again: nsys-sync export REPORT.nsys-rep",
            )


def _check_times(trace: Trace) -> None:
    """Raises InputError for times so far apart that their sums over threads or devices do not fit into 64 bits."""
    spans = [table for table in (trace.calls, trace.ops) if len(table)]
    apart = max((int(t.end.max()) for t in spans), default=0) - min((int(t.start.min()) for t in spans), default=0)
    if apart < _LONG:
        return
    lines = len(distinct(trace.calls.tid)) + len(distinct(trace.ops.device))
    if apart * lines >= 1 << 62:
        raise InputError(
            "damaged-trace",
            f"{trace.path} is damaged: it has events {apart // _DAY:,} days apart.",
            "Copy it again, or export the report again: nsys-sync export REPORT.nsys-rep",
        )


def _read(db: Database, path: Path, beside: Executor) -> Trace:
    """Read everything; what takes longest is read while others are, for another core is usually free."""
    operations = beside.submit(_op_columns, db)
    digest = beside.submit(files.sha256, path)
    warnings: list[tuple[str, str]] = []
    meta = read_meta(db, warnings)
    names = _api_names(db)
    marks, python_frames = nvtx.read_marks(db)
    processes = {int(str(k)): str(v) for k, v in db.listed("PROCESSES", "globalPid", "name")}
    return Trace(
        path=path,
        _digest=digest,
        meta=meta,
        calls=_calls(db, names),
        ops=_ops(db, *operations.result()),
        syncs=_syncs(db),
        events=_events(db),
        brackets=_brackets(db, names),
        at_call=marks[True],
        samples=marks[False],
        ranges=nvtx.read_ranges(db),
        gil=nvtx.read_gil(db),
        devices={int(str(k)): str(v) for k, v in db.listed("TARGET_INFO_GPU", "id", "name")},
        processes=processes,
        threads=_threads(db),
        capture=read_capture(db, warnings),
        python_frames=python_frames,
        missing=frozenset(name for name in _OPTIONAL if db.table(name) is None),
        warnings=warnings,
        _db=db,
    )


def _threads(db: Database) -> dict[int, str]:
    pairs = sorted((int(str(t)), int(str(n))) for t, n in db.listed("ThreadNames", "globalTid", "nameId"))
    texts = db.strings(sorted({name for _, name in pairs}))
    return {tid: texts[name] for tid, name in pairs if name in texts}


# --- calls ---------------------------------------------------------------------------------------------------------


def _api_names(db: Database) -> dict[int, str]:
    """Bare API names by string id (every string that begins like a CUDA API)."""
    table = db.table("StringIds")
    rows = db.rows(f"SELECT id, value FROM {table} WHERE value GLOB 'cu[A-Zd]*' AND length(value) < 200")
    return {int(str(key)): bare_name(str(value)) for key, value in rows}


def _coded(ids: Column, values: dict[int, str]) -> tuple[Column, tuple[str, ...]]:
    """Replace string ids by indices into the alphabetical tuple of their values."""
    used = distinct(ids)
    texts = [values.get(int(i), f"string {int(i)}") for i in used]
    names = tuple(sorted(set(texts)))
    index = {name: code for code, name in enumerate(names)}
    codes = np.array([index[text] for text in texts], dtype=np.int64)
    return codes[positions(used, ids)], names


def _calls(db: Database, names: dict[int, str]) -> Calls:
    where = "eventClass IN (0, 1)" if db.has(RUNTIME, "eventClass") else ""
    start, end, tid, correlation, name_id = _sane(
        db.columns(RUNTIME, ("start", "end", "globalTid", "correlationId", "nameId"), where)
    )
    known = names | {int(i): v for i, v in db.strings([i for i in distinct(name_id) if int(i) not in names]).items()}
    name, texts = _coded(name_id, known)
    by = order(start, -end, tid, correlation, name)
    return Calls(start[by], end[by], tid[by], correlation[by], name[by], texts)


def _brackets(db: Database, names: dict[int, str]) -> Brackets:
    empty = np.empty(0, dtype=np.int64)
    wanted = {i: n for i, n in names.items() if api_kind(n) not in ("other", "graph_launch", "alloc")}
    if not db.has(RUNTIME, "eventClass", "nameId") or not wanted:
        return Brackets(empty, empty, empty, empty, empty, ())
    listed = ",".join(str(i) for i in sorted(wanted))
    start, tid, correlation, name_id, chain = db.columns(
        RUNTIME,
        ("start", "globalTid", "correlationId", "nameId", "callchainId"),
        f"eventClass NOT IN (0, 1) AND nameId IN ({listed})",
    )
    chain = np.where(chain >= 0, chain + _first_chain(db), -1)
    name, texts = _coded(name_id, wanted)
    by = order(tid, start, correlation, name)
    return Brackets(start[by], tid[by], correlation[by], name[by], chain[by], texts)


def _first_chain(db: Database) -> int:
    """The id in CUDA_CALLCHAINS of what calls name chain 0: old versions of nsys count from 0 there and from 1 here."""
    if not db.has("CUDA_CALLCHAINS", "id") or not db.has(RUNTIME, "callchainId"):
        return 0
    chains, calls = db.table("CUDA_CALLCHAINS"), db.table(RUNTIME)
    named = db.rows(f"SELECT 1 FROM {calls} WHERE callchainId = 0 LIMIT 1")
    return int(bool(named) and db.rows(f"SELECT min(id) FROM {chains} WHERE id >= 0") == [(1,)])


def _sane(columns: list[Column]) -> list[Column]:
    """The rows (start and end come first) that can be: see ``SANE``, which takes SQLite three times as long."""
    start, end = columns[:2]
    kept = (end >= start) & (start > -LATEST) & (end < LATEST) & (start != -1) & ((start != 0) | (end != 0))
    return columns if kept.all() else [column[kept] for column in columns]


# --- GPU work ------------------------------------------------------------------------------------------------------


def _op_columns(db: Database) -> tuple[list[list[Column]], list[Column]]:
    """The columns of each kind of operation, in the order of ``Ops``, and bytes, source and target of the copies."""
    parts: list[list[Column]] = []
    for table, kind in _OP_TABLES.items():
        columns = _sane(
            db.columns(
                table,
                ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId", "shortName"),
            )
        )
        parts.append([*columns, np.full(len(columns[0]), kind, dtype=np.int64)])
    copies = _sane(db.columns("CUPTI_ACTIVITY_KIND_MEMCPY", ("start", "end", "bytes", "srcKind", "dstKind")))
    return parts, copies[2:]


def _ops(db: Database, parts: list[list[Column]], of_copies: list[Column]) -> Ops:
    bytes_, src, dst = of_copies
    copies_before = len(parts[0][0])
    start, end, pid, device, context, stream, correlation, name, kind_ = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    parts.clear()
    device = _physical(db, pid, device)
    by = order(start, end, pid, device, context, stream, correlation, kind_)
    position = np.empty(len(by), dtype=np.int64)
    position[by] = np.arange(len(by))
    op = position[copies_before : copies_before + len(bytes_)]
    copy_order = np.argsort(op)
    copies = Copies(op[copy_order], bytes_[copy_order], src[copy_order], dst[copy_order])
    return Ops(
        start[by], end[by], pid[by], device[by], context[by], stream[by], correlation[by], kind_[by], name[by], copies
    )


def _physical(db: Database, pid: Column, device: Column) -> Column:
    """Device ids that mean the same GPU in every process: CUDA ordinals depend on CUDA_VISIBLE_DEVICES."""
    mapping = {
        (int(str(p)), int(str(c))): int(str(g))
        for g, c, p in db.listed("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid")
    }
    physical = np.where((device >= 0) & (device <= _LAST_DEVICE), device, -1)
    if not mapping or all(cuda == gpu for (_, cuda), gpu in mapping.items()):
        return physical
    for global_pid in distinct(pid):
        mine = pid == global_pid
        for cuda in distinct(device[mine]):
            gpu = mapping.get((os_pid(int(global_pid)), int(cuda)), -1)
            if 0 <= gpu <= _LAST_DEVICE:
                physical[mine & (device == cuda)] = gpu
    return physical


def _linked(sync_id: Column) -> Column:
    """The id that ties a wait to its record: eventSyncId where the export has it, else none."""
    return np.where(np.isin(sync_id, _NO_EVENT), -1, sync_id)


def _syncs(db: Database) -> SyncRecords:
    pid, correlation, device, context, stream, sync_id = db.columns(
        _SYNC, ("globalPid", "correlationId", "deviceId", "contextId", "streamId", "eventSyncId")
    )
    device = _physical(db, pid, device)
    event = _linked(sync_id)
    by = order(pid, correlation, device, context, stream, event)
    return SyncRecords(pid[by], correlation[by], device[by], context[by], stream[by], event[by])


def _events(db: Database) -> EventRecords:
    pid, correlation, device, context, stream, sync_id = db.columns(
        _EVENT, ("globalPid", "correlationId", "deviceId", "contextId", "streamId", "eventSyncId")
    )
    device = _physical(db, pid, device)
    event = _linked(sync_id)
    by = order(pid, event, correlation)
    return EventRecords(pid[by], correlation[by], device[by], context[by], stream[by], event[by])


# --- native call chains -------------------------------------------------------------------------------


def _native_chains(db: Database, chains: Column) -> dict[int, tuple[NativeFrame, ...]]:
    if not db.has("CUDA_CALLCHAINS", "id", "symbol", "module", "stackDepth") or not len(chains):
        return {}
    wanted = distinct(chains[chains >= 0])
    if len(wanted) <= 5000:
        where = f"id IN ({','.join(str(int(i)) for i in wanted)})" if len(wanted) else "0"
    else:
        where = f"id BETWEEN {int(wanted[0])} AND {int(wanted[-1])}"
    chain, depth, symbol, module = db.columns("CUDA_CALLCHAINS", ("id", "stackDepth", "symbol", "module"), where)
    keep = np.isin(chain, wanted)
    by = order(chain[keep], depth[keep])
    chain, symbol, module = (column[keep][by] for column in (chain, symbol, module))
    texts = db.strings(distinct(np.concatenate((symbol, module))))
    bounds = np.flatnonzero(np.diff(chain, prepend=-2, append=-2))
    return {
        int(chain[first]): tuple(
            NativeFrame(texts.get(int(s), "?"), texts.get(int(m), "").rpartition("/")[2])
            for s, m in zip(symbol[first:stop], module[first:stop], strict=True)
        )
        for first, stop in pairwise(bounds)
    }
