from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
from selenium.webdriver.common.keys import Keys

from nsys_sync.analysis import findings as f
from nsys_sync.analysis.run import analyze_and_draw
from nsys_sync.analysis.timeline import Timeline
from nsys_sync.compare import compare
from nsys_sync.inputs import read_ranks
from nsys_sync.ranks import compare_ranks, members
from nsys_sync.report import html
from nsys_sync.report.ranks_html import ranks_page
from tests.browser import chromium
from tests.browser.conftest import Page
from tests.ranks.test_ranks import APART
from tests.report.factory import HOSTILE, MS, make_report, make_site, make_timeline
from tests.waiting import wait_until

Show = Callable[..., Page]
Made = tuple[f.Report, Timeline | None]


def classes(number: int) -> list[f.Site]:
    """Sites of every class in several files."""
    kinds = ("avoidable", "deferrable", "needed", "intentional", "unknown")
    return [make_site(n, class_=kinds[n % 5], file=f"/home/me/project/part{n % 3}.py") for n in range(number)]


def accessibility(page: Page) -> list[tuple[str, list[Any]]]:
    """What axe finds wrong: rule and elements."""
    page.run(resources.files("axe_core_python").joinpath("axe.min.js").read_text())
    found = page.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert {rule["id"] for rule in found["passes"]} >= {"color-contrast", "button-name", "label"}
    return [(rule["id"], [node["target"] for node in rule["nodes"]]) for rule in found["violations"]]


@cache
def thousand_sites() -> Made:
    return make_report(classes(1000)), make_timeline(steps=3000, sites=1000)


@cache
def million_kernels() -> Made:
    return make_report(classes(1000)), make_timeline(steps=200_000, kernels=5, sites=1000)


@pytest.mark.parametrize("name", ["probe-sync", "ddp-fix0", "graph-fix0", "probe-2023.4"])
def test_a_recorded_trace_opens_offline_without_a_complaint(
    show: Show, sample: Callable[[str], Path], name: str
) -> None:
    report, timeline = analyze_and_draw(sample(name))
    page = show(report, timeline).drawn()
    assert page.console() == []
    assert page.requests() == []
    assert len(page.all("#table tbody tr[data-index]")) == len(report.sites)
    assert page.texts("h1") == [report.headline.text]


@pytest.mark.parametrize("make", [thousand_sites, million_kernels])
def test_a_large_report_opens_offline_without_a_complaint(show: Show, make: Callable[[], Made]) -> None:
    report, timeline = make()
    page = show(report, timeline).drawn()
    assert page.path.stat().st_size < 10_000_000

    def painted_ms() -> float:
        return float(page.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime"))

    # What else the machine does can only add to it, so a few more are tried before it is called too slow.
    for _ in range(9):
        if painted_ms() < 2000:
            break
        page.driver.refresh()
        page.drawn()
    assert painted_ms() < 2000
    assert page.console() == []
    assert page.requests() == []
    assert len(page.all("#table tbody tr[data-index]")) == len(report.sites)
    assert "bars stand for" in page.texts("#thinned")[0]


def test_a_saved_report_says_that_it_has_no_timeline(show: Show) -> None:
    page = show(make_report(), None)
    assert "made from a saved report" in page.texts("#timeline-section .note")[0]
    assert page.path.stat().st_size < 200_000
    page.one("#site-0 button").click()
    assert "Stack, innermost first" in page.texts("tr.detail h3")
    assert page.console() == []


def test_sorting(show: Show) -> None:
    page = show(make_report([make_site(n, calls=c) for n, c in enumerate((5, 30, 20))]), None)
    heading = page.one("th[data-sort=calls]")
    button = page.one("th[data-sort=calls] button")

    def order() -> list[str]:
        return [row.get_attribute("data-index") for row in page.all("#table tbody tr[data-index]")]

    assert order() == ["0", "1", "2"]
    button.click()
    assert (order(), heading.get_attribute("aria-sort")) == (["1", "2", "0"], "descending")
    page.one("#site-2 button").click()
    button.click()
    assert (order(), heading.get_attribute("aria-sort")) == (["0", "2", "1"], "ascending")
    assert page.run("return document.getElementById('site-2').nextElementSibling.className") == "detail"
    page.one("th[data-sort=place] button").click()
    assert order() == ["0", "1", "2"]
    assert page.all("[aria-sort]") == [page.one("th[data-sort=place]")]


def test_filters_and_search(show: Show) -> None:
    page = show(make_report(classes(30)), None)

    def shown() -> int:
        rows = [row for row in page.all("#table tbody tr[data-index]") if row.is_displayed()]
        assert page.texts("#shown") == [f"{len(rows)} of 30 sites"]
        return len(rows)

    assert shown() == 30
    next(b for b in page.all("#classes button") if b.text == "deferrable").click()
    assert shown() == 6
    page.run("const s = document.getElementById('file'); s.value = 'part1.py'; s.dispatchEvent(new Event('input'))")
    assert shown() == 2
    page.one("#search").send_keys("SITE-PACKAGES out.cpu")
    assert shown() == 2
    page.one("#search").send_keys(" no-such-word")
    assert shown() == 0
    assert page.texts("#none") == ["No site matches."]
    page.one("#clear").click()
    assert shown() == 30
    page.one("#search").send_keys(":17")
    assert shown() == 1


def test_a_row_opens_stack_source_fix_and_figures(show: Show) -> None:
    guess = f.WhatIf(
        step_ns_now=20 * MS,
        step_ns_low=15 * MS,
        step_ns_high=17 * MS,
        gpu_bound_ns=MS,
        confidence="low",
        reasons=["why"],
    )
    page = show(make_report([make_site(what_if=guess)]), make_timeline(sites=1)).drawn()
    page.one("#site-0 button").click()
    detail = page.one("tr.detail").text
    for part in (
        "_tensor.py:7 cpu",
        "/home/me/project/train.py:14 step",
        "h = out.cpu()",
        "Copy into pinned memory.",
        "x.cpu()",
        "y.copy_(x)",
        "15.0 ms to 17.0 ms instead of 20.0 ms",
        "why",
        "cudaMemcpyAsync × 10",
        "10 syncs",
    ):
        assert part in detail, part
    assert "h = out.cpu()" in page.texts(".listing .here")[0]
    assert page.one("#site-0 button").get_attribute("aria-expanded") == "true"
    page.one("#site-0 button").click()
    assert page.all("tr.detail") == []


def test_source_can_be_left_out(show: Show) -> None:
    page = show(make_report(), make_timeline(), source=False)
    assert "out.cpu()" not in page.path.read_text()


def test_zooming_to_gaps_syncs_and_steps(show: Show) -> None:
    timeline = make_timeline(steps=10, kernels=20)
    page = show(make_report(), timeline).drawn()
    whole = page.view()
    assert list(whole) == [0, timeline.end_ns]
    page.one("[data-do=next-gap]").click()
    start, end = page.view()
    gap = timeline.gaps
    assert start <= gap.start[0] < gap.end[0] <= end
    assert end - start < (whole[1] - whole[0]) / 3
    assert page.texts("#selected")[0].startswith("Gap 1 of 9: GPU 0 idle for")
    assert "caused by train.py:14" in page.texts("#selected")[0]
    assert len(page.run("return document.getElementById('timeline').layout.shapes")) >= 5
    page.run("const s = document.getElementById('step'); s.value = 4; s.dispatchEvent(new Event('input'))")
    start, end = page.view()
    assert start < timeline.ranges.start[4] < timeline.ranges.end[4] < end
    page.one("#selected button").click()
    assert page.one("#site-0 button") == page.driver.switch_to.active_element
    next(b for b in page.all("tr.detail button") if b.text == "Next ›").click()
    start, end = page.view()
    sync = timeline.calls.start[timeline.calls.site == 0][0]
    assert start < sync < end
    page.one("[data-do=reset]").click()
    assert page.view() == whole


def test_everything_by_keyboard(show: Show) -> None:
    page = show(make_report(), make_timeline()).drawn()
    frame = page.one("#timeline")
    page.run("arguments[0].focus()", frame)

    def press(*keys: str) -> tuple[float, float]:
        page.driver.switch_to.active_element.send_keys(*keys)
        return page.view()

    whole = page.view()
    start, end = press("+")
    assert end - start == pytest.approx((whole[1] - whole[0]) / 2)
    assert press(Keys.ARROW_LEFT)[0] < start
    assert press("0") == whole
    assert press("n") != whole
    assert page.texts("#selected")[0].startswith("Gap 1 of 9")
    press("n")
    assert page.texts("#selected")[0].startswith("Gap 2 of 9")
    press("p")
    assert page.texts("#selected")[0].startswith("Gap 1 of 9")
    press("]")
    assert page.texts("#selected")[0].startswith("Sync at train.py:")
    press(Keys.ENTER)
    assert page.driver.switch_to.active_element.get_attribute("aria-expanded") == "true"
    press(Keys.ENTER)
    assert page.all("tr.detail") == []
    page.run("arguments[0].focus()", frame)
    press(Keys.ESCAPE)
    assert page.one("#selected").text == ""


def test_every_control_is_reached_with_tab(show: Show) -> None:
    page = show(make_report(), make_timeline()).drawn()
    page.run(
        """window.reached = [];
        document.addEventListener("focusin", ({target}) =>
          window.reached.push(target.dataset.do || target.id || target.innerText.trim()));"""
    )
    page.one("body").send_keys(Keys.TAB * 60)
    reached = page.run("return window.reached")
    for wanted in ("theme", "next-gap", "timeline", "step", "search", "avoidable", "Class"):
        assert wanted in reached


def test_hover_says_what_is_under_the_pointer(show: Show) -> None:
    page = show(make_report(), make_timeline(steps=3)).drawn()
    said = page.run(
        """const frame = document.getElementById("timeline"), tip = document.getElementById("tip"), said = new Set();
        const box = frame.getBoundingClientRect();
        for (let y = 6; y < box.height; y += 6)
          for (let x = 200; x < box.width; x += 40) {
            const at = {clientX: box.left + x, clientY: box.top + y};
            frame.dispatchEvent(new PointerEvent("pointermove", at));
            if (tip.checkVisibility()) said.add(tip.innerText);
          }
        return [...said].join("\\n");"""
    )
    for part in (
        "cudaStreamSynchronize blocking call",
        "train.py:14 step",
        "h = out.cpu()",
        "GPU 0 idle",
        "vectorized",
        "step step",
    ):
        assert part in said, part


@pytest.mark.parametrize("dark", [False, True])
def test_accessible_in_both_colour_schemes(show: Show, chrome: Any, dark: bool) -> None:
    page = show(make_report(classes(6)), make_timeline()).drawn()
    chromium.dark(chrome, on=dark)
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(19, 22, 27)" if dark else "rgb(255, 255, 255)")
    page.one("#site-0 button").click()
    page.one("[data-do=next-gap]").click()
    page.view()
    assert accessibility(page) == []


def test_the_colour_button_turns_the_scheme_round(show: Show) -> None:
    page = show(make_report(), None)
    page.one("#theme").click()
    assert page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(19, 22, 27)"
    page.one("#theme").click()
    assert page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def named(number: int, name: str) -> f.Site:
    """A site with that name for everything."""
    return make_site(
        number,
        file=f"/x/{name}",
        function=name,
        title=name,
        rule=name,
        class_basis=name,
        source=f.SourceLine(lines={14: name}, sha256=""),
        stack=[f.Frame(function=name, file=name, line=1)],
        apis={name: 3},
        native=[name],
        fix=f.Fix(text=name, before=name, after=name, effort=1, docs=f"javascript:alert('{name}')"),
    )


@pytest.mark.parametrize("names", [HOSTILE[:-1], HOSTILE[-1:]], ids=["short", "long"])
def test_hostile_names_are_text(show: Show, names: list[str]) -> None:
    every = " ".join(names)
    report = make_report(
        [named(number, name) for number, name in enumerate(names)], headline=f.Headline(slug="mixed", text=every)
    )
    page = show(report, make_timeline(sites=len(names), hostile=every)).drawn()
    for number in range(len(names)):
        page.one(f"#site-{number} button").click()
    page.one("[data-do=next-gap]").click()
    page.view()
    assert page.console() == []
    assert page.requests() == []
    assert len(page.all("script")) == 4
    assert len(page.all("tr.detail")) == len(names)
    assert page.all("tr.detail a") == []
    shown = page.run("return document.body.innerText")
    assert not any(mark in shown for mark in ("\u202e", "\u2066", "\u2028", "\x1b"))
    assert page.run("return document.body.scrollWidth <= window.innerWidth + 1")


def test_the_policy_lets_nothing_in_or_out(show: Show) -> None:
    page = show(make_report(), None)
    page.run(
        """const script = document.createElement("script");
        script.textContent = "window.injected = true";
        document.body.append(script);
        const image = new Image();
        image.src = "http://127.0.0.1:9/picture.png";
        fetch("http://127.0.0.1:9/").catch(() => {});"""
    )
    blocked: list[str] = []

    def all_blocked() -> bool:
        blocked.extend(page.console())
        return all(any(kind in line for line in blocked) for kind in ("script-src", "img-src", "connect-src"))

    wait_until(all_blocked)
    assert page.run("return window.injected") is None


def test_closer_than_the_file_holds_says_so(show: Show) -> None:
    page = show(*million_kernels()).drawn()
    assert page.run("return document.getElementById('beyond').hidden")
    page.run("document.getElementById('timeline').focus()")
    for _ in range(12):
        page.one("#timeline").send_keys("+")
    page.view()
    assert "closer than what this file holds" in page.texts("#beyond")[0]


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_of_ranks_sorts_filters_and_is_accessible(chrome: Any, tmp_path: Path, dark: bool) -> None:
    found = compare_ranks(members(read_ranks(APART)))
    chromium.dark(chrome, on=dark)
    path = tmp_path / "page.html"
    path.write_text(ranks_page(found), "utf-8")
    page = Page(chrome, path)
    assert page.texts("table.ranks tbody th") == [f"rank {r} ddp-rank{r}.sqlite.xz" for r in (0, 1)]
    assert page.texts("#shown") == [f"{len(found.sites)} of {len(found.sites)} sites"]
    next(b for b in page.all("#classes button") if b.text == "avoidable").click()
    assert page.texts("#table tbody .place") == ["ddp.py:27", "ddp.py:28"]
    page.one("#clear").click()
    page.one("th[data-sort=ranks] button").click()
    assert sorted(page.texts("#table tbody .place")[:2]) in (["ddp.py:19", "ddp.py:25"], ["ddp.py:27", "ddp.py:28"])
    assert accessibility(page) == []
    assert page.console() == []
    assert page.requests() == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_comparison_sorts_filters_and_is_accessible(chrome: Any, tmp_path: Path, dark: bool) -> None:
    def side(sites: list[f.Site], name: str) -> f.Report:
        report = make_report(sites)
        return msgspec.structs.replace(report, trace=msgspec.structs.replace(report.trace, file=name, sha256=name))

    sites = [make_site(n) for n in range(6)]
    comparison = compare([side(sites[:4], "before")], [side(sites[2:], "after")])
    chromium.dark(chrome, on=dark)
    page = Page(chrome, html.write_comparison(comparison, tmp_path / "page.html"))
    assert page.texts("#shown") == ["6 of 6 sites"]
    next(b for b in page.all("#classes button") if b.text == "gone").click()
    assert page.texts("#shown") == ["2 of 6 sites"]
    page.one("#clear").click()
    page.one("#search").send_keys("train.py:19")
    assert page.texts("#shown") == ["1 of 6 sites"]
    page.one("#clear").click()
    page.one("th[data-sort=before] button").click()
    assert page.texts("#table tbody .place")[:4] == [f"train.py:{line}" for line in (14, 15, 16, 17)]
    assert accessibility(page) == []
    assert page.console() == []
    assert page.requests() == []
