"""The trace builder writes what real exports hold."""

from __future__ import annotations

import json
import sqlite3
import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from nsys_sync.trace.capture_info import TABLE
from tests.builder import KERNEL, NONE_32, SYNC_TYPES, TraceBuilder, bare, load_schema
from tests.builder_schema import extract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Sample = Callable[[str], Path]

VERSIONS = sorted(SYNC_TYPES)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("version", ["3.7.2", "3.20.3"])
def test_tables_are_those_of_the_real_exports(sample: Sample, sample_names: list[str], version: str) -> None:
    real = extract.collect(sample(name) for name in sample_names)
    assert dict(load_schema(version).create) == real[version][0]
    assert {name: list(rows) for name, rows in load_schema(version).enums.items() if rows} == real[version][1]


def test_a_written_table_is_the_export_s_own(tmp_path: Path, sample: Sample) -> None:
    path = everything("3.20.3").write(tmp_path / "t.sqlite")
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    real = dict(rows(sample("graph-fix0"), query)) | dict(rows(sample("ddp-fix0"), query))
    written = dict(rows(path, query))
    del written[TABLE]
    assert {name: real.get(name) for name in written} == written


def everything(schema: str) -> TraceBuilder:
    t = TraceBuilder(schema, payload=None)
    p = t.process(pid=100)
    th = p.thread(1)
    event = th.record_event(0, 2)
    th.wait_event(3, 4, event, stream=8)
    th.launch(5, 9, (10, 30))
    th.copy(10, 40, (31, 39))
    th.sync("cudaStreamSynchronize_v3020_ptsz", 41, 60, frames=[("<module>", "/proj/train.py", 7)], native=["f", "g"])
    th.sync("cudaEventSynchronize_v3020", 61, 62, event=event)
    th.sync("cudaDeviceSynchronize_v3020", 63, 64)
    t.memset(p, 65, 66)
    th.range("step 0", 0, 66)
    th.mark("here", 5)
    th.sample(20, [("f", "/proj/train.py", 3)])
    th.osrt("poll", 0, 70)
    th.payload(5, "NCCL", '{"Message size [bytes]":4}')
    t.environment("TOKEN", "value")
    t.output(p, "stdout.log", "text")
    t.capture_info('{"format": 1}')
    if schema != "3.7.2":
        t.diagnostic("hello", process=p)
        th.graph_launch(70, 75, run=(76, 80))
        th.graph_launch(81, 85, nodes=[(86, 87), (88, 89)])
    return t


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_of_row_can_be_written(tmp_path: Path, version: str) -> None:
    path = everything(version).write(tmp_path / "t.sqlite", v2=[KERNEL], drop=["OSRT_API"], shuffle=3)
    names = {str(name) for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert f"{KERNEL}_V2" in names
    assert not {KERNEL, "OSRT_API"} & names
    assert rows(path, "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'") == [(version,)]


def test_a_backtraced_call_has_three_rows(tmp_path: Path) -> None:
    path = everything("3.20.3").write(tmp_path / "t.sqlite")
    query = """
        SELECT r.eventClass, s.value, r.correlationId, r.globalTid, r.start
        FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId
        WHERE s.value LIKE 'cudaStreamSync%' ORDER BY r.eventClass
    """
    call, backtrace = rows(path, query)
    assert call[:2] == (0, "cudaStreamSynchronize_v3020_ptsz")
    assert backtrace[:2] == (67, "cudaStreamSynchronize")
    assert call[2:4] == backtrace[2:4]
    query = "SELECT globalTid, start, jsonText, binaryData FROM NVTX_EVENTS WHERE eventType = 34 AND domainId = 1"
    tid, start, text, blob = rows(path, query)[0]
    assert (tid, start) == backtrace[3:]
    assert isinstance(text, str)
    assert isinstance(blob, bytes)
    frame = json.loads(text)["Python Backtrace on CUDA"]["Frames"][0]
    names = dict(rows(path, "SELECT id, value FROM StringIds"))
    assert (names[frame["Function"]], names[frame["File"]], frame["Line"]) == ("&lt;module&gt;", "/proj/train.py", 7)
    function, file, line, garbage = struct.unpack_from("<QQII", blob, 48)
    assert (function, file, line) == (frame["Function"], frame["File"], 7)
    assert garbage != 0


def test_sync_types_are_as_odd_as_the_exporters_write_them(tmp_path: Path) -> None:
    query = "SELECT syncType, streamId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION ORDER BY start"
    seen = {v: rows(everything(v).write(tmp_path / f"{v}.sqlite"), query) for v in VERSIONS}
    assert seen == {
        "3.7.2": [(2, 8), (3, 7), (2, NONE_32)],
        "3.20.3": [(2, 8), (2, 7), (1, NONE_32)],
        "3.25.0": [(2, 8), (3, 7), (1, NONE_32)],
    }


def test_what_a_schema_lacks_is_refused() -> None:
    old = TraceBuilder("3.7.2")
    with pytest.raises(ValueError, match="no table CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        old.graph(old.process(), 0, 1)
    with pytest.raises(ValueError, match="no binaryData"):
        old.row("NVTX_EVENTS", start=0, binaryData=b"")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize"),
        ("cudaStreamSynchronize_ptsz", "cudaStreamSynchronize"),
        ("cudaMemcpy_v3020_ptds", "cudaMemcpy"),
        ("cuCtxGetDevice_v2", "cuCtxGetDevice"),
        ("cudaGraphLaunch", "cudaGraphLaunch"),
    ],
)
def test_bare_names(name: str, expected: str) -> None:
    assert bare(name) == expected
