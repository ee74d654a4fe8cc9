"""Findings as tables: CSV with a row a site, SQLite with everything."""

from __future__ import annotations

import csv
import io
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nsys_sync.analysis import findings as f
from nsys_sync.paths import write_new, writing
from nsys_sync.report import words
from nsys_sync.report.words import harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nsys_sync.analysis.findings import Report, Site, WhatIf

#: Columns of the CSV; times in ns, sizes in bytes, empty = not measured.
COLUMNS = (
    "id", "file", "line", "function", "source", "rule", "title", "class", "class_basis", "stack_origin",
    "leaf_file", "leaf_line", "leaf_function", "apis", "calls", "events", "calls_per_step", "wait_ns", "wait_median_ns",
    "wait_max_ns", "recoverable_ns", "idle_sync_wait_ns", "idle_sync_refill_ns", "idle_sync_overhead_ns",
    "copy_in_call_ns", "bytes", "threads", "processes", "step_ns_now", "step_ns_low", "step_ns_high", "confidence",
)  # fmt: skip


def csv_text(report: Report) -> str:
    """The sites as CSV, longest wait first.

    Text is on one line, and text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    page = io.StringIO()
    table = csv.writer(page, lineterminator="\n")
    table.writerow(COLUMNS)
    for site in words.by_wait(report.sites):
        row = _site_row(site)
        table.writerow([_cell(row[name]) for name in COLUMNS])
    return page.getvalue()


def write_csv(report: Report, path: str | Path, *, force: bool = False) -> Path:
    """Write the sites as CSV; returns the absolute path. Raises OutputError."""
    return write_new(path, csv_text(report).encode("utf-8"), force=force)


def _site_row(site: Site) -> dict[str, Any]:
    leaf, idle, guess = site.leaf, site.idle_ns, site.what_if
    return {
        "id": site.id,
        "file": site.file,
        "line": site.line,
        "function": site.function,
        "source": words.source_line(site),
        "rule": site.rule,
        "title": site.title,
        "class": site.class_,
        "class_basis": site.class_basis,
        "stack_origin": site.stack_origin,
        "leaf_file": leaf and leaf.file,
        "leaf_line": leaf and leaf.line,
        "leaf_function": leaf and leaf.function,
        "apis": " ".join(f"{api}={calls}" for api, calls in site.apis.items()),
        "calls": site.calls,
        "events": site.events,
        "calls_per_step": site.calls_per_step,
        "wait_ns": site.wait_ns.total,
        "wait_median_ns": site.wait_ns.median,
        "wait_max_ns": site.wait_ns.max,
        "recoverable_ns": site.recoverable_ns,
        "idle_sync_wait_ns": idle and idle.sync_wait,
        "idle_sync_refill_ns": idle and idle.sync_refill,
        "idle_sync_overhead_ns": idle and idle.sync_overhead,
        "copy_in_call_ns": site.copy_in_call_ns,
        "bytes": site.bytes,
        "threads": site.threads,
        "processes": len(site.by_process),
        "step_ns_now": guess and guess.step_ns_now,
        "step_ns_low": guess and guess.step_ns_low,
        "step_ns_high": guess and guess.step_ns_high,
        "confidence": guess and guess.confidence,
    }


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return "" if value is None else value
    text = harmless(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def save_sqlite(report: Report, path: str | Path, *, force: bool = False) -> Path:
    """Write all findings as tables of a SQLite database; returns the absolute path. Raises OutputError.

    Tables: report (one row), devices, processes, sites, frames, apis, site_processes, site_devices, source_lines,
    steps, gaps, what_ifs, notes. ``site`` is the row of sites; names are those of the JSON, times in ns; NULL = not
    measured.
    """
    from sqlite_utils import Database

    with writing(path, force=force) as temporary:
        database = Database(temporary)
        try:
            for name, (columns, rows) in _tables(report).items():
                keys = [("site", "sites", "site")] if "site" in columns and name != "sites" else []
                table = database.table(name)
                table.create(columns, pk="site" if name == "sites" else None, foreign_keys=keys)
                table.insert_all([{name: _storable(row.get(name)) for name in columns} for row in rows])
        finally:
            database.close()
    return Path(path).absolute()


_Table = tuple[dict[str, type], list[dict[str, Any]]]


def _tables(report: Report) -> dict[str, _Table]:
    trace = report.trace
    index = {site.id: i for i, site in enumerate(report.sites)}
    numbered = list(enumerate(report.sites))
    return {
        "report": (_REPORT, [_report_row(report)]),
        "devices": (_DEVICES, [_device_row(report, place) for place in range(len(report.devices))]),
        "processes": (_columns(f.ProcessName), [_plain(p) for p in trace.processes]),
        "sites": (_SITES, [{"site": i, **_site_row(s)} for i, s in numbered]),
        "frames": (
            _SITE | {"depth": int} | _columns(f.Frame),
            [{"site": i, "depth": d, **_plain(frame)} for i, s in numbered for d, frame in enumerate(s.stack)],
        ),
        "apis": (
            _SITE | {"api": str, "calls": int},
            [{"site": i, "api": api, "calls": n} for i, s in numbered for api, n in s.apis.items()],
        ),
        "site_processes": (
            _SITE | _columns(f.SiteProcess),
            [{"site": i, **_plain(p)} for i, s in numbered for p in s.by_process],
        ),
        "site_devices": (
            _SITE | _columns(f.SiteDevice),
            [{"site": i, **_plain(d)} for i, s in numbered for d in s.by_device],
        ),
        "source_lines": (
            _SITE | {"line": int, "text": str},
            [
                {"site": i, "line": line, "text": text}
                for i, s in numbered
                if s.source
                for line, text in sorted(s.source.lines.items())
            ],
        ),
        "steps": (_columns(f.Steps), [_plain(s) for s in report.steps]),
        "gaps": (
            _columns(f.Gap) | _SITE,
            [{**_plain(g), "site": index.get(g.site) if g.site else None} for g in report.gaps.items],
        ),
        "what_ifs": ({"scope": str} | _SITE | _columns(f.WhatIf), list(_what_if_rows(report))),
        "notes": (_columns(f.Note), [_plain(n) for n in trace.warnings]),
    }


def _report_row(report: Report) -> dict[str, Any]:
    trace, totals = report.trace, _plain(report.totals)
    return {
        "format": report.format,
        "tool_version": report.tool.version,
        "headline": report.headline.slug,
        "headline_text": report.headline.text,
        **{name: getattr(trace, name) for name in _TRACE},
        **totals,
        "gaps": report.gaps.total,
        "gaps_listed": report.gaps.shown,
    }


def _device_row(report: Report, place: int) -> dict[str, Any]:
    device = report.devices[place]
    causes, copies = device.idle_by_cause_ns, device.copy_only_ns
    names = {d.id: d.name for d in report.trace.devices}
    kept = ("device", "window_ns", "busy_ns", "compute_busy_ns", "idle_ns", "idle_status", "idle_reason", "gaps")
    return {
        **{name: getattr(device, name) for name in kept},
        "name": names.get(device.device),
        "copy_only_blocking_ns": copies and copies.blocking,
        "copy_only_async_ns": copies and copies.async_,
        **{f"idle_{cause}_ns": causes and getattr(causes, cause) for cause in words.CAUSES},
    }


def _what_if_rows(report: Report) -> Iterable[dict[str, Any]]:
    scopes: list[tuple[str, int | None, WhatIf | None]] = [("all", None, report.what_if.all)]
    scopes += [(f"class {name}", None, guess) for name, guess in report.what_if.by_class.items()]
    scopes += [("site", i, site.what_if) for i, site in enumerate(report.sites)]
    for scope, site, guess in scopes:
        if guess is not None:
            yield {"scope": scope, "site": site, **_plain(guess), "reasons": "\n".join(guess.reasons)}


def _plain(value: msgspec.Struct, prefix: str = "") -> dict[str, Any]:
    """A structure's fields by their names in the JSON; those of a structure inside it follow its name."""
    row: dict[str, Any] = {}
    for field in msgspec.structs.fields(value):
        inner = getattr(value, field.name)
        name = prefix + field.encode_name
        row |= _plain(inner, f"{name}_") if isinstance(inner, msgspec.Struct) else {name: inner}
    return row


def _storable(value: Any) -> Any:
    """SQLite keeps text as UTF-8, without lone surrogates, and numbers in 64 bits; a saved report may hold others."""
    if isinstance(value, int) and value.bit_length() > 63:
        return str(value)
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def _columns(kind: type[msgspec.Struct], prefix: str = "") -> dict[str, type]:
    """The columns of ``_plain``'s rows and SQLite's types; what is not a number is text."""
    hints = typing.get_type_hints(kind)
    found: dict[str, type] = {}
    for field in msgspec.structs.fields(kind):
        kinds = [hints[field.name], *typing.get_args(hints[field.name])]
        name = prefix + field.encode_name
        inner = next((k for k in kinds if isinstance(k, type) and issubclass(k, msgspec.Struct)), None)
        number = int if int in kinds else float if float in kinds else str
        found |= {name: number} if inner is None else _columns(inner, f"{name}_")
    return found


_TRACE = (
    "file", "sha256", "nsys_version", "schema_version", "driver", "cuda", "captured_utc", "python_frames",
)  # fmt: skip
_TEXT = {
    "id", "file", "function", "source", "rule", "title", "class", "class_basis", "stack_origin", "leaf_file",
    "leaf_function", "apis", "confidence",
}  # fmt: skip

_SITE: dict[str, type] = {"site": int}
_REPORT: dict[str, type] = {
    "format": int,
    "tool_version": str,
    "headline": str,
    "headline_text": str,
    **dict.fromkeys(_TRACE, str),
    **_columns(f.Totals),
    "gaps": int,
    "gaps_listed": int,
}
_DEVICES: dict[str, type] = {
    "device": int,
    "name": str,
    **dict.fromkeys(("window_ns", "busy_ns", "compute_busy_ns", "copy_only_blocking_ns", "copy_only_async_ns"), int),
    "idle_ns": int,
    **{f"idle_{cause}_ns": int for cause in words.CAUSES},
    "idle_status": str,
    "idle_reason": str,
    "gaps": int,
}
_SITES = _SITE | {n: str if n in _TEXT else float if n == "calls_per_step" else int for n in COLUMNS}
