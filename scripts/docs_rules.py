"""Write docs/rules.md from the catalogue, the claims tried on a GPU and the labelled set.

python scripts/docs_rules.py            write the page
python scripts/docs_rules.py --check    exit 1 if the page is not what the catalogue gives
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/rules.md"
sys.path.insert(0, str(ROOT))

from nsys_sync.analysis.catalogue.consumer import Use  # noqa: E402 found through the line above
from nsys_sync.analysis.catalogue.judge import Catalogue, Verdict  # noqa: E402
from nsys_sync.analysis.catalogue.rules import Rule  # noqa: E402
from nsys_sync.analysis.catalogue.surroundings import Near, Operand  # noqa: E402
from nsys_sync.analysis.catalogue.verified import in_words, trials  # noqa: E402
from tests.analysis.catalogue.labelled import CLASSES, Snippet, snippets  # noqa: E402

INTRODUCTION = """\
# Rules

<!-- Written by scripts/docs_rules.py; edit nsys_sync/analysis/catalogue/rules.toml instead. -->

Every site in a report falls under one rule of this catalogue. The rule says what kind of sync it is (its class), why
it waits, and what to write instead. `nsys-sync rules` lists them, `nsys-sync rules ID` shows one, and
`nsys-sync rules train.py:42` says, without a trace, what a sync on that line would be.

| class | meaning |
|---|---|
| avoidable | the program gets the same result without the wait |
| deferrable | the host wants the value, but not now: a log, a check, a count |
| needed | the host cannot go on without it: it branches on the value, a shape depends on it, it computes with it |
| intentional | the wait is the point: timing, back-pressure, a checkpoint's edge |
| unknown | what is known does not tell; it is not guessed |

**What a class rests on.** The native stack and the innermost Python frame say which operation waits. The syntax tree of
the source line says what becomes of the value: it is followed through names, containers and functions of the same file
to where it has its effect, and the most binding effect counts. Nothing of the program is run or imported. `class_basis`
in a report says which of these were there, and begins with how sure the class is: *sure* where a stack names the
operation, *likely* where the source alone does, *weak* where several things are possible.

**Order of work**, easiest first; a fix's `effort` is its place here:

1. Remove what is not needed.
2. Pinned memory and `non_blocking=True`.
3. An operation that does not wait.
4. Defer it to the end of the interval.
5. Merge several reads into one.
6. Move the logic onto the GPU.
7. Keep it, outside of what is captured or measured.

**Three traps.** A `non_blocking` copy to the host blocks all the same unless its target is pinned; with a pinned
target the host must not read before an event recorded behind the copy has passed. `pin_memory()` in the loop is slower
than the copy it is meant to hide. A check that is deferred finds a NaN later, after the weights have taken it.

Any of these waits makes the capture of a CUDA graph fail; sites inside the steps are marked for that.
"""

CLAIMS = """\
*verified*: the code after the change waited less than the code before it, with the same result. *waits*: only the code
before was run, and it waited. *no wait*: it did not wait with these versions; such a line is of class unknown until a
trace shows a wait there. *unverified*: not run on a GPU here, so the claim rests on documentation and source.
"""

OWN_RULES = """\
## Rules of your own

`--rules FILE` puts a file of your own in front of the catalogue. It has the same form as the catalogue: `[[rule]]`
tables with `id`, `title`, `class`, `why`, `match` and, if you like, `fix`, `before`, `after`, `effort`, `docs`. Rules
are tried from the top and the first that holds is the answer; an unknown key is refused. All conditions of a `match`
must hold, one value of each list is enough, and of several matches one is enough.

```toml
[[rule]]
id = "team-metrics"
title = "Our metric hub reads values"
class = "deferrable"
why = "hub.emit() turns tensors into numbers."
fix = ["Hand it tensors; it reads them at the end of the epoch."]
effort = 4
match = [{ frames = ["team/hub.py:emit"] }]

[words]
log = ["hub.emit"]
```

| key of a match | holds when |
|---|---|
"""

LABELLED = """\
## How often the class is right

{} snippets drawn from public reports and fixes (`tests/analysis/catalogue/snippets.toml`: the facts are theirs, the
code is this project's) were labelled with a class and a rule. A hash of the id sends each into one of two halves: one
was looked at while the catalogue was written, the other was only counted. They are snippets, written by the catalogue's
authors: a program of your own will do worse.
"""

KEYS = {
    "operation": "the operation that waits is one of these",
    "use": "what becomes of the value is one of these",
    "operand": "what is copied is one of these",
    "near": "one of these is near the line",
    "not_near": "none of these is",
    "apis": "one of the blocking calls has this name",
    "copies": "one of the copies goes this way: `pageable->device`, `device->pageable`, `pinned->device` …",
    "bytes_from": "the largest copy has at least as many bytes",
    "bytes_to": "the largest copy has at most as many bytes",
    "native": "the native stack has this symbol; `inner < outer` asks for both",
    "leaf": "the innermost Python frame is `file suffix:function`",
    "frames": "the user's frame, or one that it called, is `file suffix:function`",
    "every_step": "true: more than once in ten steps; false: more rarely",
    "redundant": "true: nothing was launched since the sync before, for every event",
}


def page() -> str:
    """The whole page."""
    catalogue = Catalogue.load()
    parts = [INTRODUCTION, _index(catalogue), *(_section(rule) for rule in catalogue.rules), _free(catalogue)]
    parts += [_own_rules(catalogue), _labelled(catalogue)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _index(catalogue: Catalogue) -> str:
    found = trials()
    on = f" Claims were tried on {found.where}." if found is not None else ""
    lines = [f"## All rules\n\n{len(catalogue.rules)} rules, in the order in which they are tried.{on}\n"]
    lines += [CLAIMS, _tally(catalogue), ""]
    lines += ["| rule | class | what it is | claim |", "|---|---|---|---|"]
    lines += [f"| [{r.id}](#{r.id}) | {r.class_} | {_cell(r.title)} | {_claim(r)} |" for r in catalogue.rules]
    return "\n".join(lines)


def _tally(catalogue: Catalogue) -> str:
    counts = Counter(_claim(rule) for rule in catalogue.rules)
    return "Rules by claim: " + ", ".join(f"{counts[claim]} {claim}" for claim in sorted(counts)) + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _claim(rule: Rule) -> str:
    found = trials()
    trial = found.rules.get(rule.id) if found is not None else None
    return trial.verdict.replace("_", " ") if trial is not None and trial.verdict != "failed" else "unverified"


def _section(rule: Rule) -> str:
    lines = [f"## {rule.id}\n", f"**{_prose(rule.title)}.** Class: {rule.class_}.\n", _prose(rule.why)]
    if rule.blocks:
        lines.append(f"\nIt blocks in: {_prose(rule.blocks)}.")
    if rule.fix:
        lines.append("")
        lines += [f"{i}. {_prose(text)}" for i, text in enumerate(rule.fix, 1)]
    for name, code in (("Before", rule.before), ("After", rule.after)):
        if code.strip():
            lines += [f"\n{name}:\n", "```python", code.strip("\n"), "```"]
    lines.append(f"\nClaim: {in_words(rule.id)}." + (f" See also <{rule.docs}>." if rule.docs else ""))
    return "\n".join(lines)


def _prose(text: str) -> str:
    """Text whose code-like words cannot be taken for Markdown."""
    return text.replace("_", "\\_").replace("*", "\\*").replace("<", "&lt;")


def _free(catalogue: Catalogue) -> str:
    lines = ["## What does not wait\n", "| operation | code | claim |", "|---|---|---|"]
    for free in catalogue.free:
        code = "; ".join(line for line in free.code.splitlines() if line)
        lines.append(f"| {_cell(_prose(free.title))} | `{_cell(code)}` | {in_words(free.id)} |")
    return "\n".join(lines)


def _own_rules(catalogue: Catalogue) -> str:
    rows = [f"| `{key}` | {text} |" for key, text in KEYS.items()]
    values = {
        "operation": [o.name for o in catalogue.operations.all],
        "use": list(get_args(Use)),
        "operand": list(get_args(Operand)),
        "near": list(get_args(Near)),
    }
    lists = [f"\n`{key}`: {', '.join(f'`{v}`' for v in names)}." for key, names in values.items()]
    return OWN_RULES + "\n".join([*rows, *lists])


def _labelled(catalogue: Catalogue) -> str:
    with tempfile.TemporaryDirectory() as folder:
        judged = [(s, s.judged(catalogue, Path(folder))) for s in snippets()]
    lines = [LABELLED.format(len(judged))]
    for half, name in (("built", "Half for building"), ("measured", "Half that is only measured")):
        lines += ["", *_half(name, [(s, v) for s, v in judged if s.half == half])]
    return "\n".join(lines)


def _half(name: str, judged: list[tuple[Snippet, Verdict]]) -> Iterator[str]:
    right = sum(v.class_ == s.class_ for s, v in judged)
    rules = sum(v.rule == s.rule for s, v in judged)
    wrong = sum(v.class_ == "avoidable" and s.class_ == "needed" for s, v in judged)
    counts = Counter((s.class_, v.class_) for s, v in judged)
    right_of = f"class right {right}, rule right {rules}; «avoidable» for a needed one {wrong}"
    yield f"**{name}**: {len(judged)} snippets, {right_of}."
    yield ""
    yield "| labelled \\ given | " + " | ".join(CLASSES) + " |"
    yield "|---|" + "--:|" * len(CLASSES)
    for label in CLASSES:
        yield f"| {label} | " + " | ".join(str(counts[label, given] or "") for given in CLASSES) + " |"


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether the page is current")
    if parser.parse_args().check:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        print("docs/rules.md is current." if current else "docs/rules.md is not current: python scripts/docs_rules.py")
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    print(f"Written: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
