"""Two sides of captures: which sites are gone, new, changed or the same, and what is said about the rest."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings

from nsys_sync.analysis import findings as f
from nsys_sync.compare import compare
from nsys_sync.compare.comparison import Comparison
from nsys_sync.errors import UsageError
from tests.compare.captures import MS, capture, line, make_site, steps, trace, wait, what_if
from tests.report.factory import reports


def states(comparison: Comparison) -> dict[str, str]:
    assert comparison.sites is not None
    return {s.id: s.state for s in comparison.sites}


def slugs(comparison: Comparison) -> list[str]:
    return [w.slug for w in comparison.warnings]


def test_a_capture_against_itself_changes_nothing() -> None:
    comparison = compare([capture(1)], [capture(1)])
    assert set(states(comparison).values()) == {"same"}
    assert {q.verdict for q in comparison.quantities} == {"equal"}
    assert comparison.outcome == "same"
    assert slugs(comparison) == ["same-capture"]


def test_sites_by_id() -> None:
    before = capture(1, [make_site(0), make_site(1), make_site(2)])
    after = capture(2, [make_site(1), make_site(2, **wait(100 * MS)), make_site(3)])
    assert states(compare([before], [after])) == {
        "site0000": "gone",
        "site0001": "same",
        "site0002": "changed",
        "site0003": "new",
    }


def test_moved_lines_are_the_same_site_with_both_lines() -> None:
    [site] = compare([capture(1, [make_site(0)])], [capture(2, [make_site(0, line=99)])]).sites or []
    assert (site.state, site.moved) == ("same", True)
    assert site.before is not None
    assert site.after is not None
    assert (site.before.line, site.after.line) == (14, 99)


#: Ids of the first, second and third like call of one function.
LIKE = ["0123456789ab", "0123456789ab-2", "0123456789ab-3"]


def test_a_removed_site_does_not_shift_its_neighbours_of_the_same_function() -> None:
    """Ids of like sites in one function are numbered; the code of their lines says which one went."""
    first, second, third = "a = x.item()", "b = y.item()", "c = z.item()"
    before = [make_site(n, id=LIKE[n], **line(10 + n, text)) for n, text in enumerate([first, second, third])]
    after = [make_site(n, id=LIKE[n], **line(20 + n, text)) for n, text in enumerate([second, third])]
    found = compare([capture(1, before)], [capture(2, after)]).sites
    assert found is not None
    gone = [s for s in found if s.state == "gone"]
    assert [s.before.source for s in gone if s.before] == [first]
    assert {(s.before.source, s.after.source) for s in found if s.before and s.after} == {
        (second, second),
        (third, third),
    }


def lines_paired(before: list[int], after: list[int]) -> set[tuple[int | None, int | None]]:
    """Lines of like calls, whose code is not known, as they are paired."""
    sides = [[make_site(0, id=LIKE[n], line=at, source=None) for n, at in enumerate(side)] for side in (before, after)]
    found = compare([capture(1, sides[0])], [capture(2, sides[1])]).sites or []
    return {(s.before.line if s.before else None, s.after.line if s.after else None) for s in found}


def test_without_code_like_calls_are_told_apart_by_line_or_order() -> None:
    assert lines_paired([10, 12, 14], [12, 14]) == {(10, None), (12, 12), (14, 14)}
    assert lines_paired([10, 12], [12, 14]) == {(10, 12), (12, 14)}
    assert lines_paired([12, 14], [10, 12, 14]) == {(None, 10), (12, 12), (14, 14)}


def test_equal_lines_of_code_are_told_apart_by_id() -> None:
    sites = [make_site(n, **line(10 + n, "x.item()")) for n in range(3)]
    comparison = compare([capture(1, sites)], [capture(2, sites[:2])])
    assert states(comparison) == {"site0000": "same", "site0001": "same", "site0002": "gone"}


def test_an_edited_line_keeps_its_site_and_shows_both() -> None:
    before, after = (make_site(0, **line(14, text)) for text in ("y = x.cpu()", "z = x.cpu()"))
    [site] = compare([capture(1, [before])], [capture(2, [after])]).sites or []
    assert site.state == "same"
    assert site.before is not None
    assert site.after is not None
    assert (site.before.source, site.after.source) == ("y = x.cpu()", "z = x.cpu()")


def test_totals_are_a_step_where_step_counts_differ() -> None:
    before = capture(1, [make_site(0, **wait(20 * MS, 10))])
    after = capture(2, [make_site(0, **wait(40 * MS, 20))], steps=steps(20 * MS, 20))
    comparison = compare([before], [after])
    assert comparison.basis == "step"
    assert comparison.quantity("wait").verdict == "equal"
    assert comparison.quantity("syncs").verdict == "equal"
    assert states(comparison) == {"site0000": "same"}
    assert "normalised-by-steps" in slugs(comparison)


def test_captures_without_a_common_file_may_be_of_different_programs() -> None:
    here, there, other = (make_site(0, file=name) for name in ("/a/train.py", "C:\\b\\train.py", "/a/serve.py"))
    assert "no-common-file" in slugs(compare([capture(1, [here])], [capture(2, [other])]))
    assert "no-common-file" not in slugs(compare([capture(1, [here])], [capture(2, [there])]))
    assert "no-common-file" not in slugs(compare([capture(1, [here])], [capture(2, [])]))


def test_without_steps_totals_are_of_captures() -> None:
    comparison = compare([capture(1)], [capture(2, steps=[])])
    assert comparison.basis == "capture"
    assert comparison.quantity("step_time").verdict == "unmeasured"
    assert comparison.outcome == "unmeasured"
    assert "different-steps" in slugs(comparison)


def test_withheld_idle_is_unmeasured_not_zero() -> None:
    whole = capture(2)
    withheld = msgspec.structs.replace(
        whole,
        totals=msgspec.structs.replace(
            whole.totals, idle_ns=None, idle_from_syncs_ns=None, recoverable_ns=None, recoverable_all_ns=None
        ),
        sites=[msgspec.structs.replace(s, recoverable_ns=None) for s in whole.sites],
    )
    comparison = compare([capture(1)], [withheld])
    for name in ("idle", "idle_from_syncs", "recoverable"):
        assert comparison.quantity(name).verdict == "unmeasured"
        assert comparison.quantity(name).reason == "not measured after"
    assert {s.recoverable.verdict for s in comparison.sites or []} == {"unmeasured"}
    assert comparison.quantity("wait").verdict == "equal"


def test_sites_are_not_matched_where_one_side_has_no_stacks() -> None:
    comparison = compare([capture(1)], [capture(2, trace=trace(2, python_frames="not_recorded"))])
    assert comparison.sites is None
    assert comparison.sites_reason is not None
    assert "missing after" in comparison.sites_reason
    assert comparison.prediction is None


def test_calls_without_a_line_are_pointed_out() -> None:
    unnamed = make_site(1, file=None, line=None, function=None, source=None)
    comparison = compare([capture(1)], [capture(2, [make_site(0), unnamed])])
    assert "unnamed-calls" in slugs(comparison)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"driver": "590.2"}, "driver: 580.1 before, 590.2 after"),
        ({"nsys_version": "2026.1"}, "nsys version"),
        ({"cuda": None}, "CUDA version: 13.0 before, unknown after"),
        ({"devices": [f.DeviceName(id=0, name="NVIDIA A100")]}, "GPUs: 1 × NVIDIA H200 before, 1 × NVIDIA A100 after"),
        ({"processes": []}, "processes: 1 before, 0 after"),
    ],
)
def test_different_conditions_are_named(changes: dict[str, object], says: str) -> None:
    comparison = compare([capture(1)], [capture(2, trace=trace(2, **changes))])
    assert any(says in w.text for w in comparison.warnings), comparison.warnings


def test_different_capture_options_are_named() -> None:
    other = msgspec.structs.replace(trace(2).capture, flags=["--python-sampling=true"], graphs="node")
    comparison = compare([capture(1)], [capture(2, trace=trace(2, capture=other))])
    assert slugs(comparison) == ["different-conditions", "different-conditions"]


def test_steps_of_another_kind_are_named() -> None:
    comparison = compare([capture(1)], [capture(2, steps=steps(20 * MS, source="marks"))])
    assert slugs(comparison) == ["different-steps"]


def test_a_capture_given_twice_is_no_second_capture() -> None:
    comparison = compare([capture(1), capture(1)], [capture(2), capture(3)])
    assert not comparison.noise_known
    assert comparison.quantity("wait").verdict == "equal"
    assert slugs(comparison) == ["capture-repeated"]


def test_several_captures_tell_a_change_from_noise() -> None:
    before = [capture(n, step_ns=20 * MS + n * 100_000) for n in range(3)]
    near = [capture(n, step_ns=20 * MS + (n - 3) * 100_000 + 50_000) for n in range(3, 6)]
    far = [capture(n, step_ns=16 * MS + n * 100_000) for n in range(3, 6)]
    assert compare(before, near).outcome == "within_noise"
    assert compare(before, far).outcome == "faster"
    assert compare(far, before).outcome == "slower"
    assert compare(before, far).noise_known


def test_a_site_of_one_capture_in_three_is_not_gone() -> None:
    rare = make_site(1, **wait(MS, 1))
    before = [capture(n, [make_site(0)]) for n in range(3)]
    after = [capture(3, [make_site(0)]), capture(4, [make_site(0), rare]), capture(5, [make_site(0)])]
    comparison = compare(before, after)
    assert states(comparison) == {"site0000": "same", "site0001": "new"}
    assert [s.after.seen for s in comparison.sites or [] if s.after] == [1, 3]
    assert states(compare(after, after)) == {"site0000": "same", "site0001": "same"}


def test_one_event_more_or_less_is_the_edge_of_the_capture() -> None:
    before, after = capture(1, [make_site(0, **wait(0, 1))]), capture(2, [make_site(0, **wait(0, 2))])
    assert states(compare([before], [after])) == {"site0000": "same"}


def test_a_call_more_in_every_step_is_a_change() -> None:
    before, after = capture(1, [make_site(0, **wait(0, 10))]), capture(2, [make_site(0, **wait(0, 20))])
    assert states(compare([before], [after])) == {"site0000": "changed"}


LOOP = [make_site(n, class_="avoidable" if n else "deferrable", what_if=what_if(17 * MS, 18 * MS)) for n in range(3)]
PREDICTIONS = f.WhatIfs(all=what_if(15 * MS, 16 * MS), by_class={"avoidable": what_if(16 * MS, 17 * MS)})
LAST = make_site(9, **wait(0, 1))


@pytest.mark.parametrize(
    ("left", "step_ns", "scope", "holds"),
    [
        ([], 155 * MS // 10, "all", True),
        ([], 18 * MS, "all", False),
        ([LOOP[0]], 165 * MS // 10, "class", True),
        ([LOOP[0], LOOP[1]], 175 * MS // 10, "site", True),
    ],
)
def test_what_was_predicted_for_the_sites_that_went(left: list[f.Site], step_ns: int, scope: str, holds: bool) -> None:
    before = capture(1, [*LOOP, LAST], what_if=PREDICTIONS)
    found = compare([before], [capture(2, [*left, LAST], step_ns=step_ns)]).prediction
    assert found is not None
    assert (found.scope, found.holds) == (scope, holds)


def test_nothing_was_predicted_for_another_set_of_sites() -> None:
    before = capture(1, [*LOOP, LAST], what_if=PREDICTIONS)
    assert compare([before], [capture(2, [LOOP[1], LAST])]).prediction is None
    assert compare([before], [capture(2, [*LOOP, LAST])]).prediction is None


def test_a_new_site_in_the_loop_voids_the_prediction() -> None:
    before = capture(1, [*LOOP, LAST], what_if=PREDICTIONS)
    assert compare([before], [capture(2, [make_site(5), LAST])]).prediction is None


def test_an_empty_side_is_refused() -> None:
    with pytest.raises(UsageError):
        compare([], [capture(1)])


def test_the_json_holds_the_states() -> None:
    data = json.loads(compare([capture(1)], [capture(2, [make_site(0)])]).to_json())
    assert {s["state"] for s in data["sites"]} == {"gone", "same"}
    assert data["format"] == 1
    assert {"before", "after", "delta", "verdict"} <= data["quantities"][0].keys()


@settings(max_examples=60, deadline=None)
@given(reports(), reports())
def test_any_two_reports_can_be_compared(before: f.Report, after: f.Report) -> None:
    comparison = compare([before], [after])
    assert len(comparison.quantities) == 6
    assert compare([before], [before]).outcome in {"same", "unmeasured"}
