from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from nsys_sync.analysis import findings as f
from nsys_sync.errors import OutputError
from nsys_sync.report import html
from nsys_sync.report.page import embedded
from tests.report.factory import HOSTILE, make_report, make_site, make_timeline, reports


class Text(HTMLParser):
    """The text of a page without its scripts and styles, and the elements it has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self._silent = "", False
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent = tag in {"script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.text += data


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, object] = json.loads(found[1])
    return data


def test_readable_without_javascript() -> None:
    text = Text(html.page(make_report(), None)).text
    for part in (
        "Syncs cost 40 ms",
        "train.py:14",
        "h = out.cpu()",
        "20.00",
        "avoidable",
        "refilling after a sync",
        "30.00 ms",
    ):
        assert part in text


def test_nothing_comes_from_elsewhere() -> None:
    page = html.page(make_report(), make_timeline())
    loads = [
        (tag, a) for tag, a in Text(page).tags if tag in {"link", "img", "iframe"} or (tag == "script" and "src" in a)
    ]
    assert loads == []
    policy = next(a["content"] for tag, a in Text(page).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_unmeasured_is_not_zero() -> None:
    site = make_site(recoverable_ns=None, calls_per_step=None, what_if=None)
    device = f.DeviceTime.withheld(0, 5, "graph replays are not in the trace")
    page = Text(html.page(make_report([site], devices=[device], what_if=f.WhatIfs(all=None, by_class={})), None)).text
    assert "Idle time is not given: graph replays are not in the trace" in page
    assert "not predicted" in page


def test_two_processes_can_be_chosen() -> None:
    names = [f.ProcessName(pid=p, name="python", rank=p - 41) for p in (41, 42)]
    report = make_report()
    trace = msgspec.structs.replace(report.trace, processes=names)
    page = html.page(msgspec.structs.replace(report, trace=trace), make_timeline(processes=2))
    assert '<option value="42">rank 1</option>' in page
    groups = [lane["group"] for lane in data_of(page)["timeline"]["lanes"]]  # type: ignore[index]
    assert list(dict.fromkeys(groups)) == ["rank 0", "GPU 0", "rank 1", "GPU 1"]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_change_no_markup(hostile: str) -> None:
    calm = Text(html.page(make_report([make_site(function="f")]), make_timeline(sites=1))).tags
    site = make_site(
        function=hostile, title=hostile, file="/x/" + hostile, stack=[f.Frame(function=hostile, file=hostile, line=3)]
    )
    page = html.page(
        make_report([site], headline=f.Headline(slug="mixed", text=hostile)), make_timeline(sites=1, hostile=hostile)
    )
    assert [tag for tag, _ in Text(page).tags] == [tag for tag, _ in calm]
    page.encode("utf-8")
    data_of(page)


def test_embedded_json_cannot_end_its_element() -> None:
    text = embedded({"a": "</script><!--<script>\u2028\u2029&\ud800"})
    assert text.isascii()
    assert not set(text) & set("<>&")
    assert json.loads(text) == {"a": "</script><!--<script>\u2028\u2029&\ud800"}


def test_the_same_report_makes_the_same_page() -> None:
    assert html.page(make_report(), make_timeline()) == html.page(make_report(), make_timeline())


def test_a_page_is_not_overwritten_without_force(tmp_path: Path) -> None:
    path = html.write(make_report(), None, tmp_path / "page.html")
    with pytest.raises(OutputError):
        html.write(make_report([]), None, path)
    html.write(make_report([]), None, path, force=True)
    assert "No call blocked the CPU." in path.read_text()


@settings(max_examples=60, deadline=None)
@given(reports())
def test_any_report_makes_a_page(report: f.Report) -> None:
    page = html.page(report, None)
    page.encode("utf-8")
    sites = data_of(page)["sites"]
    assert isinstance(sites, list)
    assert len(sites) == len(report.sites)
