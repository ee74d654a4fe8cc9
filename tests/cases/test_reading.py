"""What people met when they read Nsight Systems exports, one test each."""

from __future__ import annotations

import hashlib
import io
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_sync.analysis.findings import Report
from nsys_sync.analysis.run import analyze
from nsys_sync.errors import ExitCode, InputError, NothingToAnalyze, NsysSyncError
from nsys_sync.report import text
from tests.builder import CUDA_EVENT, GRAPH_TRACE, KERNEL, MEMCPY, MEMSET, SYNCHRONIZATION, TraceBuilder, load_schema
from tests.trace.test_reader import shuffled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Sample = Callable[[str], Path]

STREAM_SYNC = "cudaStreamSynchronize_v3020"
ITEM = [("item", "/proj/model.py", 10), ("<module>", "/proj/train.py", 20)]
US = 1_000


def loop(t: TraceBuilder, pid: int = 100, steps: int = 4, start: int = 0, device: int = 0) -> None:
    """A process that waits for a stream, a pageable copy, an event and its device in each step of 1 ms."""
    th = t.process(pid=pid).thread()
    for step in range(steps):
        at = start + step * 1_000 * US
        th.range(f"step {step}", at, at + 990 * US)
        th.launch(at, at + 5 * US, (at + 10 * US, at + 200 * US), device=device)
        th.sync(
            STREAM_SYNC, at + 20 * US, at + 205 * US, frames=ITEM, native=["at::_local_scalar_dense"], device=device
        )
        t.memset(
            th.process, at + 310 * US, at + 320 * US, th.call("cudaMemsetAsync_v3020", at + 300 * US, at + 305 * US)
        )
        th.copy(at + 400 * US, at + 500 * US, (at + 410 * US, at + 490 * US), size=1 << 20, device=device)
        th.sync(STREAM_SYNC, at + 502 * US, at + 506 * US, frames=[("cpu", "/proj/log.py", 3)], device=device)
        th.launch(at + 600 * US, at + 605 * US, (at + 610 * US, at + 800 * US), device=device)
        event = th.record_event(at + 606 * US, at + 607 * US, device=device)
        th.wait_event(at + 608 * US, at + 609 * US, event, stream=8, device=device)
        th.sync("cudaEventSynchronize_v3020", at + 610 * US, at + 612 * US, event=event, device=device)
        th.sync("cudaDeviceSynchronize_v3020", at + 620 * US, at + 810 * US, frames=[("sync", "/proj/train.py", 9)])


def write(path: Path, **options: Any) -> Path:
    t = TraceBuilder()
    loop(t)
    return t.write(path, **options)


def report(path: Path) -> Report:
    return analyze(path)


def facts(found: Report) -> str:
    """The JSON of a report, without the file's name and digest."""
    return found.to_json().decode().replace(found.trace.sha256, "").replace(f'"{found.trace.file}"', '""')


def numbers(found: Report) -> tuple[Any, ...]:
    """What must not depend on how an export spells things; what a prediction rests on may."""
    sites = [msgspec.structs.replace(site, what_if=None) for site in found.sites]
    return (found.devices, found.totals, sites, found.steps, found.gaps)


# Drop any optional table in turn


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (SYNCHRONIZATION, "No synchronisation records"),
        (MEMCPY, "No copies were recorded"),
        (KERNEL, "No kernels were recorded"),
        ("CUDA_CALLCHAINS", "No native call chains were recorded"),
        ("NVTX_EVENTS", "No NVTX events were recorded"),
        (MEMSET, ""),
        (GRAPH_TRACE, ""),
        (CUDA_EVENT, ""),
        ("ThreadNames", ""),
        ("PROCESSES", ""),
        ("TARGET_INFO_GPU", ""),
        ("TARGET_INFO_CUDA_DEVICE", ""),
        ("TARGET_INFO_CUDA_CONTEXT_INFO", ""),
        ("TARGET_INFO_CUDA_STREAM", ""),
        ("TARGET_INFO_SYSTEM_ENV", ""),
        ("META_DATA_CAPTURE", ""),
        ("NVTX_PAYLOAD_SCHEMAS", ""),
        *((name, "") for name in sorted(load_schema("3.20.3").enums)),
    ],
)
def test_any_optional_table_may_be_missing(tmp_path: Path, table: str, words: str) -> None:
    whole, found = report(write(tmp_path / "a")), report(write(tmp_path / "b", drop=[table]))
    notes = [note.text for note in found.trace.warnings]
    assert not words or any(words in note for note in notes)
    assert found.totals.host_blocking_calls == (16 if table == MEMCPY else 20)
    if not words and table not in (MEMSET, "PROCESSES", "TARGET_INFO_GPU"):
        assert numbers(found) == numbers(whole)


@pytest.mark.parametrize("table", [SYNCHRONIZATION, MEMCPY, KERNEL, "CUDA_CALLCHAINS", "NVTX_EVENTS"])
def test_the_terminal_says_what_was_not_recorded(tmp_path: Path, table: str) -> None:
    found = report(write(tmp_path / "t", drop=[table]))
    (words,) = {note.text for note in found.trace.warnings if note.slug == "not-recorded"}
    shown = io.StringIO()
    text.render(found, file=shown)
    assert " ".join(words.split()) in " ".join(shown.getvalue().split())


def test_graph_launches_without_their_work_withhold_idle_time(tmp_path: Path, sample: Sample) -> None:
    path = tmp_path / "t.sqlite"
    shutil.copy(sample("graph-fix0"), path)
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"DROP TABLE {GRAPH_TRACE}")
        connection.commit()
    found = report(path)
    (device,) = found.devices
    assert (device.idle_status, device.idle_ns, device.busy_ns) == ("withheld", None, None)
    assert device.idle_reason is not None
    assert "50 CUDA graph launches have no recorded work" in device.idle_reason
    assert (found.totals.idle_ns, found.totals.recoverable_ns) == (None, None)
    assert found.totals.wait_ns > 0


@pytest.mark.parametrize("name", ["ddp-fix0", "probe-2023.4", "graph-fix0"])
def test_any_table_of_a_real_trace_may_be_missing(tmp_path: Path, sample: Sample, name: str) -> None:
    with closing(sqlite3.connect(f"file:{sample(name)}?mode=ro", uri=True)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    whole = report(sample(name))
    for table in sorted(table for table in tables if not table.startswith("ENUM_")):
        path = tmp_path / "dropped.sqlite"
        path.unlink(missing_ok=True)
        shutil.copy(sample(name), path)
        path.chmod(0o644)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"DROP TABLE {table}")
            connection.commit()
        if table in NEEDED:
            with pytest.raises(NsysSyncError, match=NEEDED[table]):
                report(path)
        elif table != MEMCPY:
            assert report(path).totals.host_blocking_calls == whole.totals.host_blocking_calls, table
        else:
            assert report(path).totals.host_blocking_calls <= whole.totals.host_blocking_calls


NEEDED = {"StringIds": "not an Nsight Systems export", "CUPTI_ACTIVITY_KIND_RUNTIME": "No CUDA API calls"}


# Spelling


@pytest.mark.parametrize("stored", ["text", "textId", "both"])
def test_strings_by_text_or_by_id_give_the_same_labels(tmp_path: Path, stored: str) -> None:
    by_text, t = TraceBuilder(), TraceBuilder(nvtx_text=stored)
    loop(by_text)
    loop(t)
    found = report(t.write(tmp_path / "b"))
    assert numbers(found) == numbers(report(by_text.write(tmp_path / "a")))
    assert [step.count for step in found.steps] == [4]


@pytest.mark.parametrize(
    ("schema", "version", "warned"),
    [
        ("3.7.2", None, False),
        ("3.20.3", None, False),
        ("3.20.3", "3.24.14", True),
        ("3.25.0", None, True),
        ("3.25.0", "4.0.0", True),
    ],
)
def test_schema_versions(tmp_path: Path, schema: str, version: str | None, warned: bool) -> None:
    reference, t = TraceBuilder(payload=()), TraceBuilder(schema, payload=())
    loop(reference)
    loop(t)
    found = report(t.write(tmp_path / "b", version=version))
    assert numbers(found) == numbers(report(reference.write(tmp_path / "a")))
    assert ("newer-schema" in {note.slug for note in found.trace.warnings}) == warned
    assert found.trace.schema_version == (version or schema)


def test_tables_with_a_version_suffix_are_found(tmp_path: Path) -> None:
    names = list(load_schema("3.20.3").create)
    assert facts(report(write(tmp_path / "b", v2=names))) == facts(report(write(tmp_path / "a")))


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("cudaMemcpy_v3020", True),
        ("cudaMemcpy2D_v3020_ptds", True),
        ("cuMemcpyDtoH_v2", True),
        ("cudaStreamSynchronize_ptsz", True),
        ("cudaStreamSynchronize_v3020", True),
        ("cuStreamSynchronize", True),
        ("cuStreamSynchronize_ptsz", True),
        ("cudaDeviceSynchronize_v3020", True),
        ("cuCtxSynchronize", True),
        ("cudaEventSynchronize_v3020", True),
        ("cuEventSynchronize", True),
        ("cudaStreamWaitEvent_v3020", False),
        ("cudaStreamWaitEvent_v10000_ptsz", False),
        ("cuStreamWaitEvent", False),
        ("cudaEventQuery_v3020", False),
        ("cudaStreamQuery_v3020", False),
        ("cuEventQuery", False),
        ("cudaGetLastError", False),
    ],
)
def test_which_names_block(tmp_path: Path, name: str, blocks: bool) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    event = th.record_event(0, 2)
    th.launch(10, 15, (20, 5_000))
    th.sync(name, 30, 40_000, event=event)
    totals = report(t.write(tmp_path / "t")).totals
    assert totals.host_blocking_calls == int(blocks)
    assert totals.sync_events == int(blocks)
    assert totals.device_waits == int("WaitEvent" in name)


# What is no trace, and what has nothing in it


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("cut", "is cut off"),
        ("empty", "is empty"),
        ("text", "is not an SQLite file"),
        ("folder", "is a folder"),
        ("foreign", "not an Nsight Systems export"),
        ("missing", "does not exist"),
    ],
)
def test_what_is_no_trace_gets_one_line(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "trace.sqlite"
    if content == "cut":
        whole = write(tmp_path / "whole").read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif content == "empty":
        path.touch()
    elif content == "text":
        path.write_text("name,value\n")
    elif content == "folder":
        path.mkdir()
    elif content == "foreign":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE moz_places (url TEXT)")
            connection.commit()
    with pytest.raises(InputError, match=words) as error:
        report(path)
    assert len(str(error.value).splitlines()) == 1
    assert error.value.exit_code == ExitCode.ERROR


def test_only_os_runtime_rows_is_no_cuda_activity(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.osrt("poll", 0, 5_000)
    th.range("step 0", 0, 5_000)
    with pytest.raises(NothingToAnalyze, match="No CUDA activity was recorded") as error:
        report(t.write(tmp_path / "t"))
    assert error.value.exit_code == ExitCode.NOTHING_TO_ANALYZE
    assert error.value.hint.index("capture range") < error.value.hint.index("CUDA tracing")


def test_cuda_activity_without_syncs_is_a_report(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process().thread().launch(0, 5, (10, 20))
    found = report(t.write(tmp_path / "t"))
    assert found.headline.slug == "no_syncs"
    assert found.totals.host_blocking_calls == 0


def test_an_empty_window_was_not_measured(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process().thread().call("cudaGetDeviceCount_v3020", 0, 5)
    found = report(t.write(tmp_path / "t"))
    assert found.headline.slug == "nothing_measured"
    assert not any(word in found.headline.text.lower() for word in ("healthy", "no sync", "fine"))
    assert (found.totals.idle_ns, found.devices) == (None, [])


# Many processes


def test_two_processes_with_one_correlation_id_match_once_each(tmp_path: Path) -> None:
    t = TraceBuilder()
    for pid, end in ((100, 9_000), (200, 60_000)):
        th = t.process(pid=pid).thread()
        th.launch(0, 5, (10, end), corr=41)
        th.sync(STREAM_SYNC, 100, end + 100, corr=42, frames=ITEM)
    found = report(t.write(tmp_path / "t"))
    (site,) = found.sites
    assert (site.calls, site.events, site.stack_origin) == (2, 2, "exact")
    waits = {share.pid: share.wait_ns for share in site.by_process}
    assert waits == {100: 9_000 - 5_000, 200: 60_000 - 5_000}


def test_eight_processes_have_a_row_each_and_a_total(tmp_path: Path) -> None:
    t = TraceBuilder()
    for rank in range(8):
        loop(t, pid=1_000 + rank, start=rank * US, device=rank)
    found = report(t.write(tmp_path / "t"))
    assert [process.pid for process in found.trace.processes] == list(range(1_000, 1_008))
    assert len(found.devices) == 8
    for site in found.sites:
        assert [share.pid for share in site.by_process] == list(range(1_000, 1_008))
        assert sum(share.calls for share in site.by_process) == site.calls
        assert sum(share.wait_ns for share in site.by_process) == site.wait_ns.total
    assert found.totals.host_blocking_calls == 8 * 20


def test_kernels_that_the_profiler_dropped_leave_an_unknown_gap(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(1_000_000, 1_005_000)
    th.sync(STREAM_SYNC, 1_010_000, 1_500_000, frames=ITEM)
    t.kernel(th.process, 2_000_000, 2_100_000, corr=None)
    th.launch(2_105_000, 2_106_000, (2_107_000, 2_200_000))
    found = report(t.write(tmp_path / "t"))
    (device,) = found.devices
    assert device.window_ns == 2_200_000 - 1_010_000
    assert device.idle_by_cause_ns is not None
    assert device.idle_by_cause_ns.unknown == 2_000_000 - 1_010_000
    assert found.totals.wait_ns == 0


# Order, damage, and leaving things alone


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_the_order_of_rows_changes_no_byte(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("shuffle")
    assert facts(report(write(folder / "a"))) == facts(report(write(folder / "b", shuffle=seed)))


def test_the_order_of_rows_changes_no_byte_for_real_traces(
    tmp_path: Path, sample: Sample, sample_names: list[str]
) -> None:
    for name in sample_names:
        path = tmp_path / f"{name}.sqlite"
        shuffled(sample(name), path, seed=5)
        assert facts(report(path)) == facts(report(sample(name))), name


def test_flipped_bytes_give_a_report_or_one_line(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", drop=list(load_schema("3.20.3").enums)).read_bytes()
    generator = random.Random(1)
    lines: set[int] = set()
    for attempt in range(80):
        data = bytearray(whole)
        for _ in range(generator.choice((1, 3, 20, 200))):
            at = generator.randrange(16, len(data))
            data[at] = generator.choice((0, 255, data[at] ^ 1 << generator.randrange(8)))
        path = tmp_path / f"{attempt}.sqlite"
        path.write_bytes(data)
        lines.add(outcome(path))
    assert lines == {0, 1}


def outcome(path: Path) -> int:
    """Lines of the error that reading the file gives; 0 for a report."""
    try:
        report(path)
    except NsysSyncError as error:
        return len(str(error).splitlines())
    return 0


def test_a_read_only_folder_is_enough_and_nothing_is_left_in_it(tmp_path: Path, sample: Sample) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    path = folder / "trace.sqlite"
    shutil.copy(sample("probe-sync"), path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.chmod(0o444)
    folder.chmod(0o555)
    assert report(path).trace.sha256 == before
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [item.name for item in folder.iterdir()] == ["trace.sqlite"]


def test_exit_codes_tell_the_outcomes_apart(tmp_path: Path) -> None:
    quiet = TraceBuilder()
    quiet.process().thread().launch(0, 5, (10, 20))
    idle = TraceBuilder()
    idle.process().thread().osrt("poll", 0, 5_000)
    (tmp_path / "text.sqlite").write_text("name,value\n")
    for path, code, words in (
        (write(tmp_path / "syncs.sqlite"), ExitCode.OK, ""),
        (quiet.write(tmp_path / "no_syncs.sqlite"), ExitCode.OK, ""),
        (idle.write(tmp_path / "no_cuda.sqlite"), ExitCode.NOTHING_TO_ANALYZE, "No CUDA activity was recorded"),
        (tmp_path / "text.sqlite", ExitCode.ERROR, "is not an SQLite file"),
    ):
        command = [sys.executable, "-m", "nsys_sync.cli", "report", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (code, True, False), path
        assert (done.stdout == "") == (code != ExitCode.OK)


def test_stacks_of_calls_that_were_not_recorded_are_said_to_be_lost(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.sync("cudaDeviceSynchronize_v3020", 10, 20, frames=[("f", "/proj/a.py", 1)])
    whole = analyze(t.write(tmp_path / "whole.sqlite"))
    for number in range(3):
        th.backtrace("cudaDeviceSynchronize", 100 * number + 50, 100 * number + 60, 500 + number)
    partly = analyze(t.write(tmp_path / "partly.sqlite"))
    assert "calls-lost" not in [note.slug for note in whole.trace.warnings]
    assert "3 calls that can block" in next(n.text for n in partly.trace.warnings if n.slug == "calls-lost")


def test_a_saved_comparison_is_not_a_damaged_report(tmp_path: Path) -> None:
    path = tmp_path / "diff.json"
    path.write_text('{"format": 1, "tool": {"name": "nsys-sync", "version": "0"}, "before": {}, "after": {}}')
    with pytest.raises(InputError, match="is a comparison") as caught:
        Report.load(path)
    assert caught.value.slug == "not-a-report"
