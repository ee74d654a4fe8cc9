"""scrub: what nobody is shown is nowhere in the copy's bytes, and what a report shows is all there."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

import nsys_sync
from nsys_sync.errors import InputError, OutputError, UsageError
from nsys_sync.scrub import scrub
from nsys_sync.trace.capture_info import CaptureInfo, SourceFile
from nsys_sync.trace.private import REMOVED
from nsys_sync.trace.reader import Trace, open_trace
from tests.builder import VM, TraceBuilder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Sample = Callable[[str], Path]

SECRET = "hunter2-Zq9xW7"


def is_in(secret: str, path: Path) -> bool:
    """Whether a file holds the text in any of SQLite's encodings."""
    data = path.read_bytes()
    return any(secret.encode(encoding) in data for encoding in ("utf-8", "utf-16-le", "utf-16-be"))


def small(schema: str = "3.20.3") -> TraceBuilder:
    """A trace with one launch, one copy and one sync at a Python line."""
    t = TraceBuilder(schema)
    th = t.process(pid=100).thread(1)
    th.launch(0, 5, (10, 30), name="gemm")
    th.copy(6, 8, (31, 33), kind="device->pinned")
    th.sync(
        "cudaStreamSynchronize_v3020",
        12,
        40,
        frames=[("item", "/home/alice/proj/model.py", 10), ("<module>", "/home/alice/proj/train.py", 20)],
        native=["at::_local_scalar_dense", "THPVariable_item"],
    )
    th.range("step 0", 0, 40)
    return t


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def environment(t: TraceBuilder) -> None:
    t.environment("API_TOKEN", SECRET)


def argument(t: TraceBuilder) -> None:
    t.options["PROCESS_0:ARGUMENT_1"] = f"--api-key={SECRET}"


def odd_option(t: TraceBuilder) -> None:
    t.options["PROCESS_0:COLLECT_CUDA_TRACE"] = SECRET


def environment_block(t: TraceBuilder) -> None:
    t.string(f"HOME=/root\0API_TOKEN={SECRET}\0SHELL=/bin/sh\0")


def referenced_block(t: TraceBuilder) -> None:
    t.kernel(t.process(pid=100), 50, 60, name=f"kernel\0API_TOKEN={SECRET}\0")


def output(t: TraceBuilder) -> None:
    t.output(t.process(pid=100), "stdout.log", f"logged in with {SECRET}")


def diagnostic(t: TraceBuilder) -> None:
    t.diagnostic(f"Process was launched with {SECRET}")


def diagnostic_like_a_usual_one(t: TraceBuilder) -> None:
    t.diagnostic(f"Profiling has started.\n{SECRET}")


def payload(t: TraceBuilder) -> None:
    t.process(pid=100).thread(1).payload(5, "NCCL", f'{{"key":"{SECRET}"}}')


def payload_of_a_python_mark(t: TraceBuilder) -> None:
    json = f'{{"Python Backtrace on CUDA":{{"Frames":[],"Note":"{SECRET}"}}}}'
    t.row("NVTX_EVENTS", start=9, eventType=34, globalTid=VM | 100 << 24 | 1, domainId=1, jsonText=json, text=SECRET)


def mark(t: TraceBuilder) -> None:
    t.process(pid=100).thread(1).mark(f"prompt: {SECRET}", 5)


def library_range(t: TraceBuilder) -> None:
    t.process(pid=100).thread(1).range(SECRET, 5, 6, domain="vendor", stored="both")


def category(t: TraceBuilder) -> None:
    t.row("NVTX_EVENTS", start=5, eventType=33, globalTid=VM | 100 << 24 | 1, domainId=0, text=SECRET)


def thread_name(t: TraceBuilder) -> None:
    th = t.process(pid=100).thread(7, name=SECRET)
    th.launch(50, 51, (52, 53))


def foreign_process(t: TraceBuilder) -> None:
    t.process(pid=1, name=f"/opt/{SECRET}/agent").thread(1, name=SECRET).osrt(SECRET, 0, 9)


def registered_string(t: TraceBuilder) -> None:
    t.string(SECRET)


def host(t: TraceBuilder) -> None:
    t.export["EXPORT_HOST"] = SECRET


def version(t: TraceBuilder) -> None:
    t.export["EXPORT_PRODUCT_VERSION"] = SECRET


def display_name(t: TraceBuilder) -> None:
    t.options["DEVICE_DISPLAY_NAME"] = SECRET


def uuid(t: TraceBuilder) -> None:
    t.device(0, uuid=SECRET, bus=SECRET)


def system(t: TraceBuilder) -> None:
    t.row("TARGET_INFO_SYSTEM_ENV", devStateName=SECRET, name="Hostname", nameEnum=1, value=SECRET)
    t.row("TARGET_INFO_SYSTEM_ENV", devStateName=SECRET, name="NvDriverVersion", nameEnum=1, value="1.2")


def capture_flag(t: TraceBuilder) -> None:
    flags = [f"--env-var=API_TOKEN={SECRET}", f"-eX={SECRET}", "-e", f"X={SECRET}", "--env-var", SECRET]
    t.capture_info(msgspec.json.encode(CaptureInfo(tool_version="1", flags=["--trace=cuda", *flags])).decode())


def damaged_note(t: TraceBuilder) -> None:
    t.capture_info(f"not json: {SECRET}")


PLACES = [
    value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__annotations__", {}).get("t") == "TraceBuilder"
]


@pytest.mark.parametrize("plant", PLACES, ids=lambda plant: plant.__name__)
def test_a_planted_secret_is_nowhere_in_the_copy(tmp_path: Path, plant: Callable[[TraceBuilder], None]) -> None:
    t = small()
    plant(t)
    source = t.write(tmp_path / "in.sqlite")
    assert is_in(SECRET, source)
    result = scrub(source, tmp_path / "out.sqlite")
    assert not is_in(SECRET, result.target)
    assert SECRET not in "\n".join(result.lines())
    with open_trace(result.target) as trace:
        assert len(trace.calls) >= 3


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE vendor_notes (id INTEGER, note TEXT)|INSERT INTO vendor_notes VALUES (1, '{}')",
        'CREATE TABLE "odd \'{}" (id INTEGER)|INSERT INTO "odd \'{}" VALUES (1)',
        "ALTER TABLE PROCESSES ADD COLUMN commandLine TEXT|UPDATE PROCESSES SET commandLine = '{}'",
        "ALTER TABLE PROCESSES ADD COLUMN anything|UPDATE PROCESSES SET anything = '{}'",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = '{}'",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphNodeId = CAST('{}' AS BLOB)",
        "UPDATE NVTX_EVENTS SET textId = '{}'",
        "UPDATE CUDA_CALLCHAINS SET symbol = '{}', module = '{}' WHERE stackDepth = 1",
        "UPDATE TARGET_INFO_GPU SET chipName = '{}'",
        "UPDATE ENUM_CUDA_MEM_KIND SET label = '{}'",
        "UPDATE TARGET_INFO_SESSION_START_TIME SET utcTime = '{}', localTime = '{}'",
        "CREATE VIEW hidden AS SELECT '{}' AS note",
        "CREATE TRIGGER t AFTER INSERT ON PROCESSES BEGIN SELECT '{}'; END",
        "CREATE INDEX i ON PROCESSES (pid) WHERE name <> '{}'",
        "CREATE TABLE StringIds_V2 (id INTEGER PRIMARY KEY, value TEXT)|INSERT INTO StringIds_V2 VALUES (1, '{}')",
        "ALTER TABLE PROCESSES ADD COLUMN flags INTEGER DEFAULT '{}'",
        "CREATE TABLE t_ AS SELECT * FROM PROCESSES|UPDATE t_ SET name = '{}'",
        "UPDATE NVTX_EVENTS SET jsonText = '{}', binaryData = '{}' WHERE eventType = 59",
    ],
)
def test_text_in_unknown_places_is_left_behind(tmp_path: Path, statement: str) -> None:
    source = small().write(tmp_path / "in.sqlite")
    sql(source, *statement.replace("{}", SECRET).split("|"))
    assert is_in(SECRET, source)
    result = scrub(source, tmp_path / "out.sqlite")
    assert not is_in(SECRET, result.target)
    assert SECRET not in "\n".join(result.lines())


def test_deleted_text_is_gone(tmp_path: Path) -> None:
    source = small().write(tmp_path / "in.sqlite")
    filler = f"{SECRET} " * 400
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(90_000 + i, filler) for i in range(50)])
        connection.commit()
        connection.execute("DELETE FROM StringIds WHERE id >= 90000")
        connection.commit()
    assert is_in(SECRET, source)
    assert not is_in(SECRET, scrub(source, tmp_path / "out.sqlite").target)


def test_uninitialised_memory_of_the_program_is_gone(tmp_path: Path) -> None:
    t = small()
    t.garbage = int.from_bytes(b"hunt", "little")
    t.process(pid=100).thread(1).sync("cudaStreamSynchronize_v3020", 50, 60, frames=[("f", "/p.py", 3)])
    source = t.write(tmp_path / "in.sqlite")
    assert is_in("hunt", source)
    target = scrub(source, tmp_path / "out.sqlite").target
    assert not is_in("hunt", target)
    with open_trace(target) as trace:
        assert ("f", "/p.py", 3) in {frame for stack in trace.python_stacks(trace.at_call.row) for frame in stack}


def test_the_value_of_a_secret_is_taken_out_of_kept_texts(tmp_path: Path) -> None:
    t = small()
    environment(t)
    th = t.process(pid=100).thread(1)
    th.range(f"login {SECRET}", 50, 60)
    th.range(f"again {SECRET}", 70, 80, stored="textId")
    source = t.write(tmp_path / "in.sqlite")
    target = scrub(source, tmp_path / "out.sqlite").target
    assert not is_in(SECRET, target)
    with open_trace(target) as trace:
        assert {f"login {REMOVED}", f"again {REMOVED}"} < set(trace.ranges.names)


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-0123456789abcdefABCD",
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "hf_abcdefghijklmnopqrstuvwxyzABCD",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-123456789012-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w",
    ],
)
def test_what_looks_like_a_key_is_taken_out_of_kept_texts(tmp_path: Path, key: str) -> None:
    t = small()
    th = t.process(pid=100, name=f"/run/{key}/python3").thread(1)
    th.range(f"login({key})", 50, 60)
    th.sync("cudaStreamSynchronize_v3020", 70, 80, frames=[("f", f"/data/{key}/a.py", 1)])
    note = CaptureInfo(
        tool_version=key,
        range=f"region:{key}",
        warnings=[("w", f"used {key}.")],
        sources={"/home/alice/proj/model.py": SourceFile(sha256="0", lines={10: f"x.item()  # /data/{SECRET}"})},
    )
    t.capture_info(msgspec.json.encode(note).decode())
    environment(t)
    source = t.write(tmp_path / "in.sqlite")
    assert is_in(key, source)
    target = scrub(source, tmp_path / "out.sqlite").target
    assert not is_in(key, target)
    assert not is_in(SECRET, target)


def test_a_user_s_name_in_the_names_of_code_is_said(tmp_path: Path) -> None:
    t = small()
    t.export["EXPORT_USER"] = "bobby"
    t.kernel(t.process(pid=100), 50, 60, name="bobby_softmax_kernel")
    result = scrub(t.write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite")
    assert dict(result.kept)["of these with 'bobby' in them, names of code that are not changed"] == 1


def test_names_of_users_and_hosts_are_taken_out_of_paths(tmp_path: Path) -> None:
    t = small()
    t.export["EXPORT_USER"] = "bobby"
    t.environment("HOSTNAME", "node-17-gold")
    th = t.process(pid=200, name="/scratch/bobby/env/bin/python3").thread(1)
    th.sync(
        "cudaStreamSynchronize_v3020",
        50,
        60,
        frames=[
            ("f", "/mnt/node-17-gold/bobby/a.py", 1),
            ("g", "/data/bobby/lib/python3.12/site-packages/bobby/b.py", 2),
            ("bobby", "/Users/carol/c.py", 3),
        ],
    )
    target = scrub(t.write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite").target
    with open_trace(target) as trace:
        stacks = trace.python_stacks(trace.at_call.row)
        names = set(trace.processes.values())
    assert ("f", "/mnt/host/user/a.py", 1) in stacks[-1]
    assert ("g", "/data/user/lib/python3.12/site-packages/bobby/b.py", 2) in stacks[-1]
    assert ("bobby", "/Users/user/c.py", 3) in stacks[-1]
    assert {frame.file for frame in stacks[0]} == {"/home/user/proj/model.py", "/home/user/proj/train.py"}
    assert names == {"/usr/bin/python3", "/scratch/user/env/bin/python3"}


def test_paths_are_mapped_everywhere(tmp_path: Path) -> None:
    t = small()
    th = t.process(pid=300, name="/srv/a&b/bin/python3").thread(1)
    th.sync("cudaStreamSynchronize_v3020", 50, 60, frames=[("f", "/srv/a&b/x.py", 1), ("g", "/srv/a&bc/y.py", 2)])
    note = CaptureInfo(
        tool_version="1",
        flags=["--output=/srv/a&b/rep"],
        warnings=[("w", "see /srv/a&b/rep.")],
        sources={"/srv/a&b/x.py": SourceFile(sha256="0", lines={1: "x.item()"})},
    )
    t.capture_info(msgspec.json.encode(note).decode())
    result = scrub(t.write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite", map_paths=[("/srv/a&b/", "/proj")])
    with open_trace(result.target) as trace:
        stacks = trace.python_stacks(trace.at_call.row)
        assert "/proj/bin/python3" in trace.processes.values()
        assert trace.capture is not None
        assert trace.capture.flags == ["--output=/proj/rep"]
        assert trace.capture.warnings == [("w", "see /proj/rep.")]
        assert list(trace.capture.sources) == ["/proj/x.py"]
    assert [frame.file for frame in stacks[-1]] == ["/proj/x.py", "/srv/a&bc/y.py"]
    assert not is_in("/srv/a&b/", result.target)
    assert not is_in("/srv/a&amp;b/", result.target)
    assert ("/proj", 1) in result.folders


def test_the_summary_says_what_is_gone_and_what_is_left(tmp_path: Path) -> None:
    t = small()
    t.environment("A", "b")
    output(t)
    result = scrub(t.write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite")
    removed = dict(result.removed)
    assert removed["outputs of processes"] == 1
    assert removed["options of the capture, with the environment and the command line"] >= 1
    assert dict(result.kept) == {
        "Python functions": 2,
        "Python files": 2,
        "kernel names": 1,
        "names of ranges": 2,
        "native symbols": 2,
        "process names": 1,
        "GPU names": 1,
    }
    assert result.folders == (("/home/user/proj", 2),)
    assert max(len(line) for line in result.lines(60)[:-1]) <= 60


# What a report shows is all there


def values(trace: Trace, table: str) -> list[Any]:
    return [getattr(getattr(trace, table), column.name) for column in fields(getattr(trace, table))]


def assert_same(before: Trace, after: Trace) -> None:
    tables = ["calls", "syncs", "events", "brackets", *(["gil"] if before.gil else [])]
    for table in tables:
        for a, b in zip(values(before, table), values(after, table), strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(values(before, "ops")[:-1], values(after, "ops")[:-1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert before.ranges.names == after.ranges.names
    for marks in ("at_call", "samples"):
        one, two = getattr(before, marks), getattr(after, marks)
        np.testing.assert_array_equal(one.start, two.start)
        assert before.python_stacks(one.row) == after.python_stacks(two.row)
    assert before.native_chains(before.brackets.chain) == after.native_chains(after.brackets.chain)
    assert before.strings(before.ops.name) == after.strings(after.ops.name)
    assert (before.meta, before.devices, before.capture) == (after.meta, after.devices, after.capture)
    assert after.processes.items() <= before.processes.items()
    assert (before.python_frames, before.missing, before.warnings) == (
        after.python_frames,
        after.missing,
        after.warnings,
    )


def test_recorded_traces_lose_nothing_that_is_read(tmp_path: Path, sample: Sample, sample_names: list[str]) -> None:
    for name in sample_names:
        source = sample(name)
        target = scrub(source, tmp_path / f"{name}.sqlite").target
        assert target.stat().st_size < source.stat().st_size
        with open_trace(source) as before, open_trace(target) as after:
            assert_same(before, after)


@pytest.mark.parametrize("schema", ["3.7.2", "3.20.3", "3.25.0"])
def test_built_traces_lose_nothing_that_is_read(tmp_path: Path, schema: str) -> None:
    t = small(schema)
    t.nvtx_text = "textId"
    th = t.process(pid=200).thread(9)
    th.range("nsys-sync:region warm", 1, 2, domain="tool")
    th.mark("nsys-sync:rank 0/2", 3)
    th.sample(20, [("<lambda>", "/usr/lib/x.py", 3)])
    th.range("Holding GIL", 5, 9, domain="GIL Trace")
    th.range("Waiting for GIL", 2, 5, domain="GIL Trace")
    v2 = ["CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "StringIds"]
    source = t.write(tmp_path / "in.sqlite", v2=v2)
    target = scrub(source, tmp_path / "out.sqlite", map_paths=[("/home/alice", "/home/alice")]).target
    twice = scrub(target, tmp_path / "twice.sqlite")
    with open_trace(source) as before, open_trace(target) as after, open_trace(twice.target) as again:
        assert "nsys-sync:rank 0/2" in after.ranges.names
        assert_same(after, again)
        assert before.ranges.names == after.ranges.names
        assert before.missing == after.missing
        assert before.gil is not None
        assert after.gil is not None
        assert before.gil.holding.tolist() == after.gil.holding.tolist() == [0, 1]
    assert dict(twice.removed) == {}


def test_computed_columns_are_kept_as_plain_ones(tmp_path: Path) -> None:
    source = small().write(tmp_path / "in.sqlite")
    with closing(sqlite3.connect(source)) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(CUDA_CALLCHAINS)")]
        plain = ", ".join(f'"{name}" INTEGER' for name in names if name != "symbol")
        listed = plain.replace(" INTEGER", "")
        for statement in (
            "ALTER TABLE CUDA_CALLCHAINS RENAME TO kept",
            f"CREATE TABLE CUDA_CALLCHAINS (name INTEGER, symbol INTEGER AS (name + 0), {plain})",
            f"INSERT INTO CUDA_CALLCHAINS (name, {listed}) SELECT symbol, {listed} FROM kept",
            "DROP TABLE kept",
        ):
            connection.execute(statement)
        connection.commit()
    target = scrub(source, tmp_path / "out.sqlite").target
    with open_trace(source) as before, open_trace(target) as after:
        chains = after.native_chains(after.brackets.chain)
        assert chains == before.native_chains(before.brackets.chain)
        assert chains


def facts(path: Path, *project: str) -> str:
    """The JSON of a report, without the file's name and digest."""
    found = nsys_sync.analyze(path, project=project)
    return found.to_json().decode().replace(found.trace.sha256, "").replace(f'"{found.trace.file}"', '""')


def test_the_report_is_the_same(tmp_path: Path, sample: Sample, sample_names: list[str]) -> None:
    for name in sample_names:
        assert facts(scrub(sample(name), tmp_path / f"{name}.sqlite").target) == facts(sample(name)), name


def test_the_report_is_the_same_but_for_mapped_paths(tmp_path: Path, sample: Sample) -> None:
    moved = scrub(sample("probe-sync"), tmp_path / "out.sqlite", map_paths=[("/workspace/examples", "/proj")])
    before = facts(sample("probe-sync"), "/workspace/examples").replace("/workspace/examples/", "/proj/")
    assert facts(moved.target, "/proj") == before


def test_what_nobody_is_shown_reaches_no_output_of_a_report(tmp_path: Path) -> None:
    t = small()
    unseen = (environment, argument, environment_block, output, diagnostic, payload, mark, library_range)
    for plant in (*unseen, category, foreign_process, registered_string, host, display_name, uuid, damaged_note):
        plant(t)
    source = t.write(tmp_path / "in.sqlite")
    sql(source, f"CREATE TABLE notes AS SELECT '{SECRET}' AS note")
    folder = tmp_path / "out"
    folder.mkdir()
    formats = {"json": "json", "html": "html", "csv": "csv", "perfetto": "json.gz", "sarif": "sarif", "save": "sqlite"}
    options = [f"--{name}={folder / name}.{suffix}" for name, suffix in formats.items()]
    command = [sys.executable, "-m", "nsys_sync.cli", "report", str(source), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "model.py" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    files = sorted(folder.iterdir())
    assert len(files) == len(formats)
    for file in files:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8", "replace")
        assert text, file
        assert SECRET not in text, file


# Files


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    source = small().write(tmp_path / "in.sqlite")
    command = [sys.executable, "-m", "nsys_sync.cli", "scrub", str(source), str(tmp_path / "out.sqlite")]
    done = subprocess.run([*command, "--map-path", "/home/alice=/x"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Removed from in.sqlite:\n")
    assert "2  /x/proj\n" in done.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (1, "")
    assert "exists already" in again.stderr


def test_compressed_in_and_out(tmp_path: Path) -> None:
    source = small().write(tmp_path / "in.sqlite")
    packed = tmp_path / "in.sqlite.xz"
    packed.write_bytes(lzma.compress(source.read_bytes()))
    plain = scrub(packed, tmp_path / "out.sqlite").target
    again = scrub(packed, tmp_path / "out.sqlite.xz").target
    assert lzma.decompress(again.read_bytes()) == plain.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "in.sqlite",
        "in.sqlite.xz",
        "out.sqlite",
        "out.sqlite.xz",
    ]


def test_the_input_is_only_read(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    source = small().write(folder / "in.sqlite")
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    source.chmod(0o444)
    folder.chmod(0o555)
    scrub(source, tmp_path / "out.sqlite")
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before
    assert [path.name for path in folder.iterdir()] == ["in.sqlite"]


def test_file_names_that_are_no_text(tmp_path: Path) -> None:
    source = small().write(tmp_path / os.fsdecode(b"in\xff?#.sqlite"))
    for name in (b"out\xff%41.sqlite", b"out\xff.sqlite.xz"):
        with open_trace(scrub(source, tmp_path / os.fsdecode(name)).target) as trace:
            assert len(trace.calls)


def test_a_report_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(b"anything")
    with pytest.raises(InputError, match="closed format") as refused:
        scrub(report, tmp_path / "out.sqlite")
    assert "nsys-sync export" in refused.value.hint


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    source = small().write(tmp_path / "in.sqlite")
    target = tmp_path / "out.sqlite"
    target.write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        scrub(source, target)
    assert target.read_text() == "mine"
    scrub(source, target, force=True)
    assert rows(target, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(1,)]


def test_the_input_is_never_the_output(tmp_path: Path) -> None:
    source = small().write(tmp_path / "in.sqlite")
    link = tmp_path / "link.sqlite"
    link.symlink_to(source)
    for target in (source, link):
        with pytest.raises(OutputError, match="never changed"):
            scrub(source, target, force=True)


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ("nowhere/out.sqlite", OutputError, "does not exist"),
        (".", OutputError, "is a folder"),
        ("/dev/null", OutputError, "not a file"),
    ],
)
def test_targets_that_cannot_be(tmp_path: Path, target: str, error: type[Exception], words: str) -> None:
    source = small().write(tmp_path / "in.sqlite")
    with pytest.raises(error, match=words):
        scrub(source, tmp_path / target, force=True)


def test_the_terminal_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not go to a terminal"):
        scrub(small().write(tmp_path / "in.sqlite"), "-")


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        ([("/home/alice/proj", "/a"), ("/home/alice", "/b")], "/a/model.py"),
        ([("/home/alice", "/b"), ("/home/alice/proj", "/a")], "/b/proj/model.py"),
        ([("/home/alice/proj", "/a"), ("/a", "/z")], "/a/model.py"),
        ([("/home/alice/proj", "/a"), ("/home/alice", "/b"), ("/home/alice/proj", "/z")], "/a/model.py"),
        ([("/home/alice/proj/model.py", "m.py")], "m.py"),
        ([("/home/al", "/z")], "/home/user/proj/model.py"),
        ([("/home", "/")], "/alice/proj/model.py"),
        ([("/home/alice", r"\1\g<0>")], r"\1\g<0>/proj/model.py"),
    ],
)
def test_of_several_path_maps_the_first_that_fits_wins(
    tmp_path: Path, maps: list[tuple[str, str]], expected: str
) -> None:
    target = scrub(small().write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite", map_paths=maps).target
    with open_trace(target) as trace:
        assert trace.python_stacks(trace.at_call.row)[0][0].file == expected


@pytest.mark.parametrize("pair", [("", "/x"), ("/", "/x"), ("/x", ""), ("/x\n", "/y"), ("/x", "/\udcff")])
def test_path_maps_that_cannot_be(tmp_path: Path, pair: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="path map"):
        scrub(small().write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite", map_paths=[pair])


@pytest.mark.parametrize("content", [b"", b"text", b"SQLite format 3\0" + b"\0" * 84])
def test_bad_input_leaves_nothing_behind(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "in.sqlite"
    source.write_bytes(content)
    with pytest.raises(InputError):
        scrub(source, tmp_path / "out.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["in.sqlite"]


def test_other_databases_are_not_exports(tmp_path: Path) -> None:
    source = tmp_path / "in.sqlite"
    sql(source, "CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(InputError, match="not an Nsight Systems export"):
        scrub(source, tmp_path / "out.sqlite")


def test_flipped_bytes_give_a_copy_or_a_sentence(tmp_path: Path) -> None:
    whole = small().write(tmp_path / "in.sqlite").read_bytes()
    random = np.random.default_rng(7)
    outcomes = set()
    for attempt in range(150):
        data = bytearray(whole)
        for at in random.integers(100, len(data), size=random.integers(1, 60)):
            data[at] = random.integers(256)
        source = tmp_path / f"{attempt}.sqlite"
        source.write_bytes(data)
        try:
            scrub(source, tmp_path / "out.sqlite", force=True)
            outcomes.add("copy")
        except InputError:
            outcomes.add("sentence")
        source.unlink()
    assert outcomes == {"copy", "sentence"}
    assert {path.name for path in tmp_path.iterdir()} == {"in.sqlite", "out.sqlite"}
