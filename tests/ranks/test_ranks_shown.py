"""Ranks in a terminal, on a page and as a command."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nsys_sync.ranks import Held, Meetings, Rank, Ranks, RankSite, compare_ranks
from nsys_sync.report import ranks_text
from nsys_sync.report.ranks_html import ranks_page
from tests.compare.test_compare_text import harmless
from tests.program import run
from tests.ranks.test_ranks import APART, BOTH, GIVEN
from tests.report.factory import HOSTILE, values_of

MS = 1_000_000


def shown(found: Ranks, width: int = 120) -> str:
    out = io.StringIO()
    ranks_text.render(found, width=width, color=False, file=out)
    return out.getvalue()


def one(number: int, **changes: Any) -> Rank:
    values: dict[str, Any] = {
        "rank": number,
        "file": f"rank{number}.sqlite",
        "pid": 100 + number,
        "devices": [number],
        "steps": 10,
        "step_ns": 8 * MS,
        "events": 20,
        "wait_ns": 30 * MS,
        "waits_ns": 0,
        "holds_ns": 0,
        "held": Held(idle=0, work=0, clock=0),
        "by_syncs_ns": 0,
    }
    return Rank(**values | changes)


def several(*ranks: Rank, holds: int = 0, **changes: Any) -> Ranks:
    site = RankSite(
        id="a",
        rule="r",
        title="A value is read by the host",
        class_="avoidable",
        file="/home/me/train.py",
        line=14,
        function="step",
        source="loss.item()",
        events=[10, *([None] * (len(ranks) - 1))],
        wait_ns=[30 * MS, *([None] * (len(ranks) - 1))],
        holds_ns=holds,
    )
    met = Meetings(count=40, steps=10, tolerance_ns=0, reason=None)
    empty = compare_ranks([])
    return replace(empty, **{"basis": "step", "ranks": list(ranks), "meetings": met, "sites": [site]} | changes)


def first_line(found: Ranks) -> str:
    return shown(found, 1000).splitlines()[0]


def test_who_holds_the_others_and_why() -> None:
    late = one(1, holds_ns=5 * MS, by_syncs_ns=2 * MS, held=Held(idle=4 * MS, work=1 * MS, clock=0))
    assert first_line(several(one(0), late, holds=2 * MS)) == (
        "2 ranks, a step takes 8.00 ms. Rank 1 holds the others for 500 µs a step: its GPU is idle 400 µs longer and "
        "works 100 µs longer than the next. At most 200 µs of that is behind its syncs, most at train.py:14."
    )
    slow = replace(late, held=Held(idle=-1 * MS, work=6 * MS, clock=0), by_syncs_ns=0)
    assert first_line(several(one(0), slow)) == (
        "2 ranks, a step takes 8.00 ms. Rank 1 holds the others for 500 µs a step: its GPU works 600 µs longer than "
        "the next. Its syncs are not the reason."
    )
    unknown = replace(late, held=None, by_syncs_ns=None)
    assert first_line(several(one(0), unknown)).endswith("Rank 1 holds the others for 500 µs a step.")


def test_ranks_that_come_together() -> None:
    assert first_line(several(one(0, step_ns=7 * MS), one(1, holds_ns=10_000))) == (
        "2 ranks, a step takes 7.00–8.00 ms. They come together: none holds the others for more than 1.00 µs a step."
    )


def test_what_is_not_known_is_said_with_its_reason() -> None:
    nothing = {"waits_ns": None, "holds_ns": None, "held": None, "by_syncs_ns": None}
    met = Meetings(count=0, steps=0, tolerance_ns=0, reason="steps are not marked on every rank")
    found = several(one(0, **nothing), one(1, **nothing), meetings=met)
    assert first_line(found).endswith(
        "How long they wait for one another is not known: steps are not marked on every rank."
    )
    assert "Compared by" not in shown(found)
    assert "0.00" not in shown(found).partition("Syncs by rank")[0]


def test_a_site_says_which_ranks_have_it() -> None:
    assert "only rank 0" in shown(several(one(0), one(1)))
    found = several(one(0), one(1), one(2))
    (site,) = found.sites
    assert "2 of 3 ranks" in shown(replace(found, sites=[replace(site, events=[1, 1, None])]))
    assert "all ranks" in shown(replace(found, sites=[replace(site, events=[1, 1, 1])]))


def test_processes_without_a_rank_are_told_apart_by_their_traces() -> None:
    text = shown(several(one(0, rank=None, pid=7), one(1, rank=None, pid=7)), 200)
    assert "pid 7 of rank0.sqlite" in text
    assert "pid 7 of rank1.sqlite" in text


@st.composite
def any_ranks(draw: st.DrawFn) -> Ranks:
    found: Ranks = draw(values_of(Ranks))
    size = draw(st.integers(2, 4))
    rows = [draw(values_of(Rank)) for _ in range(size)]
    of_each = st.lists(st.none() | st.integers(0, 10**15), min_size=size, max_size=size).filter(any)
    sites = [replace(site, events=(e := draw(of_each)), wait_ns=e) for site in found.sites]
    return replace(found, ranks=rows, sites=sites)


@given(any_ranks(), st.integers(20, 160))
def test_any_ranks_fit_their_width_and_move_nothing(found: Ranks, width: int) -> None:
    text = shown(found, width)
    assert text.endswith("\n")
    assert harmless(text)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text_on_the_page(name: str) -> None:
    found = several(one(0, file=name), one(1, file=name))
    (site,) = found.sites
    page = ranks_page(replace(found, sites=[replace(site, file=name, function=name, source=name, title=name)]))
    assert "<script>alert" not in page
    assert harmless(page)


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_writes_all_that_it_is_asked_for(tmp_path: Path) -> None:
    done = run(tmp_path, "ranks", *APART, "--json", "r.json", "--html", "r.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 ranks, a step takes 7.64–7.65 ms. Rank 0 holds the others for")
    found = json.loads((tmp_path / "r.json").read_text())
    assert (found["format"], [r["rank"] for r in found["ranks"]]) == (1, [0, 1])
    assert "<h1>2 ranks" in (tmp_path / "r.html").read_text()
    again = run(tmp_path, "ranks", *APART, "--json", "r.json")
    assert (again.returncode, "--force" in again.stderr) == (1, True)


def test_one_trace_of_all_ranks_is_enough(tmp_path: Path) -> None:
    done = run(tmp_path, "ranks", GIVEN, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["ranks"]) == 2


@pytest.mark.parametrize(
    ("traces", "code", "words"),
    [
        ([APART[0]], 2, "There is only one rank"),
        ([BOTH, APART[0]], 2, "Rank 0 is in two places"),
        ([GIVEN, "--within", "x"], 2, "No such option"),
        (["nothing.sqlite"], 1, "nothing.sqlite"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(tmp_path: Path, traces: list[object], code: int, words: str) -> None:
    done = run(tmp_path, "ranks", *traces)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_its_json_is_no_report(tmp_path: Path) -> None:
    run(tmp_path, "ranks", GIVEN, "--json", "r.json")
    done = run(tmp_path, "report", "r.json")
    assert (done.returncode, "compares ranks" in done.stderr) == (1, True), done.stderr
