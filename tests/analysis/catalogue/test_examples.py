"""Every rule's examples: those that it matches and those that it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.catalogue.rules import Example, Rule
from tests.analysis.catalogue.cases import evidence_of

CATALOGUE = Catalogue.load()
HITS = [(r, i) for r in CATALOGUE.rules for i in range(len(r.examples))]
MISSES = [(r, i) for r in CATALOGUE.rules for i in range(len(r.counterexamples))]


def _name(value: Rule | int) -> str:
    return value.id if isinstance(value, Rule) else str(value)


@pytest.mark.parametrize(("rule", "index"), HITS, ids=_name)
def test_an_example_falls_under_its_rule(rule: Rule, index: int, tmp_path: Path) -> None:
    verdict = CATALOGUE.judge(evidence_of(rule.examples[index], tmp_path))
    assert (verdict.rule, verdict.class_) == (rule.id, rule.class_), verdict.class_basis


@pytest.mark.parametrize(("rule", "index"), MISSES, ids=_name)
def test_a_counterexample_does_not(rule: Rule, index: int, tmp_path: Path) -> None:
    example: Example = rule.counterexamples[index]
    verdict = CATALOGUE.judge(evidence_of(example, tmp_path))
    assert verdict.rule != rule.id
    assert example.rule in {None, verdict.rule}, verdict.class_basis


@pytest.mark.parametrize("rule", CATALOGUE.rules, ids=_name)
def test_every_rule_has_both(rule: Rule) -> None:
    assert rule.examples
    assert rule.counterexamples
