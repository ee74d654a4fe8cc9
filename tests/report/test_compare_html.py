from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nsys_sync.analysis import findings as f
from nsys_sync.compare import compare
from nsys_sync.errors import OutputError
from nsys_sync.report import html
from nsys_sync.report.compare_html import comparison_page
from tests.report.factory import HOSTILE, make_report, make_site
from tests.report.test_html import Text


def named(report: f.Report, name: str) -> f.Report:
    trace = msgspec.structs.replace(report.trace, file=name, sha256=name)
    return msgspec.structs.replace(report, trace=trace)


def page(before: list[f.Site], after: list[f.Site]) -> str:
    return comparison_page(compare([named(make_report(before), "a.sqlite")], [named(make_report(after), "b.sqlite")]))


def test_sites_gone_new_and_same_without_javascript() -> None:
    text = Text(page([make_site(0), make_site(1)], [make_site(1), make_site(2)])).text
    for part in (
        "1 site gone, 1 new",
        "train.py:14",
        "train.py:15",
        "train.py:16",
        "a.sqlite",
        "b.sqlite",
        "step time",
        "h = out.cpu()",
    ):
        assert part in text


def test_an_edited_line_is_shown_before_and_after() -> None:
    edited = f.SourceLine(lines={14: "h = out.cpu().numpy()"}, sha256="")
    text = Text(page([make_site(0)], [make_site(0, source=edited)])).text
    assert "− h = out.cpu()" in text
    assert "+ h = out.cpu().numpy()" in text


def test_nothing_comes_from_elsewhere_and_it_is_light() -> None:
    made = page([make_site(0)], [])
    assert "default-src &#39;none&#39;" in made
    assert len(made) < 100_000


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_change_no_markup(hostile: str) -> None:
    calm = Text(page([make_site(0, function="f")], [])).tags
    site = make_site(0, function=hostile, title=hostile, file="/x/" + hostile, apis={hostile: 1})
    assert [tag for tag, _ in Text(page([site], [])).tags] == [tag for tag, _ in calm]


def test_a_page_is_not_overwritten_without_force(tmp_path: Path) -> None:
    comparison = compare([named(make_report(), "a")], [named(make_report(), "b")])
    path = html.write_comparison(comparison, tmp_path / "page.html")
    with pytest.raises(OutputError):
        html.write_comparison(comparison, path)
    assert html.write_comparison(comparison, path, force=True) == path
