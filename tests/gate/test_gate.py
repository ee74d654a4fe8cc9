"""Limits, baseline and allow-list: what passes, what fails, and what was never measured."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_sync.analysis import findings as f
from nsys_sync.errors import ExitCode, InputError, UsageError
from nsys_sync.gate import AllowEntry, Gate, Limit, check, load_allow, parse_limit, sites_by_id
from tests.compare.captures import MS, capture, make_site, steps, trace, wait
from tests.report.factory import reports

TODAY = dt.date(2025, 6, 1)
THREE = [make_site(0, **wait(20 * MS)), make_site(1, **wait(10 * MS)), make_site(2, **wait(1 * MS))]


def judge(reports: list[f.Report], *limits: Limit, **rest: Any) -> Gate:
    return check(reports, limits, **{"today": TODAY} | rest)


def outcomes(gate: Gate) -> dict[str, str]:
    return {s.id: s.outcome for s in gate.sites}


# Limits


@pytest.mark.parametrize(
    ("quantity", "text", "value", "unit", "per"),
    [
        ("syncs", "2", 2, "count", "step"),
        ("syncs", "0.5", 0.5, "count", "step"),
        ("wait", "2ms", 2 * MS, "ns", "step"),
        ("wait", "150us", 150_000, "ns", "step"),
        ("wait", "150µs", 150_000, "ns", "step"),
        ("wait", "1.5 s/capture", 1500 * MS, "ns", "capture"),
        ("wait", "0", 0, "ns", "step"),
        ("idle_from_syncs", "5%", 0.05, "share", "capture"),
        ("idle_from_syncs", "40ms/capture", 40 * MS, "ns", "capture"),
    ],
)
def test_limits_as_people_write_them(quantity: Any, text: str, value: float, unit: str, per: str) -> None:
    limit = parse_limit(quantity, text)
    assert (limit.value, limit.unit, limit.per) == (value, unit, per)


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        ("syncs", "2ms"),
        ("syncs", "-1"),
        ("syncs", "nan"),
        ("syncs", "2/step"),
        ("syncs", ""),
        ("wait", "2"),
        ("wait", "-2ms"),
        ("wait", "5%"),
        ("wait", "2 minutes"),
        ("wait", "1e3ms"),
        ("idle_from_syncs", "5%/step"),
        ("idle_from_syncs", "five"),
    ],
)
def test_a_limit_that_says_no_amount_is_refused(quantity: Any, text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_limit(quantity, text)
    assert error.value.slug == "bad-limit"
    assert "--max-" in error.value.hint


def test_limits_hold() -> None:
    gate = judge([capture(1, THREE)], parse_limit("syncs", "3"), parse_limit("wait", "3.1ms"))
    assert gate.status == "passed"
    assert gate.exit_code == ExitCode.OK
    assert [(r.measured, r.excess, r.sites) for r in gate.limits] == [(3, None, []), (3.1 * MS, None, [])]


def test_each_limit_says_by_how_much_it_is_exceeded_and_where() -> None:
    gate = judge(
        [capture(1, THREE)],
        parse_limit("syncs", "2"),
        parse_limit("wait", "1ms"),
        parse_limit("wait", "30ms/capture"),
    )
    assert gate.exit_code == ExitCode.GATE_FAILED
    assert [r.measured for r in gate.limits] == [3, 3.1 * MS, 31 * MS]
    assert [r.excess for r in gate.limits] == [1, 2.1 * MS, 1 * MS]
    assert [r.sites for r in gate.limits] == [["site0000"], ["site0000", "site0001"], ["site0000"]]
    assert outcomes(gate)["site0002"] == "passes"


def test_idle_from_syncs_is_a_time_or_a_share_of_the_window() -> None:
    """Ten steps, a window of 200 ms; sync overhead is shown elsewhere and does not count."""
    idle = f.SiteIdle(sync_wait=4 * MS, sync_refill=6 * MS, sync_overhead=50 * MS)
    report = capture(1, [make_site(0, idle_ns=idle)])
    gate = judge([report], *[parse_limit("idle_from_syncs", text) for text in ("900us", "11ms/capture", "2%")])
    assert [(r.measured, r.status) for r in gate.limits] == [
        (1 * MS, "exceeded"),
        (10 * MS, "held"),
        (0.05, "exceeded"),
    ]


def share(pid: int, events: int, in_loop: int | None = None) -> f.SiteProcess:
    loop = f.InLoop(events=events if in_loop is None else in_loop, wait_ns=0)
    return f.SiteProcess(pid=pid, calls=events, events=events, wait_ns=0, recoverable_ns=0, in_loop=loop)


def test_a_limit_holds_for_every_process() -> None:
    """One rank syncs in every step, the other never: the average would hide it."""
    shares = [share(41, 10), share(42, 0)]
    both = steps(20 * MS) + steps(20 * MS, pid=42)
    gate = judge([capture(1, [make_site(0, by_process=shares)], steps=both)], parse_limit("syncs", "0.9"))
    [result] = gate.limits
    assert (result.status, result.pid, result.measured) == ("exceeded", 41, 1)


def test_every_capture_must_hold() -> None:
    gate = judge([capture(1, THREE[:1]), capture(2, THREE)], parse_limit("syncs", "2"))
    assert [(r.capture, r.status) for r in gate.limits] == [("run1.sqlite", "held"), ("run2.sqlite", "exceeded")]


def test_nothing_to_judge_by_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        judge([capture(1)])
    assert error.value.slug == "no-limits"


# Not measured


def empty(number: int = 1) -> f.Report:
    return capture(number, [], devices=[], steps=[])


def withheld(number: int = 1) -> f.Report:
    report = capture(number, [])
    reason = "graph launches without their work"
    device = msgspec.structs.replace(report.devices[0], idle_ns=None, idle_status="withheld", idle_reason=reason)
    return msgspec.structs.replace(report, devices=[device])


@pytest.mark.parametrize("quantity", ["syncs", "wait", "idle_from_syncs"])
def test_an_empty_capture_does_not_pass(quantity: Any) -> None:
    gate = judge([empty()], parse_limit(quantity, "0"))
    assert gate.exit_code == ExitCode.NOTHING_TO_ANALYZE
    assert gate.limits[0].measured is None


@pytest.mark.parametrize("quantity", ["wait", "idle_from_syncs"])
def test_a_withheld_measurement_does_not_pass(quantity: Any) -> None:
    gate = judge([withheld()], parse_limit(quantity, "1s"))
    assert gate.status == "not_measured"
    assert gate.limits[0].reason == "graph launches without their work"


def test_calls_are_counted_where_only_idle_time_is_withheld() -> None:
    assert judge([withheld()], parse_limit("syncs", "1")).status == "passed"


def test_a_limit_per_step_does_not_pass_without_steps() -> None:
    gate = judge([capture(1, steps=[])], parse_limit("syncs", "100"), parse_limit("wait", "100s/capture"))
    assert [r.status for r in gate.limits] == ["not_measured", "held"]
    assert gate.exit_code == ExitCode.NOTHING_TO_ANALYZE


def test_one_empty_capture_among_good_ones_does_not_pass() -> None:
    assert judge([capture(1), empty(2)], parse_limit("syncs", "9")).status == "not_measured"


def test_a_failure_outweighs_what_was_not_measured() -> None:
    assert judge([capture(1), empty(2)], parse_limit("syncs", "0")).exit_code == ExitCode.GATE_FAILED


@pytest.mark.parametrize("current", [empty(2), withheld(2)])
def test_a_baseline_is_not_held_by_a_capture_that_measured_nothing(current: f.Report) -> None:
    gate = judge([current], baseline=[capture(1)])
    assert gate.status == "not_measured"
    assert gate.baseline is not None
    assert gate.baseline.not_measured


def test_a_baseline_is_not_held_where_sites_have_no_names() -> None:
    gate = judge([capture(2, [], trace=trace(2, python_frames="not_recorded"))], baseline=[capture(1)])
    assert gate.status == "not_measured"


def test_a_program_that_failed_while_it_was_captured_is_pointed_out() -> None:
    failed = msgspec.structs.replace(trace(1).capture, target_exit=1)
    gate = judge([capture(1, trace=trace(1, capture=failed))], parse_limit("syncs", "9"))
    assert [w.slug for w in gate.warnings] == ["target-failed"]


# Baseline


def growth(gate: Gate) -> list[tuple[str, str, str]]:
    return [(g.kind, g.site, g.change.name) for g in gate.baseline.growth] if gate.baseline else []


def test_a_capture_holds_its_own_baseline() -> None:
    gate = judge([capture(1, THREE)], baseline=[capture(1, THREE)])
    assert (gate.status, growth(gate)) == ("passed", [])
    assert {s.state for s in gate.sites} == {"same"}


def test_a_new_site_fails() -> None:
    gate = judge([capture(2, THREE)], baseline=[capture(1, THREE[:2])])
    assert growth(gate) == [("new_site", "site0002", "events")]
    assert outcomes(gate)["site0002"] == "fails"
    assert gate.exit_code == ExitCode.GATE_FAILED


def test_a_new_site_outside_the_loop_is_noted() -> None:
    moved = make_site(2, **wait(19 * MS, 1, in_loop=False))
    gate = judge([capture(2, [THREE[0], moved])], baseline=[capture(1, THREE[:2])])
    assert (gate.status, growth(gate)) == ("passed", [])
    assert [w.slug for w in gate.warnings] == ["new-outside-loop"]
    assert judge([capture(2, [moved], steps=[])], baseline=[capture(1, [], steps=[])]).status == "failed"


def test_a_removed_site_passes() -> None:
    assert judge([capture(2, THREE[:2])], baseline=[capture(1, THREE)]).status == "passed"


def test_moved_lines_pass() -> None:
    moved = [msgspec.structs.replace(s, line=(s.line or 0) + 40) for s in THREE]
    assert judge([capture(2, moved)], baseline=[capture(1, THREE)]).status == "passed"


@pytest.mark.parametrize(
    ("cost", "grew"),
    [
        (wait(24 * MS), []),
        (wait(30 * MS), [("growth", "site0000", "wait")]),
        (wait(20 * MS, 11), []),
        (wait(20 * MS, 20), [("growth", "site0000", "events")]),
    ],
)
def test_one_capture_a_side_fails_on_growth_beyond_a_quarter(
    cost: dict[str, Any], grew: list[tuple[str, str, str]]
) -> None:
    gate = judge([capture(2, [make_site(0, **cost)])], baseline=[capture(1, THREE[:1])])
    assert growth(gate) == grew


def test_growth_too_small_to_matter_passes_however_large_its_share() -> None:
    """Five times as long, but still under 1 % of a step."""
    before, after = make_site(0, **wait(300_000)), make_site(0, **wait(1_500_000))
    assert judge([capture(2, [after])], baseline=[capture(1, [before])]).status == "passed"


def test_several_captures_fail_on_growth_beyond_the_noise() -> None:
    def side(first: int, total: int) -> list[f.Report]:
        return [capture(n, [make_site(0, **wait(total + n * MS // 10))]) for n in range(first, first + 3)]

    assert growth(judge(side(3, 23 * MS), baseline=side(0, 20 * MS))) == [("growth", "site0000", "wait")]
    noisy = [capture(n, [make_site(0, **wait(t * MS))]) for n, t in enumerate([15, 20, 27])]
    assert growth(judge(side(3, 23 * MS), baseline=noisy)) == []


# Allow-list


def entry(**values: Any) -> AllowEntry:
    return AllowEntry(**{"reason": "logged once a step"} | values)


def test_accepted_sites_do_not_count() -> None:
    gate = judge([capture(1, THREE)], parse_limit("wait", "1.1ms"), allow=[entry(site="site0000")])
    assert gate.status == "passed"
    assert outcomes(gate) == {"site0000": "accepted", "site0001": "passes", "site0002": "passes"}
    assert gate.sites[0].accepted_because == "logged once a step"
    assert [u.status for u in gate.allow] == ["used"]


def test_an_accepted_site_may_be_new() -> None:
    gate = judge([capture(2, THREE)], baseline=[capture(1, THREE[:2])], allow=[entry(site="site0002")])
    assert gate.status == "passed"


@pytest.mark.parametrize(
    ("file", "function", "matches"),
    [
        ("train.py", "step", True),
        ("project/train.py", "st*", True),
        ("/home/me/project/*.py", "*", True),
        ("/home/**/train.py", "step", True),
        ("home/**/train.py", "step", True),
        ("**/me/**", "step", True),
        ("me/*.py", "step", False),
        ("rain.py", "step", False),
        ("train", "step", False),
        ("train.py", "ste", False),
        ("trainXpy", "step", False),
    ],
)
def test_entries_by_file_and_function(file: str, function: str, matches: bool) -> None:
    assert entry(file=file, function=function).matches(make_site(0)) is matches


def test_a_site_without_a_line_is_accepted_by_id_only() -> None:
    unnamed = make_site(0, file=None, function=None)
    assert not entry(file="*", function="*").matches(unnamed)
    assert entry(site=unnamed.id).matches(unnamed)


def test_stale_and_expired_entries_are_reported() -> None:
    allow = [
        entry(site="nowhere"),
        entry(site="site0000", until=dt.date(2025, 5, 31)),
        entry(site="site0001", until=TODAY),
    ]
    gate = judge([capture(1, THREE)], parse_limit("wait", "2ms"), allow=allow)
    assert [u.status for u in gate.allow] == ["stale", "expired", "used"]
    assert gate.status == "failed"
    assert outcomes(gate) == {"site0000": "fails", "site0001": "accepted", "site0002": "passes"}


ENTRIES = """
[[{table}allow]]
site = "site0000"
reason = "checkpointing"

[[{table}allow]]
file = "train.py"
function = "log_*"
reason = "once in 100 steps"
until = 2026-01-31
"""


@pytest.mark.parametrize(("name", "table"), [("pyproject.toml", "tool.nsys-sync."), ("accepted.toml", "")])
def test_the_allow_list_is_toml(tmp_path: Path, name: str, table: str) -> None:
    path = tmp_path / name
    path.write_text("[project]\nname = 'x'\n" * (name == "pyproject.toml") + ENTRIES.format(table=table))
    assert load_allow(path) == [
        AllowEntry(reason="checkpointing", site="site0000"),
        AllowEntry(reason="once in 100 steps", file="train.py", function="log_*", until=dt.date(2026, 1, 31)),
    ]


def test_a_pyproject_without_entries_accepts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[project]\nname = 'x'\n")
    assert load_allow(path) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[[allow]]\nsite = 'a'\n", "reason"),
        ("[[allow]]\nsite = 'a'\nreason = ' '\n", "needs a reason"),
        ("[[allow]]\nreason = 'a'\n", "names either"),
        ("[[allow]]\nsite = 'a'\nfile = 'b'\nfunction = 'c'\nreason = 'd'\n", "names either"),
        ("[[allow]]\nfile = 'b'\nreason = 'd'\n", "both `file` and `function`"),
        ("[[allow]]\nsite = 'a'\nreason = 'b'\nuntill = 2025-01-01\n", "untill"),
        ("[[allow]]\nsite = 'a'\nreason = 'b'\nuntil = 'soon'\n", "until"),
        ("[[allowed]]\nsite = 'a'\nreason = 'b'\n", "allowed"),
        ("allow = 3\n", "allow"),
        ("[[allow]\n", "not TOML"),
    ],
)
def test_an_entry_that_is_not_understood_is_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "accepted.toml"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        load_allow(path)
    assert error.value.slug == "allow-list"
    assert says in error.value.message
    assert str(path) in error.value.message


@pytest.mark.parametrize("content", [b"\xff\xfe", b"tool = 3", b"[tool]\nnsys-sync = 3"])
def test_a_file_that_is_no_allow_list(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(content)
    if content == b"tool = 3":
        assert load_allow(path) == []
        return
    with pytest.raises(InputError):
        load_allow(path)


@settings(max_examples=500)
@given(st.text("a/*?b", max_size=7), st.text("ab/", max_size=9))
def test_globs_fit_what_they_say(pattern: str, path: str) -> None:
    words = {"**/": r"(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    spelled = re.sub(r"\*\*/|\*\*|\*|\?", lambda m: words[m[0]], pattern.lstrip("/"))
    fits = entry(file=pattern or "*", function="*").matches(make_site(0, file=path))
    if pattern:
        assert fits == bool(re.search(rf"(?:^|/){spelled}\Z", path))


def test_no_glob_takes_long() -> None:
    site = make_site(0, file="/a" * 200 + "a" * 200, function="a" * 500)
    for file in ("*a" * 40 + "b", "**/a/" * 40 + "b", "**a" * 40 + "b", "**/" * 300 + "b"):
        assert not entry(file=file, function="*a" * 60 + "b").matches(site)


def test_a_missing_allow_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load_allow(tmp_path / "none.toml")
    assert error.value.slug == "missing-file"


# Any report


@settings(max_examples=60, deadline=None)
@given(st.lists(reports(), min_size=1, max_size=3), st.floats(0, 1e9))
def test_any_reports_are_judged(found: list[f.Report], value: float) -> None:
    limits = [
        Limit(quantity="syncs", value=value, unit="count", per="step"),
        Limit(quantity="wait", value=value, unit="ns", per="capture"),
        Limit(quantity="idle_from_syncs", value=value / 1e9, unit="share", per="capture"),
    ]
    gate = judge(found, *limits, baseline=found[:1])
    exceeded = [r for r in gate.limits if r.status == "exceeded"]
    assert all(r.sites and r.excess is not None and r.excess >= 0 for r in exceeded)
    assert {s.id for s in gate.sites} == set(sites_by_id(found))


def test_the_json_says_what_was_exceeded_and_by_how_much() -> None:
    data = json.loads(judge([capture(1, THREE)], parse_limit("syncs", "2")).to_json())
    assert data["status"] == "failed"
    assert data["limits"][0]["excess"] == 1
    assert data["limits"][0]["limit"] == {"quantity": "syncs", "value": 2.0, "unit": "count", "per": "step"}
