"""The check in a terminal: what it says, at any width, of any report."""

from __future__ import annotations

import datetime as dt
import io
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_sync.analysis import findings as f
from nsys_sync.gate import AllowEntry, Gate, Limit, check, parse_limit, sites_by_id
from nsys_sync.report import gate_text
from tests.compare.captures import MS, capture, line, make_site, steps, trace, wait
from tests.report.factory import HOSTILE, reports

TODAY = dt.date(2025, 6, 1)


def shown(found: list[f.Report], *limits: Limit, width: int = 120, **rest: Any) -> str:
    gate: Gate = check(found, limits, **{"today": TODAY} | rest)
    out = io.StringIO()
    gate_text.render(gate, sites_by_id(found), width=width, color=False, file=out)
    return out.getvalue()


SITE = make_site(0, **wait(20 * MS), **line(14, "    h = out.cpu()"))


def test_passed_says_what_held_and_how_close_it_was() -> None:
    text = shown([capture(1, [SITE])], parse_limit("wait", "3ms"), baseline=[capture(2, [SITE])])
    assert text.startswith("Passed: 1 limit held; no new site and no clear growth; 1 site.\n")
    assert "✓ --max-wait 3.00 ms: 2.00 ms of waiting a step." in text


def test_failed_says_what_was_exceeded_by_how_much_and_where() -> None:
    text = shown([capture(1, [SITE])], parse_limit("syncs", "0"), parse_limit("wait", "500us"))
    assert text.startswith("Failed: 2 limits exceeded.\nrun1.sqlite\n")
    assert (
        "✗ --max-syncs-per-step 0: 1 sync a step, 1 too many.\n"
        f"  train.py:14  step  avoidable ({SITE.rule}) · id site0000\n" in text
    )
    assert text.endswith(f"\nNext:\n  nsys-sync rules {SITE.rule}\n")
    assert "    h = out.cpu()" in text
    assert "✗ --max-wait 500 µs: 2.00 ms of waiting a step, 1.50 ms too much." in text


def test_new_and_grown_sites() -> None:
    grown = make_site(0, **wait(40 * MS, 20), **line(14, "    h = out.cpu()"))
    text = shown([capture(1, [grown, make_site(1)])], baseline=[capture(2, [SITE])])
    assert text.startswith("Failed: 1 new site, 1 site grew.")
    assert "✗ Not in the baseline: 1 sync a step." in text
    assert "✗ Grew: 2.00 ms → 4.00 ms waiting a step, +2.00 ms (+100 %); one capture a side, noise unknown." in text
    assert "✗ Grew: 1 → 2 syncs a step" in text


def test_not_measured_is_not_passed() -> None:
    text = shown([capture(1, [], devices=[])], parse_limit("wait", "3ms"), baseline=[capture(2, [SITE])])
    assert text.startswith("Not passed: something that was to be checked was not measured.")
    assert "? --max-wait: not measured: the capture holds no GPU activity." in text
    assert "? --baseline: not measured: run1.sqlite: the capture holds no GPU activity" in text


def test_several_captures_and_processes_are_named() -> None:
    both = steps(20 * MS) + steps(20 * MS, pid=42)
    share = SITE.by_process[0]
    site = make_site(0, by_process=[share, msgspec.structs.replace(share, pid=42)])
    text = shown([capture(n, [site], steps=both) for n in (1, 2)], parse_limit("syncs", "0"))
    assert "1 too many. (run1.sqlite, process 41)" in text
    assert "1 too many. (run2.sqlite, process 41)" in text


def test_the_allow_list_is_accounted_for() -> None:
    allow = [
        AllowEntry(site="site0000", reason="once an epoch"),
        AllowEntry(file="old.py", function="step", reason="was here"),
        AllowEntry(site="site0001", reason="until the loader pins", until=dt.date(2025, 1, 1)),
    ]
    text = shown([capture(1, [SITE, make_site(1)])], parse_limit("syncs", "5"), allow=allow)
    assert "1 accepted site, not counted:\n  train.py:14: once an epoch\n" in text
    assert "Stale, no such site: old.py step (was here)." in text
    assert "Expired on 2025-01-01: site site0001 (until the loader pins)." in text


def test_the_captures_own_warnings_are_passed_on() -> None:
    note = f.Note(slug="x", text="Events were dropped.")
    assert "Note: Events were dropped." in shown(
        [capture(1, [SITE], trace=trace(1, warnings=[note]))], parse_limit("syncs", "5")
    )


@pytest.mark.parametrize("width", [30, 80, 140])
def test_it_keeps_to_the_width(width: int) -> None:
    text = shown([capture(1, [SITE])], parse_limit("syncs", "0"), width=width, baseline=[capture(2, [])])
    assert max(len(part) for part in text.splitlines()) <= width


def harmless(text: str) -> bool:
    return all(c == "\n" or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in text)


def test_hostile_names_stay_on_their_lines() -> None:
    sites = [
        make_site(n, title=text, function=text, file=text, id=f"{n}{text[:20]}", **line(14, text))
        for n, text in enumerate(HOSTILE)
    ]
    allow = [AllowEntry(site=f"x{text}", reason=f"x{text}") for text in HOSTILE]
    found = capture(1, sites, trace=trace(1, file=HOSTILE[2]))
    assert harmless(shown([found], parse_limit("syncs", "0"), allow=allow, baseline=[capture(2, [])]))


@settings(max_examples=40, deadline=None)
@given(st.lists(reports(), min_size=1, max_size=2), st.integers(24, 140))
def test_any_check_can_be_shown(found: list[f.Report], width: int) -> None:
    text = shown(found, parse_limit("syncs", "1"), parse_limit("idle_from_syncs", "1%"), width=width, baseline=found)
    assert text.endswith("\n")
    assert harmless(text)
