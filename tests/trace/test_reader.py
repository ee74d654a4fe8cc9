"""Reading: what an export lacks, names oddly or holds twice makes no difference where it should make none."""

from __future__ import annotations

import hashlib
import lzma
import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsys_sync
from nsys_sync.errors import InputError
from nsys_sync.scrub import scrub
from nsys_sync.trace.reader import Trace, open_trace
from nsys_sync.trace.tables import StackFrame
from tests.builder import (
    CUDA_EVENT,
    KERNEL,
    MEMCPY,
    MEMSET,
    RUNTIME,
    SYNC_TYPES,
    SYNCHRONIZATION,
    TraceBuilder,
    load_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Sample = Callable[[str], Path]

SYNC = "cudaStreamSynchronize_v3020"
FRAMES = [("item", "/proj/model.py", 10), ("<module>", "/proj/train.py", 20)]


def small(schema: str = "3.20.3", **options: Any) -> TraceBuilder:
    """Two processes that share correlation ids, every kind of operation, stacks, samples, steps."""
    t = TraceBuilder(schema, **options)
    for pid in (100, 200):
        th = t.process(pid=pid).thread(1, name="python3")
        event = th.record_event(0, 2)
        for step in range(3):
            at = 1_000 * step
            th.range(f"step {step}", at, at + 900)
            th.launch(at + 10, at + 15, (at + 20, at + 200))
            th.wait_event(at + 16, at + 17, event, stream=8)
            th.copy(at + 210, at + 300, (at + 220, at + 290), kind="device->pageable", size=1 << 20)
            th.sync(SYNC, at + 310, at + 400, frames=FRAMES, native=["at::_local_scalar_dense"])
            th.sync("cudaEventSynchronize_v3020", at + 410, at + 420, event=event)
            th.sync("cudaDeviceSynchronize_v3020", at + 430, at + 440)
            t.memset(th.process, at + 450, at + 460, corr=th.call("cudaMemsetAsync_v3020", at + 445, at + 447))
            th.sample(at + 250, FRAMES)
        th.payload(5, "NCCL", '{"Message size [bytes]":4}')
    return t


def snapshot(trace: Trace) -> dict[str, Any]:
    """All that a trace holds as plain values, with string ids, row numbers and chain ids replaced by what they mean."""
    seen: dict[str, Any] = {}
    for item in fields(trace):
        value = getattr(trace, item.name)
        if is_dataclass(value) and item.name != "_db":
            for column in fields(value):
                cell = getattr(value, column.name)
                seen[f"{item.name}.{column.name}"] = cell.tolist() if isinstance(cell, np.ndarray) else cell
    names = trace.strings(np.unique(trace.ops.name))
    seen["ops.name"] = [names.get(int(i)) for i in trace.ops.name]
    del seen["ops.copies"]
    seen["copies"] = [getattr(trace.ops.copies, column.name).tolist() for column in fields(trace.ops.copies)]
    chains = trace.native_chains(trace.brackets.chain)
    seen["brackets.chain"] = [chains.get(int(chain)) for chain in trace.brackets.chain]
    for marks in ("at_call", "samples"):
        seen[f"{marks}.row"] = trace.python_stacks(getattr(trace, marks).row)
    for plain in ("devices", "processes", "threads", "python_frames", "missing", "warnings"):
        seen[plain] = getattr(trace, plain)
    return seen


def read(path: Path) -> dict[str, Any]:
    with open_trace(path) as trace:
        return snapshot(trace)


# Names and versions


@pytest.mark.parametrize("schema", sorted(SYNC_TYPES))
def test_every_schema_gives_the_same_calls_and_operations(tmp_path: Path, schema: str) -> None:
    reference, seen = read(small().write(tmp_path / "a")), read(small(schema).write(tmp_path / "b"))
    for key in reference:
        if key.startswith(("calls.", "ops.", "copies", "brackets.", "ranges.", "syncs.")) and key != "syncs.event":
            assert seen[key] == reference[key], key


@pytest.mark.parametrize(
    ("version", "slug"),
    [
        ("3.7.2", None),
        ("3.20.3", None),
        ("3.24.14", "newer-schema"),
        ("3.25.0", "newer-schema"),
        ("4.0.0", "newer-schema"),
        ("", "unknown-schema"),
        ("three", "unknown-schema"),
    ],
)
def test_newer_schemas_are_read_with_a_warning(tmp_path: Path, version: str, slug: str | None) -> None:
    seen = read(small().write(tmp_path / "t", version=version))
    assert [warning for warning, _ in seen["warnings"]] == ([] if slug is None else [slug])
    assert len(seen["calls.start"]) == 2 * (1 + 3 * 7)


@pytest.mark.parametrize("suffix", ["", "_v3020", "_v3020_ptsz", "_ptsz", "_ptds", "_v2"])
@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cuStreamSynchronize", "cudaMemcpy"])
def test_suffixes_of_api_names_are_dropped(tmp_path: Path, name: str, suffix: str) -> None:
    t = TraceBuilder()
    t.process().thread().sync(name + suffix, 0, 9, frames=FRAMES)
    seen = read(t.write(tmp_path / "t"))
    assert seen["calls.names"] == (name,)
    assert len(seen["brackets.start"]) == 1


def test_tables_with_a_version_suffix_are_found(tmp_path: Path) -> None:
    plain = small().write(tmp_path / "a")
    names = [name for (name,) in sqlite_rows(plain, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert read(small().write(tmp_path / "b", v2=names)) == read(plain)


@pytest.mark.parametrize("stored", ["text", "textId", "both"])
def test_names_are_read_wherever_they_are_kept(tmp_path: Path, stored: str) -> None:
    seen = read(small(nvtx_text=stored).write(tmp_path / "t"))
    assert seen["ranges.names"] == ("step 0", "step 1", "step 2")
    assert seen["python_frames"] == "recorded"
    assert len(seen["at_call.row"]) == len(seen["samples.row"]) == 6


# What an export lacks


OPTIONAL = {
    SYNCHRONIZATION: ("syncs",),
    CUDA_EVENT: ("events",),
    MEMSET: ("ops", "copies"),
    MEMCPY: ("ops", "copies"),
    KERNEL: ("ops", "copies"),
    "CUDA_CALLCHAINS": ("brackets.chain",),
    "NVTX_EVENTS": ("at_call", "samples", "ranges", "python_frames"),
    "NVTX_PAYLOAD_SCHEMAS": (),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": (),
    "NVTX_PAYLOAD_ENUMS": (),
    "ENUM_CUDA_MEM_KIND": (),
    "ENUM_CUDA_MEMCPY_OPER": (),
    "ENUM_CUPTI_SYNC_TYPE": (),
    "ENUM_NSYS_EVENT_TYPE": (),
    "TARGET_INFO_GPU": ("devices",),
    "TARGET_INFO_CUDA_DEVICE": (),
    "TARGET_INFO_CUDA_CONTEXT_INFO": (),
    "TARGET_INFO_SYSTEM_ENV": ("meta",),
    "TARGET_INFO_SESSION_START_TIME": ("meta",),
    "ThreadNames": ("threads",),
    "PROCESSES": ("processes",),
    "META_DATA_CAPTURE": ("meta",),
    "META_DATA_EXPORT": ("meta", "warnings"),
    "ANALYSIS_DETAILS": (),
    "ProcessStreams": (),
}


NEEDED = {
    RUNTIME: "start end globalTid correlationId nameId",
    KERNEL: "start end globalPid deviceId contextId streamId correlationId",
    MEMCPY: "start end srcKind dstKind",
    SYNCHRONIZATION: "globalPid correlationId deviceId streamId",
    "NVTX_EVENTS": "start end eventType globalTid",
}


@pytest.mark.parametrize("table", OPTIONAL)
def test_a_missing_table_takes_only_its_own_part_away(tmp_path: Path, table: str) -> None:
    whole, seen = read(small().write(tmp_path / "a")), read(small().write(tmp_path / "b", drop=[table]))
    for key in whole:
        if key != "missing" and not key.startswith(OPTIONAL[table]):
            assert seen[key] == whole[key], key
    assert seen["missing"] - whole["missing"] in (set(), {table})


def test_the_least_that_is_an_export(tmp_path: Path) -> None:
    path = small().write(tmp_path / "t")
    names = [name for (name,) in sqlite_rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    seen = read(small().write(tmp_path / "u", drop=set(names) - {RUNTIME, "StringIds"}))
    assert len(seen["calls.start"]) == 44
    assert {KERNEL, MEMCPY, MEMSET, SYNCHRONIZATION, "NVTX_EVENTS"} < seen["missing"]


def test_columns_of_older_exports_may_be_missing(tmp_path: Path) -> None:
    path = small().write(tmp_path / "t")
    whole = read(path)
    for table, column in [
        (SYNCHRONIZATION, "eventSyncId"),
        (MEMCPY, "copyCount"),
        (KERNEL, "graphNodeId"),
        ("NVTX_EVENTS", "binaryData"),
        ("NVTX_EVENTS", "jsonTextId"),
        ("CUDA_CALLCHAINS", "unresolved"),
    ]:
        edit(path, f'ALTER TABLE {table} DROP COLUMN "{column}"')
    seen = read(path)
    differing = {key for key in whole if whole[key] != seen[key]}
    assert differing == {"syncs.event"}


@pytest.mark.parametrize(("table", "column"), [(table, column) for table in NEEDED for column in NEEDED[table].split()])
def test_a_column_that_nothing_can_stand_in_for_is_an_error(tmp_path: Path, table: str, column: str) -> None:
    path = small().write(tmp_path / "t")
    kept = ", ".join(f'"{row[1]}"' for row in sqlite_rows(path, f"PRAGMA table_info({table})") if row[1] != column)
    for statement in (
        f"CREATE TABLE kept AS SELECT {kept} FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE kept RENAME TO {table}",
    ):
        edit(path, statement)
    assert f"has no column {column} in {table}" in sentence(path)


def test_computed_columns_are_columns(tmp_path: Path) -> None:
    path = small().write(tmp_path / "t")
    whole = read(path)
    names = [row[1] for row in sqlite_rows(path, f"PRAGMA table_info({KERNEL})")]
    plain = ", ".join(f'"{name}"' for name in names if name != "start")
    edit(path, f"ALTER TABLE {KERNEL} RENAME TO kept")
    edit(path, f"CREATE TABLE {KERNEL} (begin, start AS (begin - 0), {plain})")
    edit(path, f"INSERT INTO {KERNEL} (begin, {plain}) SELECT start, {plain} FROM kept")
    assert read(path) == whole


@pytest.mark.parametrize(
    ("payload", "frames"),
    [(("json", "binary"), "recorded"), (("json",), "recorded"), (("binary",), "recorded"), ((), "not_exported")],
)
def test_python_stacks_in_either_form(tmp_path: Path, payload: tuple[str, ...], frames: str) -> None:
    seen = read(small(payload=payload, garbage=0x7FFF_FFFF).write(tmp_path / "t"))
    assert seen["python_frames"] == frames
    stack = tuple(StackFrame(*frame) for frame in FRAMES) if payload else ()
    assert seen["at_call.row"] == seen["samples.row"] == [stack] * 6


def test_real_stacks_are_the_same_in_either_form(tmp_path: Path, sample: Sample) -> None:
    for name in ("probe-sync", "probe-seedflags"):
        path = tmp_path / f"{name}.sqlite"
        shutil.copy(sample(name), path)
        path.chmod(0o644)
        by_json = read(path)
        edit(path, "UPDATE NVTX_EVENTS SET jsonText = NULL")
        by_binary = read(path)
        assert by_json == by_binary
        assert any(by_binary["at_call.row"] or by_binary["samples.row"])


def test_frames_not_exported_and_not_recorded_are_told_apart(tmp_path: Path, sample: Sample) -> None:
    for name, frames in (
        ("probe-seedflags", "recorded"),
        ("probe-seedflags-nojson", "not_exported"),
        ("probe-2023.4", "not_exported"),
    ):
        with open_trace(sample(name)) as trace:
            assert trace.python_frames == frames, name
    t = TraceBuilder()
    t.process().thread().sync(SYNC, 0, 9)
    assert read(t.write(tmp_path / "t"))["python_frames"] == "not_recorded"


def test_marks_of_other_libraries_are_no_stacks(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.payload(5, "NCCL", '{"Python Backtrace on CUDA":{"Frames":[{"Function":0,"File":1,"Line":3}]}}')
    th.payload(6, "Python Backtrace on CUDA", '{"NCCL":{"Frames":[{"Function":0,"File":1,"Line":3}]}}')
    seen = read(t.write(tmp_path / "t"))
    assert seen["at_call.start"] == [6]
    assert seen["at_call.row"] == [()]


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("NVTX_PAYLOAD_SCHEMAS", "payloadSize = -40"),
        ("NVTX_PAYLOAD_SCHEMAS", "payloadSize = 0"),
        ("NVTX_PAYLOAD_SCHEMAS", "payloadSize = 7"),
        ("NVTX_PAYLOAD_SCHEMAS", "payloadSize = 1 << 40"),
        ("NVTX_PAYLOAD_SCHEMA_ENTRIES", "offset = -8"),
        ("NVTX_PAYLOAD_SCHEMA_ENTRIES", "offset = 1 << 40"),
        ("NVTX_PAYLOAD_SCHEMA_ENTRIES", "type = 7"),
        ("NVTX_EVENTS", "binaryData = substr(binaryData, 1, 60)"),
        ("NVTX_EVENTS", "binaryData = substr(binaryData, 1, 5)"),
        ("NVTX_EVENTS", "binaryData = zeroblob(200)"),
    ],
)
def test_layouts_and_payloads_that_cannot_be_give_no_stack(tmp_path: Path, table: str, change: str) -> None:
    path = small(payload=["binary"]).write(tmp_path / "t")
    edit(path, f"UPDATE {table} SET {change}")
    assert set(read(path)["at_call.row"]) == {()}


@pytest.mark.parametrize("device", [-1, 1 << 16, 1 << 62, -(1 << 63)])
def test_devices_that_cannot_be_are_none(tmp_path: Path, device: int) -> None:
    path = small().write(tmp_path / "t")
    edit(path, f"UPDATE {KERNEL} SET deviceId = {device} WHERE rowid = 1")
    seen = read(path)
    assert seen["ops.device"].count(-1) == 1
    assert set(seen["ops.device"]) == {-1, 0}


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    "payload",
    [
        DEEP,
        f'{{"Python Backtrace on CUDA":{DEEP}',
        f'{{"other":{DEEP}',
        '{"Python Backtrace on CUDA":{"Frames":[{"Function":-99999999999999999999,"File":1,"Line":1}]}}',
        '{"Python Backtrace on CUDA":{"Frames":[{"Function":18446744073709551615,"File":1,"Line":1}]}}',
        '{"Python Backtrace on CUDA":{"Frames":[{"Function":"f","File":1,"Line":1}]}}',
        '{"Python Backtrace on CUDA":{"Frames":7}}',
        '{"Python Backtrace on CUDA":null}',
    ],
)
def test_payloads_that_are_no_stacks_are_empty(tmp_path: Path, payload: str) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.sync(SYNC, 10, 20, frames=FRAMES)
    th.payload(30, "Python Backtrace on CUDA", payload)
    t.capture_info(f'{{"tool_version":"1","x":{payload}')
    seen = read(t.write(tmp_path / "t"))
    assert [len(stack) for stack in seen["at_call.row"]] == [2, 0]
    assert [slug for slug, _ in seen["warnings"]] == ["capture-note"]
    assert scrub(tmp_path / "t", tmp_path / "clean").target.exists()


def test_a_domain_id_means_another_domain_in_another_process(tmp_path: Path) -> None:
    t = TraceBuilder()
    one, two = t.process(pid=1).thread(1), t.process(pid=2).thread(1)
    one.sync(SYNC, 10, 20, frames=FRAMES)
    two.payload(5, "NCCL", "{}")
    two.mark("not a stack", 7, domain="NCCL")
    seen = read(t.write(tmp_path / "t"))
    assert seen["at_call.tid"] == [one.gtid]


# Rows that are there twice, or mean something else


def test_the_profiler_s_second_row_of_a_call_is_no_call(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.sync(SYNC, 10, 20, corr=42, frames=FRAMES, native=["a", "b"])
    th.backtrace("cuCtxGetDevice", 30, 31, 42, frames=[("other", "/proj/x.py", 1)])
    seen = read(t.write(tmp_path / "t"))
    assert seen["calls.start"] == [10]
    assert seen["brackets.correlation"] == [42]
    assert [frame.symbol for frame in seen["brackets.chain"][0]] == ["a", "b"]


@pytest.mark.parametrize("schema", ["3.7.2", "3.20.3"])
def test_native_chains_counted_from_one_or_from_zero_reach_their_calls(schema: str, tmp_path: Path) -> None:
    t = TraceBuilder(schema=schema)
    th = t.process().thread()
    for number, symbol in enumerate("abc"):
        th.sync(SYNC, 10 + 100 * number, 20 + 100 * number, native=[symbol])
    scrub(t.write(tmp_path / "t"), tmp_path / "clean")
    for file in (tmp_path / "t", tmp_path / "clean"):
        assert [chain[0].symbol for chain in read(file)["brackets.chain"]] == ["a", "b", "c"]


def test_an_old_recording_s_native_chains_name_their_own_calls(sample: Sample) -> None:
    with open_trace(sample("probe-2023.4")) as trace:
        chains = trace.native_chains(trace.brackets.chain)
        assert len(chains)
        for name, chain in zip(trace.brackets.name, trace.brackets.chain, strict=True):
            assert trace.brackets.names[int(name)] in [frame.symbol for frame in chains[int(chain)]]


def test_rows_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.call("cudaMalloc", 0, 0)
    th.call("cudaMalloc", 9, 3)
    th.call("cudaMalloc", 5, 5)
    th.call("cudaMalloc", 0, 7)
    th.call("cudaMalloc", -(1 << 63), 7)
    th.call("cudaMalloc", 8, (1 << 63) - 1)
    for start, end in ((0, 0), (9, 3), (5, 5), (0, 7), (-(1 << 63), 7), (8, (1 << 63) - 1)):
        t.kernel(th.process, start, end)
    seen = read(t.write(tmp_path / "t"))
    assert list(zip(seen["calls.start"], seen["calls.end"], strict=True)) == [(0, 7), (5, 5)]
    assert list(zip(seen["ops.start"], seen["ops.end"], strict=True)) == [(0, 7), (5, 5)]


def test_ids_beyond_the_exact_range_of_floats_survive(tmp_path: Path) -> None:
    t = TraceBuilder()
    odd = (1 << 56) + 3
    t.kernel(t.process(), odd, odd + 2, corr=odd)
    seen = read(t.write(tmp_path / "t"))
    assert (seen["ops.start"], seen["ops.correlation"]) == ([odd], [odd])


# Order


def test_the_order_of_rows_changes_nothing_in_real_traces(
    tmp_path: Path, sample: Sample, sample_names: list[str]
) -> None:
    for name in sample_names:
        path = tmp_path / f"{name}.sqlite"
        shuffled(sample(name), path, seed=11)
        assert read(path) == read(sample(name)), name


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_the_order_of_rows_changes_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("shuffle")
    assert read(small().write(folder / "a")) == read(small().write(folder / "b", shuffle=seed))


def test_rows_that_contradict_each_other_are_believed_in_any_order(tmp_path: Path) -> None:
    t = small()
    t.process(pid=100, name="/usr/bin/torchrun").thread(1, name="renamed")
    t.device(0, name="NVIDIA H100")
    t.device(0, name="NVIDIA H200")
    t.row("TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=100)
    t.row("TARGET_INFO_SESSION_START_TIME", utcTime="2020-01-01T00:00:00")
    seen = [read(t.write(tmp_path / f"{seed}", shuffle=seed)) for seed in range(6)]
    assert all(one == seen[0] for one in seen)


def shuffled(source: Path, target: Path, seed: int) -> None:
    """A copy of an export with the rows of every table in random order."""
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("ATTACH ? AS src", (str(source),))
        for name, create in connection.execute(
            "SELECT name, sql FROM src.sqlite_master WHERE type = 'table'"
        ).fetchall():
            connection.execute(create)
            rows = connection.execute(f'SELECT * FROM src."{name}"').fetchall()
            random.Random(f"{seed} {name}").shuffle(rows)
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                connection.executemany(f'INSERT INTO main."{name}" VALUES ({marks})', rows)
        connection.commit()


# Files


def test_compressed_and_plain_are_the_same(tmp_path: Path) -> None:
    plain = small().write(tmp_path / "t.sqlite")
    packed = tmp_path / "t.sqlite.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    assert read(packed) == read(plain)


@pytest.mark.parametrize("name", ["plain.sqlite", "with space & umlaut é.sqlite", "100%?#x.sqlite"])
def test_a_read_only_folder_is_enough_and_nothing_changes(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    path = small().write(folder / name)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.chmod(0o444)
    folder.chmod(0o555)
    with open_trace(path) as trace:
        assert trace.sha256 == before
        assert [item.name for item in folder.iterdir()] == [name]
    assert [item.name for item in folder.iterdir()] == [name]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_what_is_no_trace_is_named_in_one_sentence(tmp_path: Path) -> None:
    whole = small().write(tmp_path / "whole").read_bytes()
    other = tmp_path / "other.sqlite"
    edit(other, "CREATE TABLE bookmarks (url TEXT)")
    cases = {
        "cut": (whole[: len(whole) // 2], "is cut off"),
        "short": (whole[:50], "is cut off"),
        "empty": (b"", "is empty"),
        "text": (b"start,end\n1,2\n", "is not an SQLite file"),
        "report.nsys-rep": (b"\x00\x01binary", r"is not an SQLite file.*: nsys-sync export .+/report.nsys-rep'?$"),
        "a.nsys-rep.xz": (lzma.compress(b"binary"), r"xz -dk .+/a.nsys-rep.xz'? && nsys-sync export .+/a.nsys-rep'?$"),
        "cut.xz": (lzma.compress(whole)[:-100], "damaged or incomplete"),
        "text.xz": (lzma.compress(b"text"), "is not an SQLite file"),
        "empty.xz": (lzma.compress(b""), "is empty"),
        "foreign": (other.read_bytes(), "not an Nsight Systems export"),
    }
    for name, (content, words) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InputError, match=words) as error, open_trace(path):
            pass
        assert str(path) in error.value.message
        assert "\n" not in str(error.value)
    for path, words in ((tmp_path, "is a folder"), (tmp_path / "nowhere", "does not exist")):
        with pytest.raises(InputError, match=words), open_trace(path):
            pass


@pytest.mark.parametrize("schema", ["3.7.2", "3.20.3"])
def test_flipped_bytes_give_values_or_a_sentence(tmp_path: Path, schema: str) -> None:
    whole = small(schema).write(tmp_path / "whole").read_bytes()
    generator = random.Random(schema)
    outcomes: set[int] = set()
    for attempt in range(200):
        data = bytearray(whole)
        for _ in range(generator.choice((1, 5, 50, 400))):
            data[generator.randrange(16, len(data))] = generator.randrange(256)
        path = tmp_path / f"{attempt}.sqlite"
        path.write_bytes(data)
        outcomes.add(len(sentence(path).splitlines()))
    assert outcomes == {0, 1}


READ = {
    RUNTIME: "start end eventClass globalTid correlationId nameId callchainId",
    KERNEL: "start end globalPid deviceId contextId streamId correlationId shortName",
    MEMCPY: "start end bytes srcKind dstKind",
    SYNCHRONIZATION: "globalPid correlationId deviceId streamId eventSyncId",
    CUDA_EVENT: "globalPid correlationId streamId eventSyncId",
    "CUDA_CALLCHAINS": "id stackDepth symbol module",
    "NVTX_EVENTS": "start end eventType globalTid domainId text textId jsonText jsonTextId binaryData",
    "NVTX_PAYLOAD_SCHEMAS": "schemaId payloadSize",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "schemaId name type offset",
    "StringIds": "value",
    "PROCESSES": "globalPid name",
    "ThreadNames": "globalTid nameId",
    "META_DATA_CAPTURE": "name value",
    "META_DATA_EXPORT": "name value",
    "TARGET_INFO_GPU": "id name",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "TARGET_INFO_SYSTEM_ENV": "name value",
    "TARGET_INFO_SESSION_START_TIME": "utcTime",
}
ODD = ["'TOKEN=hunter2'", "CAST(x'ff41fe' AS TEXT)", "x'00ff'", "NULL", "1.5", "9e99", str(-(1 << 63))]


@pytest.mark.parametrize("table", READ)
def test_values_of_another_kind_give_values_or_a_sentence_that_does_not_quote_them(tmp_path: Path, table: str) -> None:
    path = small().write(tmp_path / "t", drop=list(load_schema("3.20.3").enums))
    columns = [f'"{row[1]}"' for row in sqlite_rows(path, f"PRAGMA table_info({table})")]
    with closing(sqlite3.connect(path)) as connection:
        # Without types and constraints any column takes any value.
        connection.execute(f"CREATE TABLE kept AS SELECT * FROM {table}")
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        connection.commit()
        for column in READ[table].split():
            for value in ODD:
                connection.execute(f"INSERT INTO {table} SELECT * FROM kept")
                connection.execute(f'UPDATE {table} SET "{column}" = {value} WHERE rowid % 2')
                connection.commit()
                assert "hunter2" not in sentence(path)
                connection.execute(f"DELETE FROM {table}")


@pytest.mark.parametrize(("days", "threads", "readable"), [(1, 40, True), (9_000, 1, True), (9_000, 40, False)])
def test_times_whose_sums_do_not_fit_are_damage(tmp_path: Path, days: int, threads: int, readable: bool) -> None:
    t = TraceBuilder()
    end, process = days * 86_400 * 10**9, t.process()
    for number in range(threads):
        th = process.thread(number + 1)
        th.launch(10 * number, 10 * number + 5, (10 * number + 6, end), stream=number)
        th.sync("cudaDeviceSynchronize_v3020", 10 * number + 8, end + 100)
    path = t.write(tmp_path / "t")
    if readable:
        totals = nsys_sync.analyze(path).totals
        assert threads * (end - 10_000) < totals.wait_ns < threads * end
    else:
        assert f"has events {days:,} days apart" in sentence(path)


def test_a_length_that_asks_for_all_memory_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Greedy:
        def execute(self, *_: object) -> None:
            raise MemoryError

        def close(self) -> None:
            pass

    path = small().write(tmp_path / "t")
    with open_trace(path) as trace:
        trace._db._rows.close()
        monkeypatch.setattr(trace._db, "_rows", Greedy())
        with pytest.raises(InputError, match="longer than memory can hold"):
            trace.strings([1])


def sentence(path: Path) -> str:
    """What a reader of the file is told; empty if it can be read."""
    try:
        read(path)
    except InputError as error:
        return str(error)
    return ""


def sqlite_rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def edit(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
