"""NVTX: Python stacks, ranges, marks, and the spans of Python's global lock."""

from __future__ import annotations

import html
from collections.abc import Collection
from typing import Literal

import numpy as np
import numpy.typing as npt

from nsys_sync.trace import capture_info, stacks
from nsys_sync.trace.columns import order
from nsys_sync.trace.database import SANE, Database
from nsys_sync.trace.tables import Column, GilSpans, Marks, Ranges, StackFrame, process_of

PythonFrames = Literal["recorded", "not_exported", "not_recorded"]

GIL_DOMAIN = "GIL Trace"
HOLDING, WAITING = "Holding GIL", "Waiting for GIL"

_MARK, _PUSH_POP, _START_END, _DOMAIN = 34, 59, 60, 75


def _text(db: Database) -> str:
    """SQL for the text of an NVTX row: explicit, or registered in StringIds."""
    strings = db.table("StringIds")
    by_id = f"(SELECT value FROM {strings} s WHERE s.id = textId)" if db.has("NVTX_EVENTS", "textId") else "NULL"
    return f"coalesce(text, {by_id})" if db.has("NVTX_EVENTS", "text") else by_id


def _domains(db: Database, names: Collection[str]) -> dict[str, list[tuple[int, int]]]:
    """(Process, domain id) of the domains with these names, by name."""
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    rows = db.rows(
        f"SELECT globalTid, domainId, {_text(db)} FROM {db.table('NVTX_EVENTS')} WHERE eventType = {_DOMAIN} "
        "AND globalTid IS NOT NULL AND domainId IS NOT NULL"
    )
    for tid, domain, text in rows:
        if text in found:
            owner = int(process_of(np.array([tid], dtype=np.int64))[0])
            found[str(text)].append((owner, int(str(domain))))
    return found


def _in_domains(pairs: list[tuple[int, int]], tid: Column, domain: Column) -> npt.NDArray[np.bool_]:
    """Which rows belong to one of the (process, domain id) pairs."""
    process = process_of(tid)
    keep = np.zeros(len(tid), dtype=bool)
    for owner, number in pairs:
        keep |= (process == owner) & (domain == number)
    return keep


def read_marks(db: Database) -> tuple[dict[bool, Marks], PythonFrames]:
    """Marks with a Python stack, at calls (True) and periodic (False), and whether their stacks are in the file."""
    empty = np.empty(0, dtype=np.int64)
    marks = {True: Marks(empty, empty, empty), False: Marks(empty, empty, empty)}
    if not db.has("NVTX_EVENTS", "eventType", "domainId", "globalTid"):
        return marks, "not_recorded"
    named = _domains(db, stacks.PYTHON_DOMAINS)
    domains: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for name, at_call in stacks.PYTHON_DOMAINS.items():
        domains[at_call] += named[name]
    payloads = [c for c in ("jsonText", "jsonTextId", "binaryData") if db.has("NVTX_EVENTS", c)]
    has_payload = " + ".join(f'("{c}" IS NOT NULL)' for c in payloads) or "0"
    found = filled = 0
    for at_call, pairs in domains.items():
        if not pairs:
            continue
        listed = ",".join(str(domain) for domain in sorted({domain for _, domain in pairs}))
        start, tid, domain, row, payload = db.columns(
            "NVTX_EVENTS",
            ("start", "globalTid", "domainId", "rowid + 0", f"{has_payload} + 0"),
            f"eventType = {_MARK} AND domainId IN ({listed}) AND globalTid IS NOT NULL",
        )
        keep = _in_domains(pairs, tid, domain)
        found += int(keep.sum())
        filled += int((payload[keep] > 0).sum())
        start, tid, row = start[keep], tid[keep], row[keep]
        by = order(tid, start)
        marks[at_call] = Marks(start[by], tid[by], row[by])
    return marks, "recorded" if filled else "not_exported" if found else "not_recorded"


def payload_layouts(db: Database) -> dict[int, stacks.Layout]:
    """Where the fields of a Python stack lie in binary payloads, by schema id. Raises InputError."""
    with db.reading():
        return _layouts(db)


def _layouts(db: Database) -> dict[int, stacks.Layout]:
    entries: dict[int, dict[str, tuple[int, int]]] = {}
    offsets = db.listed("NVTX_PAYLOAD_SCHEMA_ENTRIES", "schemaId", "name", "type", "offset")
    first = db.listed("NVTX_PAYLOAD_SCHEMA_ENTRIES", "schemaId", "name", "type")
    for schema, name, kind, offset in [*((*row, 0) for row in first), *offsets]:
        entries.setdefault(int(str(schema)), {})[str(name)] = (int(str(offset)), int(str(kind)))
    sizes = {int(str(i)): int(str(size)) for i, size in db.listed("NVTX_PAYLOAD_SCHEMAS", "schemaId", "payloadSize")}
    layouts: dict[int, stacks.Layout] = {}
    for schema, fields in entries.items():
        frame = entries.get(fields["Frames"][1]) if "Frames" in fields else None
        if frame is None or not {"Function", "File", "Line"} <= frame.keys() or "Frames count" not in fields:
            continue
        layouts[schema] = stacks.Layout(
            frame_count=fields["Frames count"][0],
            frames=fields["Frames"][0],
            size=sizes.get(fields["Frames"][1], stacks.Layout().size),
            function=frame["Function"][0],
            file=frame["File"][0],
            line=frame["Line"][0],
        )
    return layouts


def read_stacks(
    db: Database, rows: Column, cache: dict[object, tuple[StackFrame, ...]]
) -> list[tuple[StackFrame, ...]]:
    """The Python stack of each mark (by its row id), innermost frame first; empty where it has no payload."""
    layouts = payload_layouts(db)
    table = db.table("NVTX_EVENTS")
    terms = ["jsonText" if db.has("NVTX_EVENTS", "jsonText") else "NULL"]
    if db.has("NVTX_EVENTS", "jsonTextId"):
        terms[0] = f"coalesce({terms[0]}, (SELECT value FROM {db.table('StringIds')} s WHERE s.id = jsonTextId))"
    terms.append("binaryData" if db.has("NVTX_EVENTS", "binaryData") else "NULL")
    raw: dict[int, object] = {}
    decoded: dict[object, list[stacks.RawFrame]] = {}
    for at in range(0, len(rows), 900):
        part = [int(row) for row in rows[at : at + 900]]
        marks = ",".join("?" * len(part))
        for row, text, data in db.rows(f"SELECT rowid, {', '.join(terms)} FROM {table} WHERE rowid IN ({marks})", part):
            key = text if text is not None else data
            raw[int(str(row))] = key
            if key is None or key in cache or key in decoded:
                continue
            frames = stacks.from_json(text) if isinstance(text, str) else None
            if frames is None and isinstance(data, bytes):
                frames = stacks.from_binary(data, layouts)
            decoded[key] = frames or []
    ids = sorted({i for frames in decoded.values() for function, file, _ in frames for i in (function, file)})
    texts = {key: html.unescape(value) for key, value in db.strings([i for i in ids if i < 1 << 63]).items()}
    for key, frames in decoded.items():
        cache[key] = tuple(StackFrame(texts.get(fn, "?"), texts.get(file, "?"), line) for fn, file, line in frames)
    return [cache.get(raw.get(int(row)), ()) for row in rows]


def read_ranges(db: Database) -> Ranges:
    """Ranges of the default domain, and the launcher's own ranges and marks."""
    empty = np.empty(0, dtype=np.int64)
    if not db.has("NVTX_EVENTS", "eventType", "globalTid", "domainId"):
        return Ranges(empty, empty, empty, empty, empty, ())
    own = f"{_text(db)} GLOB '{capture_info.MARK_PREFIX}*'"
    rows = db.rows(
        f'SELECT start, coalesce("end", start), globalTid, eventType, {_text(db)} FROM {db.table("NVTX_EVENTS")} '
        f"WHERE globalTid IS NOT NULL AND ((eventType IN ({_PUSH_POP}, {_START_END}) AND {SANE} "
        f"AND (domainId = 0 OR domainId IS NULL OR {own})) OR (eventType = {_MARK} AND {own}))"
    )
    if not rows:
        return Ranges(empty, empty, empty, empty, empty, ())
    texts = [str(row[4]) if row[4] is not None else "" for row in rows]
    names = tuple(sorted(set(texts)))
    index = {name: code for code, name in enumerate(names)}
    start, end, tid, kind = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(4))
    name = np.array([index[text] for text in texts], dtype=np.int64)
    pushed = np.select([kind == _PUSH_POP, kind == _START_END], [1, 0], -1)
    by = order(start, -end, tid, name, pushed)
    return Ranges(start[by], end[by], tid[by], name[by], pushed[by], names)


def read_gil(db: Database) -> GilSpans | None:
    """When threads held or awaited Python's global lock; None where it was not traced."""
    if not db.has("NVTX_EVENTS", "eventType", "domainId", "globalTid"):
        return None
    pairs = _domains(db, (GIL_DOMAIN,))[GIL_DOMAIN]
    if not pairs:
        return None
    listed = ",".join(str(number) for number in sorted({number for _, number in pairs}))
    start, end, tid, domain, holding = db.columns(
        "NVTX_EVENTS",
        ("start", "end", "globalTid", "domainId", f"({_text(db)} = '{HOLDING}') + 0"),
        f"eventType = {_PUSH_POP} AND domainId IN ({listed}) AND globalTid IS NOT NULL AND {SANE} "
        f"AND {_text(db)} IN ('{HOLDING}', '{WAITING}')",
    )
    keep = _in_domains(pairs, tid, domain)
    start, end, tid, holding = start[keep], end[keep], tid[keep], holding[keep]
    by = order(tid, start, end, holding)
    return GilSpans(start[by], end[by], tid[by], holding[by])
