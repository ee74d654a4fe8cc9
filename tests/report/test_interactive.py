"""What a report can do in a Python session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nsys_sync
from nsys_sync.analysis.findings import Gaps
from nsys_sync.report.interactive import Report
from tests.report.factory import make_report


def test_what_analyze_gives_is_what_load_reads_back(sample: Callable[[str], Path], tmp_path: Path) -> None:
    report = nsys_sync.analyze(sample("probe-sync"))
    saved = tmp_path / "report.json"
    saved.write_bytes(report.to_json())
    assert nsys_sync.Report.load(saved) == report
    assert [bar.type for bar in report.figure().data] == ["bar"]


def test_the_sites_as_a_table() -> None:
    report = Report.of(make_report())
    table = report.to_frame()
    assert table["line"].tolist() == [site.line for site in report.sites]
    assert table["wait_ns"].tolist() == [site.wait_ns.total for site in report.sites]
    assert "<table" in report._repr_html_()


def test_no_sites_are_a_table_without_rows() -> None:
    table = Report.of(make_report([])).to_frame()
    assert (len(table), table["wait_ns"].sum()) == (0, 0)


def test_the_gaps_as_a_table() -> None:
    table = Report.of(make_report()).gaps_frame()
    assert list(table.columns) == ["device", "start_ns", "end_ns", "cause", "site"]
    gaps = make_report().gaps.items
    assert [tuple(row) for row in table.itertuples(index=False)] == [
        (gap.device, gap.start_ns, gap.end_ns, gap.cause, gap.site) for gap in gaps
    ]
    assert len(table) > 0


def test_no_gaps_are_a_table_without_rows() -> None:
    table = Report.of(make_report(gaps=Gaps(total=0, shown=0, items=[]))).gaps_frame()
    assert (len(table), list(table.columns)) == (0, ["device", "start_ns", "end_ns", "cause", "site"])
