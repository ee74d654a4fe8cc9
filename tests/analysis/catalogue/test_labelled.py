"""The labelled set: how often the class is right, and never «avoidable» for a sync that is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nsys_sync.analysis.catalogue.judge import Catalogue, Verdict
from tests.analysis.catalogue.labelled import Snippet, snippets

ROOT = Path(__file__).parents[3]
ENOUGH = 60
#: The share of classes that must be right in each half; below it something has broken.
FLOOR = 0.9


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Snippet, Verdict]]:
    catalogue, folder = Catalogue.load(), tmp_path_factory.mktemp("snippets")
    return [(s, s.judged(catalogue, folder)) for s in snippets()]


def test_the_set_is_large_and_drawn_from_public_reports(judged: list[tuple[Snippet, Verdict]]) -> None:
    assert len({s.id for s, _ in judged}) == len(judged) >= ENOUGH
    assert all(s.source.startswith("https://github.com/") for s, _ in judged)
    rules = {r.id for r in Catalogue.load().rules}
    assert {s.rule for s, _ in judged} <= rules


@pytest.mark.parametrize("half", ["built", "measured"])
def test_classes_are_right(judged: list[tuple[Snippet, Verdict]], half: str) -> None:
    mine = [(s, v) for s, v in judged if s.half == half]
    wrong = [(s.id, s.class_, v.class_, v.rule) for s, v in mine if v.class_ != s.class_]
    assert len(wrong) <= (1 - FLOOR) * len(mine), wrong


def test_a_needed_sync_is_never_called_avoidable(judged: list[tuple[Snippet, Verdict]]) -> None:
    assert [s.id for s, v in judged if s.class_ == "needed" and v.class_ == "avoidable"] == []


def test_the_page_of_rules_is_current() -> None:
    script = ROOT / "scripts/docs_rules.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
