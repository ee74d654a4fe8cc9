"""Captures of unedited programs have their syncs at the lines that the programs mark, and the table says so."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest

from nsys_sync import analyze
from nsys_sync.trace.private import REMOVED
from scripts.mask_report import WORDS, mask_of, masked, shown_texts
from scripts.record_samples import found_in

SAMPLES = Path(__file__).parent.parent.parent / "sample_traces"
TRACES = SAMPLES / "captures"
ROWS: list[dict[str, Any]] = json.loads((SAMPLES / "captures.json").read_text())
KEPT = [row for row in ROWS if row["trace"]]


def test_every_trace_is_in_the_table_once() -> None:
    names = [row["trace"] for row in KEPT]
    assert sorted(names) == sorted(path.name.removesuffix(".sqlite.xz") for path in TRACES.glob("*.sqlite.xz"))
    assert {row["program"] for row in ROWS} <= {path.stem for path in (SAMPLES / "programs").iterdir()}


@pytest.mark.parametrize("row", KEPT, ids=lambda row: str(row["trace"]))
def test_the_table_says_what_the_trace_holds(row: dict[str, Any]) -> None:
    report = analyze(TRACES / f"{row['trace']}.sqlite.xz")
    found = found_in(json.loads(report.to_json()), SAMPLES / f"programs/{row['program']}.py")
    shared = row.keys() & found.keys() - {"warnings"}
    assert {"syncs", "at_lines", "missing_lines", "other_lines", "steps", "range", "slowdown"} <= shared
    assert {key: found[key] for key in shared} == {key: row[key] for key in shared}
    assert found["python_frames"] == "recorded"
    # A rank that does not log has fewer of the lines.
    assert not row["missing_lines"] or row["ranks"] == [1]


def test_old_and_new_nsys_lead_to_the_same_rules() -> None:
    maps = [("/workspace/sample_traces", str(SAMPLES))]
    new, old = (
        {site.line: site.rule for site in analyze(TRACES / f"{name}.sqlite.xz", maps=maps).sites}
        for name in ("plain_loop", "plain_loop-2023.4")
    )
    assert new == old == {12: "upload-batch", 18: "check-can-wait", 19: "scalar-accumulated"}


@pytest.mark.parametrize("row", KEPT, ids=lambda row: str(row["trace"]))
def test_nothing_of_the_recording_machine_is_left(row: dict[str, Any]) -> None:
    report = analyze(TRACES / f"{row['trace']}.sqlite.xz")
    files = {frame.file for site in report.sites for frame in site.stack if frame.file.startswith("/")}
    assert files
    assert {"/".join(path.split("/")[:3]) for path in files} <= {
        "/workspace/sample_traces",
        "/workspace/nsys_sync",
        "/opt/torch",
        "/tmp/torchinductor_user",
        "/usr/lib",
    }


def test_the_report_has_no_text_that_its_export_does_not_have() -> None:
    (path,) = TRACES.glob("*.nsys-rep.xz")
    report = lzma.decompress(path.read_bytes())
    shown = shown_texts(path.with_name(path.name.replace("nsys-rep", "sqlite")))
    assert masked(report, mask_of(shown)) == report
    # The same without trust in how its parts are told apart: nothing is compressed, so all it says is in its bytes.
    for text in sorted(shown | WORDS | {REMOVED}, key=len, reverse=True):
        if len(text) > 3:
            report = report.replace(text.encode(), b"\0")
    known = rb"NVIDIA Tegra Profiler Report [\d@v.-]+|QDTEXT00|U3w\[END\]|Offset|-?\d+[*\x22]?|Telemetry"
    known += rb"|(?:Analysis Options|Raw Sampling|Profiling Preset|UI) Data|Sampling Data Offsets|Agent activity list"
    assert [text for text in re.findall(rb"[ -~]{6,}", report) if not re.fullmatch(known, text)] == []
