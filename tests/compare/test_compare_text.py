"""The comparison in a terminal: its sentences, and what becomes of it at any width and in any encoding."""

from __future__ import annotations

import io
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_sync.analysis import findings as f
from nsys_sync.compare import compare
from nsys_sync.compare.comparison import Comparison
from nsys_sync.report import compare_text
from tests.compare.captures import MS, capture, line, make_site, steps, trace, wait, what_if
from tests.report.factory import HOSTILE, reports


def shown(comparison: Comparison, width: int = 140, **options: Any) -> str:
    out = io.StringIO()
    compare_text.render(comparison, width=width, color=False, file=out, **options)
    return out.getvalue()


def harmless(text: str) -> bool:
    """Whether nothing in a text moves the cursor, hides or reorders what is around it."""
    return all(c == "\n" or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in text)


def several(step_ns: int, first: int) -> list[f.Report]:
    return [capture(n, step_ns=step_ns + n * 10_000) for n in range(first, first + 3)]


def test_one_capture_a_side_says_that_noise_is_unknown() -> None:
    text = shown(compare([capture(1)], [capture(2, step_ns=16 * MS)]))
    assert text.startswith("Step time 20.0 ms → 16.0 ms: 1.25 × faster. One capture a side: how much of this is noise")
    assert "−4.00 ms (−20 %)" in text


def test_several_captures_show_their_spread_and_a_verdict() -> None:
    text = shown(compare(several(20 * MS, 0), several(16 * MS, 3)))
    assert text.startswith("Step time 20.0 ms (20.0–20.0) → 16.0 ms (16.0–16.1): 1.25 × faster, more than noise")


def test_a_difference_inside_the_noise_is_called_that() -> None:
    noisy = [capture(n, step_ns=(20 + n) * MS) for n in range(3)]
    text = shown(compare(noisy, [capture(n, step_ns=(19 + n) * MS) for n in (3, 1, 2)]))
    assert ", within noise." in text.splitlines()[0]


def test_only_one_side_with_one_capture() -> None:
    text = shown(compare(several(20 * MS, 0), [capture(9, step_ns=16 * MS)]))
    assert "One capture after: how much" in text


def test_the_prediction_and_what_came() -> None:
    site, last = make_site(0), make_site(9, **wait(0, 1, in_loop=False))
    before = capture(1, [site, last], what_if=f.WhatIfs(all=what_if(2_700_000, 2_900_000), by_class={}))
    inside = shown(compare([before], [capture(2, [last], step_ns=2_760_000)]))
    assert (
        "The what-if without all syncs of the loop said 2.70–2.90 ms a step; measured 2.76 ms: inside the range."
        in (inside)
    )
    assert "measured 3.10 ms: above the range." in shown(compare([before], [capture(2, [last], step_ns=3_100_000)]))


def test_moved_and_edited_lines_show_old_and_new() -> None:
    before, after = make_site(0, **line(14, "y = x.cpu()")), make_site(0, **line(40, "z = x.cpu()"), **wait(90 * MS))
    text = shown(compare([capture(1, [before])], [capture(2, [after])]))
    assert "train.py:14 → 40  step" in text
    assert "− y = x.cpu()" in text
    assert "+ z = x.cpu()" in text
    assert "changed" in text


def test_a_sync_outside_the_loop_is_not_shown_a_step() -> None:
    """The wait of a whole loop moves into the one sync after it: no step waits any more."""
    before = capture(1, [make_site(0, **wait(20 * MS)), make_site(1, **wait(0, 1, in_loop=False))])
    after = capture(2, [make_site(1, **wait(19 * MS, 1, in_loop=False))])
    comparison = compare([before], [after])
    wait_change = comparison.quantity("wait")
    assert wait_change.after is not None
    assert wait_change.after.median == 0
    for width in (80, 140):
        assert "wait 0 → 19.0 ms · syncs 1 → 1" in shown(comparison, width)


def test_the_unmeasured_says_so() -> None:
    whole = capture(2)
    totals = msgspec.structs.replace(whole.totals, idle_ns=None)
    text = shown(compare([capture(1)], [msgspec.structs.replace(whole, totals=totals)]))
    assert "GPU idle                10.0 ms → –" in text
    assert "not measured after" in text


def test_without_steps_the_headline_says_so() -> None:
    text = shown(compare([capture(1)], [capture(2, steps=[])]))
    assert text.startswith("Step time not measured after.")
    assert "whole capture" in text


def test_sites_that_cannot_be_compared_say_why() -> None:
    text = shown(compare([capture(1)], [capture(2, trace=trace(2, python_frames="not_exported"))]))
    assert "Sites are not compared: Python stacks are missing after" in text


def test_a_long_list_says_how_much_of_it_is_shown() -> None:
    comparison = compare([capture(1, [make_site(n) for n in range(30)])], [capture(2, [])])
    assert "(20 of 30 shown)" in shown(comparison)
    assert shown(comparison, limit=None).count("\ngone") == 30


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_can_show_it(encoding: str) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    compare_text.render(compare([capture(1)], [capture(2, steps=steps(16 * MS))]), width=80, file=out)
    out.flush()
    assert b"1.25" in raw.getvalue()


def test_hostile_names_stay_on_their_lines() -> None:
    sites = [
        make_site(n, title=text, function=text, file=text or None, source=f.SourceLine(lines={14 + n: text}, sha256=""))
        for n, text in enumerate(HOSTILE)
    ]
    text = shown(compare([capture(1, sites)], [capture(2, sites[:3])]), limit=None)
    assert harmless(text)
    assert "[bold]not bold[/bold]" in text


@settings(max_examples=40, deadline=None)
@given(reports(), reports(), st.integers(20, 160))
def test_any_comparison_fits_its_width(before: f.Report, after: f.Report, width: int) -> None:
    text = shown(compare([before], [after]), width)
    assert text.endswith("\n")
    assert harmless(text)


def test_steps_of_several_processes_are_called_that() -> None:
    both = steps(20 * MS) + steps(20 * MS, pid=42)
    text = shown(compare([capture(1, steps=both)], [capture(2, steps=steps(20 * MS, 12))]))
    assert "before  run1.sqlite · 20 steps in 2 processes ·" in text
    assert "after   run2.sqlite · 12 steps ·" in text
