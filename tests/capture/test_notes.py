"""What is written into a fresh export: the launcher's note, the source lines shown, the frames of old versions."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nsys_sync import Report, analyze
from nsys_sync.capture.export import read_marks
from nsys_sync.errors import InputError
from nsys_sync.scrub import scrub
from nsys_sync.trace.annotate import RawMark, annotate, is_whole, stacks_missing, write_frames
from nsys_sync.trace.capture_info import CaptureInfo
from tests.builder import TraceBuilder
from tests.capture.conftest import Sandbox


def rows(path: Path, sql: str) -> list[Any]:
    with sqlite3.connect(path) as connection:
        return connection.execute(sql).fetchall()


def waiting_at(script: Path, line: int) -> TraceBuilder:
    """A trace in which the script's line waits for a kernel, five times."""
    trace = TraceBuilder()
    process = trace.process()
    thread = process.thread()
    for start in range(0, 50_000, 10_000):
        corr = thread.call("cudaLaunchKernel_v7000", start, start + 100)
        trace.kernel(process, start + 200, start + 5_000, corr=corr, stream=7)
        frames = [("train", str(script), line)]
        thread.sync("cudaStreamSynchronize_v3020", start + 300, start + 6_000, stream=7, frames=frames)
    return trace


def test_the_report_and_its_source_lines_can_be_read_again(sandbox: Sandbox, tmp_path: Path) -> None:
    text = "import sys\n\n\ndef train():\n    loss.item()\n\n\nsys.exit(0)\n"
    script = sandbox.script(text)
    sandbox.behaviour["export"] = str(waiting_at(script, 5).write(tmp_path / "made.sqlite"))
    done = sandbox.run("profile", "--capture", "all", "-o", "run", str(script))
    assert done.returncode == 0, done.stderr
    saved = (sandbox.folder / "run.json").read_bytes()
    assert analyze(sandbox.folder / "run.sqlite").to_json() == saved
    script.unlink()
    (before,) = Report.from_json(saved).sites
    (after,) = analyze(sandbox.folder / "run.sqlite").sites
    assert before.source is not None
    assert before.source.lines[5] == "    loss.item()"
    assert before.source.sha256 == hashlib.sha256(text.encode()).hexdigest()
    for site in (before, after):
        assert (site.source_status, site.line, site.source) == ("captured", 5, before.source)


KEPT_VALUE = """import sys

losses = []


def train():
    losses.append(loss.item())


def unseen():
    return "a word that no report shows"


\x0c
sys.exit(0)
"""


def sites(path: Path) -> list[bytes]:
    return [msgspec.json.encode(site) for site in analyze(path).sites]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_the_rules_read_the_kept_file_and_not_the_one_on_disk(sandbox: Sandbox, tmp_path: Path, encoding: str) -> None:
    script = sandbox.script("")
    head = "# -*- coding: latin-1 -*- Maß\r\n" if encoding == "latin-1" else "# Maß\r\n"
    script.write_bytes((head + KEPT_VALUE.replace("\n", "\r\n")).encode(encoding))
    sandbox.behaviour["export"] = str(waiting_at(script, 8).write(tmp_path / "made.sqlite"))
    done = sandbox.run("profile", "--capture", "all", "-o", "run", str(script))
    assert done.returncode == 0, done.stderr
    trace = sandbox.folder / "run.sqlite"
    (saved,) = Report.from_json((sandbox.folder / "run.json").read_bytes()).sites
    assert (saved.rule, saved.class_) == ("scalar-accumulated", "deferrable")
    assert saved.source is not None
    assert saved.source.lines[8] == "    losses.append(loss.item())"
    with_script = sites(trace)
    assert with_script == [msgspec.json.encode(saved)]
    script.write_text("something else\n" * 20)
    assert sites(trace) == with_script
    script.unlink()
    assert sites(trace) == with_script


def test_a_scrubbed_copy_has_only_the_lines_that_the_report_shows(sandbox: Sandbox, tmp_path: Path) -> None:
    script = sandbox.script(KEPT_VALUE)
    sandbox.behaviour["export"] = str(waiting_at(script, 7).write(tmp_path / "made.sqlite"))
    sandbox.run("profile", "--capture", "all", "-o", "run", str(script))
    assert b"a word that no report shows" in (sandbox.folder / "run.sqlite").read_bytes()
    scrub(sandbox.folder / "run.sqlite", tmp_path / "clean.sqlite")
    script.unlink()
    (site,) = analyze(tmp_path / "clean.sqlite").sites
    assert site.source is not None
    assert site.source.lines[7] == "    losses.append(loss.item())"
    assert b"a word that no report shows" not in (tmp_path / "clean.sqlite").read_bytes()


def test_a_large_file_is_kept_only_around_the_lines_shown(sandbox: Sandbox, tmp_path: Path) -> None:
    script = sandbox.script(KEPT_VALUE + "# long\n" * 200_000)
    sandbox.behaviour["export"] = str(waiting_at(script, 7).write(tmp_path / "made.sqlite"))
    sandbox.run("profile", "--capture", "all", "-o", "run", str(script))
    (note,) = rows(sandbox.folder / "run.sqlite", "SELECT value FROM NSYS_SYNC_CAPTURE")[0]
    kept = msgspec.json.decode(note, type=CaptureInfo).sources[str(script)]
    assert kept.text is None
    assert sorted(kept.lines) == list(range(4, 11))


def test_no_source_leaves_it_out_of_every_file(sandbox: Sandbox, tmp_path: Path) -> None:
    script = sandbox.script(KEPT_VALUE)
    sandbox.behaviour["export"] = str(waiting_at(script, 7).write(tmp_path / "made.sqlite"))
    done = sandbox.run("profile", "--no-source", "--capture", "all", "-o", "run", str(script))
    assert "losses.append(loss.item())" in done.stdout
    for suffix in ("sqlite", "json", "html"):
        assert b"losses.append(" not in (sandbox.folder / f"run.{suffix}").read_bytes(), suffix
    (site,) = Report.from_json((sandbox.folder / "run.json").read_bytes()).sites
    assert (site.rule, site.source, site.source_status) == ("scalar-accumulated", None, "missing")


def test_nothing_of_the_environment_is_noted(sandbox: Sandbox) -> None:
    sandbox.environment["SECRET_TOKEN"] = "not-for-anyone"
    sandbox.run("profile", "--capture", "all", "-o", "run", str(sandbox.script("pass")), "--password", "hunter2")
    for name in ("run.json", "run.html", "run.sqlite"):
        content = (sandbox.folder / name).read_bytes()
        assert b"not-for-anyone" not in content
        assert b"hunter2" not in content


def test_a_note_replaces_the_one_before(tmp_path: Path) -> None:
    path = waiting_at(Path("train.py"), 1).write(tmp_path / "t.sqlite")
    for name in ("all", "script"):
        annotate(path, CaptureInfo(tool_version="1", range=name))
    ((text,),) = rows(path, "SELECT value FROM NSYS_SYNC_CAPTURE")
    assert msgspec.json.decode(text, type=CaptureInfo).range == "script"


def test_a_file_that_cannot_be_changed_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_text("no database at all, " * 10)
    for broken in (path, tmp_path / "missing.sqlite"):
        with pytest.raises(InputError, match="cannot be changed"):
            annotate(broken, CaptureInfo(tool_version="1"))


# Frames of old versions


def payload(state: int, frames: list[tuple[int, int, int]], garbage: int = 0xABCD) -> bytes:
    packed = b"".join(struct.pack("<QQII", *frame, garbage) for frame in frames)
    return struct.pack("<IIII", state, 1, len(frames), garbage) + packed


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, int, dict[str, int]]:
    """An export of 2023.4: a mark at a call, a mark between calls, one of another library; thread and string ids."""
    trace = TraceBuilder(schema="3.7.2", payload=())
    process = trace.process()
    thread = process.thread()
    corr = thread.call("cudaLaunchKernel_v7000", 1_000, 1_100)
    trace.kernel(process, 1_200, 5_000, corr=corr, stream=7)
    frames = [("train", "/proj/train.py", 10)]
    thread.sync("cudaStreamSynchronize_v3020", 2_000, 6_000, stream=7, frames=frames)
    thread._python_mark("Python Backtrace", 7_000, frames)
    thread.mark("other", 8_000, "NCCL")
    ids = {name: trace.string(name) for name in ("train", "/proj/train.py", "main")}
    return trace.write(tmp_path / "old.sqlite"), thread.gtid, ids


def test_marks_get_the_frames_of_the_json_export(old: tuple[Path, int, dict[str, int]]) -> None:
    path, tid, ids = old
    domains = dict(rows(path, "SELECT text, domainId FROM NVTX_EVENTS WHERE eventType = 75"))
    python, other = domains["Python Backtrace"], domains["NCCL"]
    assert stacks_missing(path)
    assert not is_whole(path)
    stack = [(ids["train"], ids["/proj/train.py"], 10), (ids["main"], ids["/proj/train.py"], 20)]
    marks = [
        RawMark(tid, 1_950, python, payload(3, stack)),
        RawMark(tid, 7_000, python, payload(1, stack[1:])),
        RawMark(tid, 8_000, other, payload(1, stack)),
        RawMark(tid, 9_999, python, payload(1, stack)),
    ]
    assert write_frames(path, marks) == 2
    assert is_whole(path)
    found = rows(path, "SELECT start, jsonText FROM NVTX_EVENTS WHERE jsonText IS NOT NULL ORDER BY start")
    assert [(start, json.loads(text)) for start, text in found] == [
        (
            1_950,
            {
                "Python Backtrace": {
                    "Thread state ID": 3,
                    "Frames count": 2,
                    "Frames": [{"Function": f, "File": p, "Line": n} for f, p, n in stack],
                }
            },
        ),
        (
            7_000,
            {
                "Python Periodic Sampling": {
                    "Thread state ID": 1,
                    "Frames count": 1,
                    "Frames": [{"Function": stack[1][0], "File": stack[1][1], "Line": 20}],
                }
            },
        ),
    ]
    (site,) = analyze(path).sites
    assert (site.file, site.line, site.stack_origin) == ("/proj/train.py", 10, "exact")


@pytest.mark.parametrize("data", [b"", b"\0" * 8, payload(1, [])[:12], payload(1, [(1, 2, 3)])[:-1], b"\xff" * 40])
def test_bytes_that_are_no_stack_are_left_out(old: tuple[Path, int, dict[str, int]], data: bytes) -> None:
    path, tid, _ = old
    domains = dict(rows(path, "SELECT text, domainId FROM NVTX_EVENTS WHERE eventType = 75"))
    assert write_frames(path, [RawMark(tid, 1_950, domains["Python Backtrace"], data)]) == 0


def test_the_json_export_is_read_line_by_line(tmp_path: Path) -> None:
    data = base64.b64encode(b"stack").decode()
    lines = [
        '{"data":["strings","BinaryData"]}',
        json.dumps({"Type": 34, "NvtxEvent": {"Timestamp": "5", "GlobalTid": "7", "DomainId": "2", "Payload": {}}}),
        json.dumps(
            {
                "Type": 34,
                "NvtxEvent": {
                    "Timestamp": "6",
                    "GlobalTid": "7",
                    "DomainId": "2",
                    "Payload": {"BinaryData": [{"SchemaId": "1", "Data": data}]},
                },
            }
        ),
        '{"files":[]}',
    ]
    path = tmp_path / "export.json"
    path.write_text("\n".join(lines))
    assert list(read_marks(path)) == [RawMark(7, 6, 2, b"stack")]
