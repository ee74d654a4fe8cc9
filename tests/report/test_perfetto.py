from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nsys_sync.errors import UsageError
from nsys_sync.report import perfetto
from tests.report.factory import HOSTILE, make_report, make_site, make_timeline


def events(**shape: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads("".join(perfetto.pieces(make_report(), make_timeline(**shape))))[
        "traceEvents"
    ]
    return found


def test_every_call_operation_gap_and_sync_is_there() -> None:
    timeline = make_timeline(steps=4, kernels=8, processes=2)
    slices = Counter(e["cat"].split(",")[0] for e in events(steps=4, kernels=8, processes=2) if e["ph"] == "X")
    assert slices == {
        "step": len(timeline.ranges.start),
        "sync": 8,
        "blocking": 8,
        "launch": 64,
        "kernel": 56,
        "memcpy": 8,
        "idle": len(timeline.gaps.start),
    }


def test_times_keep_every_nanosecond() -> None:
    text = "".join(perfetto.pieces(make_report(), make_timeline(steps=2, kernels=3)))
    first = json.loads(text, parse_float=str)["traceEvents"]
    kernel = next(e for e in first if e["ph"] == "X" and e["cat"] == "kernel")
    assert (kernel["ts"], kernel["dur"]) == ("20.000", "9.000")
    assert perfetto._us(2**53 * 1000 + 1) == f"{2**53}.001"


def test_a_sync_is_named_by_its_line_and_encloses_its_calls() -> None:
    found = [e for e in events(steps=2) if e["ph"] == "X" and e["cat"] in {"sync", "blocking"}]
    sync, call = sorted(found[::2], key=lambda e: e["cat"], reverse=True)
    assert sync["name"] == "train.py:14"
    assert (sync["pid"], sync["tid"], sync["ts"], sync["dur"]) == (call["pid"], call["tid"], call["ts"], call["dur"])
    assert sync["args"]["source"] == "h = out.cpu()"


def test_an_arrow_leads_from_each_gap_over_the_launch_to_the_operation_that_ends_it() -> None:
    found = events(steps=3)
    arrows = [e for e in found if e.get("name") == "ends the gap"]
    assert Counter(e["ph"] for e in arrows) == {"s": 2, "t": 2, "f": 2}
    ends = {e["ts"] + e["dur"] for e in found if e["ph"] == "X" and e["cat"].startswith("idle")}
    assert {e["ts"] for e in arrows if e["ph"] == "f"} == ends


def test_a_saved_report_has_no_timeline(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        perfetto.write(make_report(), None, tmp_path / "trace.json")
    assert error.value.slug == "no-timeline"
    assert list(tmp_path.iterdir()) == []


def test_a_name_in_gz_is_compressed(tmp_path: Path) -> None:
    plain = perfetto.write(make_report(), make_timeline(), tmp_path / "trace.json")
    packed = perfetto.write(make_report(), make_timeline(), tmp_path / "trace.json.gz")
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_are_text(hostile: str) -> None:
    report = make_report([make_site(file=hostile, function=hostile)] * 3)
    text = "".join(perfetto.pieces(report, make_timeline(steps=2, kernels=2, hostile=hostile)))
    assert text.isascii()
    assert len(json.loads(text)["traceEvents"]) > 10
