"""Any source: what cannot be parsed is judged by what can, and nothing of it is ever run."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from nsys_sync.analysis.catalogue import syntax
from nsys_sync.analysis.catalogue.evidence import Evidence
from nsys_sync.analysis.catalogue.judge import Catalogue
from nsys_sync.analysis.findings import Frame
from nsys_sync.errors import InputError, UsageError
from tests.analysis.catalogue.cases import marked_line

CATALOGUE = Catalogue.load()
LOOP = "for x in xs:\n    print(model(x).item())\n"


def judge(folder: Path, content: str | bytes, line: int) -> tuple[str, str]:
    path = folder / "program.py"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    verdict = CATALOGUE.judge_line(path, line)
    return verdict.rule, verdict.class_basis


def test_a_program_is_not_run(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    judge(tmp_path, f"open({str(target)!r}, 'w')\n" + LOOP, 3)
    assert not target.exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def broken(:\n    pass\n", ""),
        ("", "def broken(:\n    pass\n"),
        ("print 'Python 2'\n", ""),
        ("x = 1 +\n", "y = ((\n"),
        ("match = t'{x!r:{y}}' in = newer\n", ""),
    ],
)
def test_a_file_with_a_syntax_error_elsewhere(tmp_path: Path, before: str, after: str) -> None:
    body = "def train():\n    for x in xs:\n        value = model(x).item()\n        print(value)\n"
    rule, basis = judge(tmp_path, before + body + after, before.count("\n") + 3)
    assert rule == "scalar-logged"
    assert "only part of the file" in basis
    assert basis.startswith("weak")


def test_a_line_that_cannot_be_parsed(tmp_path: Path) -> None:
    assert judge(tmp_path, "x = = y.item()\n", 1)[0] == "unknown"


@pytest.mark.parametrize(
    "content",
    [
        "# -*- coding: latin-1 -*-\n# \xe9t\xe9\n".encode("latin-1") + LOOP.encode(),
        b"# caf\xe9 in no declared encoding\n\n" + LOOP.encode(),
        b"\xef\xbb\xbf# with a mark\n\n" + LOOP.encode(),
        b"# coding: no-such-codec\n\n" + LOOP.encode(),
        ("# \U0001f980 ünïcödé\n\n" + LOOP).encode(),
        b"\n\n" + LOOP.replace("\n", "\r\n").encode(),
    ],
)
def test_encodings(tmp_path: Path, content: bytes) -> None:
    assert judge(tmp_path, content, 4)[0] == "scalar-logged"


def test_null_bytes_and_nonsense(tmp_path: Path) -> None:
    assert judge(tmp_path, b"a = b.item()\n\0\0\n" + LOOP.encode(), 1)[0] in {"read-rarely", "value-read", "unknown"}
    assert judge(tmp_path, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\n" * 50, 7)[0] == "unknown"


def test_deep_nesting_does_not_overflow(tmp_path: Path) -> None:
    deep = "x = " + "(" * 90 + "y.item()" + ")" * 90
    chain = (
        "for x in xs:\n    a0 = x.item()\n"
        + "".join(f"    a{i + 1} = a{i}\n" for i in range(3000))
        + "    print(a3000)\n"
    )
    assert judge(tmp_path, deep + "\n", 1)[0] in {"read-rarely", "value-read"}
    assert judge(tmp_path, chain, 2)[0] in {"value-read", "scalar-logged"}
    assert judge(tmp_path, "x = " + "+".join(["y.item()"] * 5000) + "\n", 1)[0] in {"read-rarely", "unknown"}


def test_functions_that_call_each_other_for_ever(tmp_path: Path) -> None:
    code = "def a(v):\n    return b(v)\ndef b(v):\n    return a(v)\nfor x in xs:\n    a(model(x).item())\n"
    assert judge(tmp_path, code, 6)[0] == "value-read"


def test_a_file_that_is_not_there_or_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        CATALOGUE.judge_line(tmp_path / "none.py", 1)
    with pytest.raises(InputError):
        CATALOGUE.judge_line(tmp_path, 1)
    assert syntax.read(tmp_path / "none.py", 1) is None
    assert syntax.read(tmp_path, 1) is None


@pytest.mark.parametrize("line", [0, 3, -1])
def test_a_line_that_is_not_there(tmp_path: Path, line: int) -> None:
    with pytest.raises(UsageError, match="no line"):
        judge(tmp_path, LOOP, line)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    assert judge(tmp_path, LOOP, 2)[0] == "scalar-logged"
    assert judge(tmp_path, LOOP.replace("print(", "decide("), 2)[0] == "value-read"


@hypothesis.given(st.text(st.characters(codec="utf-8"), max_size=80), st.integers(0, 6))
def test_any_text_beside_a_sync_gives_some_verdict(text: str, place: int) -> None:
    lines = LOOP.splitlines(keepends=True) * 3
    source = "".join(lines[:place]) + text + "".join(lines[place:])
    for line in range(1, source.count("\n") + 1):
        parsed = syntax.parse(source, line)
        if parsed is not None:
            CATALOGUE.operations.candidates(parsed, line, [o.name for o in CATALOGUE.operations.all], told=False)


@pytest.mark.parametrize(
    ("code", "rule", "api"),
    [
        (
            "for x in xs:\n    token = torch.multinomial(probs, 1)  # <-\n    head(token)\n",
            "multinomial",
            "cudaStreamSynchronize",
        ),
        ("for x in xs:\n    y = x.pin_memory()  # <-\n    head(y)\n", "pin-in-loop", "cudaHostAlloc"),
        (
            "import cupy\nfor x in xs:\n    y = cupy.asarray(x)  # <-\n    head(y)\n",
            "cupy-upload",
            "cudaStreamSynchronize",
        ),
    ],
)
def test_what_need_not_wait_is_unknown_until_a_wait_is_seen(code: str, rule: str, api: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(code)
    line = marked_line(code)
    read = CATALOGUE.judge_line(program, line)
    assert (read.rule, read.class_, read.sureness) == (rule, "unknown", "weak")
    assert "no trace shows a wait here" in read.class_basis
    user = Frame(function="", file=str(program), line=line)
    seen = Evidence(apis=frozenset({api}), user=user, leaf=user, stack=(user,), source=program)
    assert (CATALOGUE.judge(seen).rule, CATALOGUE.judge(seen).class_) == (rule, "avoidable")


def test_a_log_behind_the_loop_is_not_advised_to_be_rarer(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "for x in xs:\n    best = min(best, float(model(x)))\n    value = model(x).item()\nprint(best, value)\n"
    )
    for line in (2, 3):
        assert CATALOGUE.judge_line(program, line).rule == "scalar-accumulated"
    program.write_text("for e in es:\n    for x in xs:\n        value = model(x).item()\n        print(value)\n")
    assert CATALOGUE.judge_line(program, 3).rule == "scalar-logged"
