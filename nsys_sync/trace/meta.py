"""What an export and its launcher say about themselves: versions, driver, date, options of the capture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from nsys_sync.trace import capture_info
from nsys_sync.trace.database import Database

#: The newest export schema that was read from real nsys exports.
TESTED_SCHEMA = (3, 20)

_BACKTRACES = {
    "SYNCHRONOIZATION": "sync",
    "MEMORY": "memory",
    "KERNEL": "kernel",
    "OTHER": "other",
}
_OPTIONS = "PROCESS_0:CUDA_BACKTRACE_OPTIONS:"
_PYTHON = f"{_OPTIONS}COLLECT_PYTHON_BACKTRACES"
_GRAPHS = "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE"
_SAMPLING = "PYTHON_BACKTRACE_SAMPLING_OPTIONS:COLLECT_SAMPLES"


@dataclass(frozen=True)
class Meta:
    """Where and how the trace was made; None = not recorded. Only harmless capture options are read."""

    exporter_version: str | None
    schema_version: str | None
    driver: str | None
    cuda: str | None
    captured_utc: str | None
    flags: tuple[str, ...]
    backtrace: str | None
    sampling: bool | None
    graphs: Literal["graph", "node"] | None


def read_meta(db: Database, warnings: list[tuple[str, str]]) -> Meta:
    """What the export says of itself; ``warnings`` gets what that makes doubtful."""
    export = _pairs(db, "META_DATA_EXPORT", ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"))
    system = _pairs(db, "TARGET_INFO_SYSTEM_ENV", ("NvDriverVersion", "CudaDriverVersion"))
    keys = [f"{_OPTIONS}COLLECT_{name}_BACKTRACES" for name in _BACKTRACES]
    keys += [f"{_OPTIONS}{name}_BACKTRACES_THRESHOLD_NS" for name in _BACKTRACES]
    options = _pairs(db, "META_DATA_CAPTURE", (*keys, _PYTHON, _GRAPHS, _SAMPLING))
    schema = export.get("EXPORT_SCHEMA_VERSION")
    if schema is None or not re.match(r"\d+\.\d+", schema):
        warnings.append(("unknown-schema", "The export names no schema version; it is read by the tables it has."))
    elif tuple(int(part) for part in schema.split(".")[:2]) > TESTED_SCHEMA:
        tested = ".".join(str(part) for part in TESTED_SCHEMA)
        text = f"Export schema {schema} is newer than the newest that was tested on real exports ({tested})."
        warnings.append(("newer-schema", text))
    traced = ",".join(
        f"{short}:{options.get(f'{_OPTIONS}{name}_BACKTRACES_THRESHOLD_NS', '?')}"
        for name, short in _BACKTRACES.items()
        if options.get(f"{_OPTIONS}COLLECT_{name}_BACKTRACES") == "true"
    )
    sampling = options.get(_SAMPLING) == "true"
    flags = {
        "--python-backtrace=cuda": options.get(_PYTHON) == "true",
        f"--cudabacktrace={traced}": bool(traced),
        "--python-sampling=true": sampling,
    }
    mode = options.get(_GRAPHS, "").lower()
    return Meta(
        exporter_version=export.get("EXPORT_PRODUCT_VERSION"),
        schema_version=schema,
        driver=system.get("NvDriverVersion"),
        cuda=_cuda_version(system.get("CudaDriverVersion")),
        captured_utc=_captured(db),
        flags=tuple(flag for flag, given in flags.items() if given),
        backtrace=traced or None,
        sampling=sampling if options else None,
        graphs="node" if mode == "node" else "graph" if mode == "graph" else None,
    )


def read_capture(db: Database, warnings: list[tuple[str, str]]) -> capture_info.CaptureInfo | None:
    """The launcher's note, None where the trace was not made by it."""
    text = _pairs(db, capture_info.TABLE, ("capture",)).get("capture")
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=capture_info.CaptureInfo)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        warnings.append(("capture-note", "The launcher's note on the capture is damaged and was left out."))
        return None


def _cuda_version(number: str | None) -> str | None:
    if number is None or not number.isdigit():
        return number
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def _captured(db: Database) -> str | None:
    for (text,) in db.listed("TARGET_INFO_SESSION_START_TIME", "utcTime"):
        return str(text)
    return None


def _pairs(db: Database, table: str, keys: Sequence[str]) -> dict[str, str]:
    """Values of a name/value table for these names only: the environment is in the same table."""
    if not db.has(table, "name", "value"):
        return {}
    marks = ",".join("?" * len(keys))
    rows = db.rows(f"SELECT name, value FROM {db.table(table)} WHERE name IN ({marks}) AND value IS NOT NULL", keys)
    return {str(name): str(value) for name, value in sorted(rows, key=str)}
