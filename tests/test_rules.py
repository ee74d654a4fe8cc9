"""``nsys-sync rules``: the list, one rule, a source line, as text and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.report import catalogue_text
from tests import program as command_line

PROGRAM = "for x in xs:\n    loss = model(x)\n    if torch.isfinite(loss):\n        optimizer.step()\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train it.py"
    path.write_text(PROGRAM)
    return path


def run(*arguments: str) -> str:
    done = command_line.run(Path.cwd(), "rules", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_list_names_every_rule() -> None:
    text = run()
    assert all(rule.id in text for rule in Catalogue.load().rules)


def test_one_rule_in_full() -> None:
    text = " ".join(run("bincount").split())
    rule = Catalogue.load().rule("bincount")
    assert rule.class_ in text
    assert " ".join(rule.why.split()) in text
    assert rule.docs in text


def test_a_line_as_text_and_as_json(program: Path, tmp_path: Path) -> None:
    text = run(f"{program}:3")
    assert "needed" in text
    assert "value-gates-step" in text
    out = tmp_path / "verdict.json"
    run(f"{program}:3", "--json", str(out))
    found = json.loads(out.read_text())
    assert (found["file"], found["line"], found["class"], found["rule"]) == (
        str(program), 3, "needed", "value-gates-step",
    )  # fmt: skip
    assert found["class_basis"].startswith("likely: ")
    assert found["fix"]["text"]
    with pytest.raises(AssertionError, match="exists"):
        run(f"{program}:3", "--json", str(out))


def test_json_on_stdout_is_alone_there(program: Path) -> None:
    assert json.loads(run(f"{program}:3", "--json", "-"))["line"] == 3
    listed = json.loads(run("--json", "-"))
    assert [r["id"] for r in listed] == [r.id for r in Catalogue.load().rules]
    assert json.loads(run("nonzero", "--json", "-"))[0]["class"] == "needed"


@pytest.mark.parametrize("width", [24, 40, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int, program: Path) -> None:
    catalogue = Catalogue.load()
    page = io.StringIO()
    catalogue_text.render_list(catalogue, width=width, color=False, file=page)
    verdict = catalogue.judge_line(program, 3)
    catalogue_text.render_verdict(verdict, catalogue.rule(verdict.rule), "x.py:3", width=width, color=False, file=page)
    for rule in catalogue.rules:
        catalogue_text.render_rule(rule, width=width, color=False, file=page)
    assert max(map(len, page.getvalue().splitlines())) <= width
