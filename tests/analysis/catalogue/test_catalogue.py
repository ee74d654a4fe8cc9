"""The catalogue as a file: its keys are closed, its ids are kept, a team's own rules come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys_sync.analysis.catalogue.evidence import Evidence
from nsys_sync.analysis.catalogue.judge import Catalogue, line_of
from nsys_sync.analysis.catalogue.rules import Match
from nsys_sync.analysis.findings import Frame
from nsys_sync.errors import InputError, UsageError

IDS = Path(__file__).with_name("ids.txt")

OWN = """
[[rule]]
id = "ours"
title = "Our hub"
class = "intentional"
why = "It is meant so."
match = [{ frames = ["team/hub.py:emit"] }]

[words]
log = ["hub.emit"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "own.toml"
    path.write_text(text)
    return path


def read_at(stack: list[tuple[str, str]]) -> Evidence:
    frames = tuple(Frame(function=function, file=file, line=3) for function, file in stack)
    return Evidence(
        apis=frozenset({"cudaStreamSynchronize"}),
        copies=frozenset({"device->pinned"}),
        max_bytes=4,
        native=("torch::autograd::THPVariable_item(_object*, _object*)",),
        stack=frames,
        user=frames[-1],
        leaf=frames[0],
    )


def test_every_id_that_was_ever_given_is_still_that_rule_or_retired() -> None:
    """ids.txt only grows: a rule that goes moves to ``retired``, and its line here stays."""
    catalogue = Catalogue.load()
    given = IDS.read_text().split()
    present = {r.id for r in catalogue.rules} | {f.id for f in catalogue.free}
    assert sorted(set(given)) == given
    assert set(given) - present == set(catalogue.retired)
    assert present <= set(given)


def test_the_last_rule_holds_always_and_no_other_does() -> None:
    rules = Catalogue.load().rules
    assert rules[-1].id == "unknown"
    assert [r.id for r in rules if Match() in r.match] == ["unknown"]
    assert Catalogue.load().judge(Evidence(apis=frozenset())).rule == "unknown"


def test_fixes_are_whole() -> None:
    for rule in Catalogue.load().rules:
        fix = rule.as_fix()
        assert (fix is None) == (not rule.fix)
        if fix is not None:
            assert 1 <= fix.effort <= 7
            assert bool(fix.after) <= bool(fix.before), rule.id
        if rule.run is not None and rule.run.result:
            assert rule.before, rule.id
            assert rule.after, rule.id


def test_code_of_the_catalogue_is_python() -> None:
    catalogue = Catalogue.load()
    for rule in catalogue.rules:
        for code in [e.code for e in (*rule.examples, *rule.counterexamples)]:
            compile(code, rule.id, "exec")
        if rule.run is not None:
            compile(rule.run.setup + "\n" + rule.before, rule.id, "exec")
            compile(rule.after, rule.id, "exec")
    for free in catalogue.free:
        compile(free.setup + "\n" + free.code, free.id, "exec")


def test_own_rules_go_first_and_the_rest_stays(tmp_path: Path) -> None:
    catalogue = Catalogue.load(write(tmp_path, OWN))
    assert catalogue.judge(read_at([("emit", "/repo/team/hub.py"), ("train", "/repo/train.py")])).rule == "ours"
    assert catalogue.judge(read_at([("train", "/repo/train.py")])).rule == "value-read"
    assert len(catalogue.rules) == len(Catalogue.load().rules) + 1


def test_own_words_are_understood(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("for x in xs:\n    hub.emit(model(x).item())\n")
    assert Catalogue.load().judge_line(program, 2).class_ == "unknown"
    assert Catalogue.load(write(tmp_path, OWN)).judge_line(program, 2).rule == "scalar-logged"


def test_own_operations_are_understood(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("for x in xs:\n    print(hub.read(model(x)))\n")
    operation = '[[operation]]\nname = "hub"\nsays = "hub.read()"\nsignals = ["scalar"]\ncalls = [".read()"]\n'
    rule = OWN.replace('frames = ["team/hub.py:emit"]', 'operation = ["hub"], use = ["log"]')
    verdict = Catalogue.load(write(tmp_path, operation + rule)).judge_line(program, 2)
    assert (verdict.rule, verdict.operation, verdict.use) == ("ours", "hub", "log")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("why =", "wy ="), "wy"),
        (("frames =", "frame ="), "frame"),
        (('class = "intentional"', 'class = "harmless"'), "harmless"),
        (('id = "ours"', 'id = "unknown"'), "unknown"),
        (('{ frames = ["team/hub.py:emit"] }', "{}"), "matches everything"),
        (('[{ frames = ["team/hub.py:emit"] }]', "[]"), "no match"),
        (('frames = ["team/hub.py:emit"]', 'operation = ["itm"]'), "itm"),
        (('frames = ["team/hub.py:emit"]', 'use = ["logg"]'), "logg"),
        (("[words]", "[wordz]"), "wordz"),
        (('log = ["hub.emit"]', 'logs = ["hub.emit"]'), "logs"),
        (("[[rule]]", "[[rule"), "TOML"),
        (("[[rule]]", "rule = 3\n[[x]]"), "rule"),
        (('title = "Our hub"\n', ""), "title"),
        (("match = [{", "match = [3, {"), "ours"),
    ],
)
def test_what_a_file_of_rules_must_not_say_is_named_with_the_file(
    tmp_path: Path, change: tuple[str, str], named: str
) -> None:
    assert change[0] in OWN
    path = write(tmp_path, OWN.replace(*change, 1))
    with pytest.raises(InputError) as caught:
        Catalogue.load(path)
    assert caught.value.slug == "rules-file"
    assert named in caught.value.message
    assert str(path) in caught.value.message


def test_a_retired_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="before"):
        Catalogue.load(write(tmp_path, 'retired = ["ours"]\n' + OWN))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"a = 1\n"])
def test_a_file_that_is_no_file_of_rules(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    if content:
        with pytest.raises(InputError):
            Catalogue.load(path)
    else:
        assert Catalogue.load(path).rules == Catalogue.load().rules


def test_a_file_of_rules_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Catalogue.load(tmp_path / "none.toml")
    with pytest.raises(InputError, match="is a folder"):
        Catalogue.load(tmp_path)


def test_what_is_asked_for() -> None:
    assert line_of("train.py:12") == (Path("train.py"), 12)
    assert line_of("a:b/train.py:12") == (Path("a:b/train.py"), 12)
    assert line_of("value-read") is None
    for text in ("train.py", "train.py:", "train.py:x", "src/train"):
        with pytest.raises(UsageError):
            line_of(text)
    with pytest.raises(UsageError, match="no rule"):
        Catalogue.load().rule("value-raed")
