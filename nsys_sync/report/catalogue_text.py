"""The catalogue in a terminal: all rules, one rule, or what it makes of a source line."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nsys_sync.analysis.catalogue.verified import in_words, trials
from nsys_sync.report.terminal import CLASS_STYLE, paragraphs, show
from nsys_sync.report.words import harmless

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nsys_sync.analysis.catalogue.judge import Catalogue, Verdict
    from nsys_sync.analysis.catalogue.rules import Rule
    from nsys_sync.analysis.findings import Fix

_NARROW = 60


def render_list(
    catalogue: Catalogue, *, width: int | None = None, color: bool | None = None, file: IO[str] | None = None
) -> None:
    """Write all rules, one a line, in the order in which they are tried."""
    show(lambda columns: _list(catalogue, columns), width=width, color=color, file=file)


def render_rule(
    rule: Rule, *, width: int | None = None, color: bool | None = None, file: IO[str] | None = None
) -> None:
    """Write one rule in full."""
    show(lambda _: _rule(rule), width=width, color=color, file=file)


def render_verdict(
    verdict: Verdict,
    rule: Rule,
    place: str,
    *,
    width: int | None = None,
    color: bool | None = None,
    file: IO[str] | None = None,
) -> None:
    """Write what the catalogue makes of a line. rule: the verdict's; place: the line as the user gave it."""
    show(lambda _: _verdict(verdict, rule, place), width=width, color=color, file=file)


def rules_json(rules: Sequence[Rule]) -> bytes:
    """Rules as JSON, without the examples that they are tested with."""
    shown = ("id", "title", "class", "why", "blocks", "fix", "effort", "before", "after", "docs")
    return _json([{k: msgspec.to_builtins(r)[k] for k in shown} | {"claim": in_words(r.id)} for r in rules])


def verdict_json(path: Path, line: int, verdict: Verdict) -> bytes:
    """What the catalogue makes of a line, with the keys of a site in a report."""
    return _json({"file": str(path), "line": line} | msgspec.to_builtins(verdict))


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _list(catalogue: Catalogue, columns: int) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for rule in catalogue.rules:
        class_ = Text(rule.class_, style=CLASS_STYLE[rule.class_])
        if columns < _NARROW:
            table.add_row(Text(harmless(rule.id)), class_)
        else:
            table.add_row(Text(harmless(rule.id)), class_, Text(harmless(rule.title)))
    found = trials()
    tried = 0 if found is None else sum(t.verdict in {"verified", "waits"} for t in found.rules.values())
    summary = f"{len(catalogue.rules)} rules, tried from the top; the first that holds is the answer."
    if found is not None:
        summary += f" {tried} of their claims hold on {found.where}."
    next_ = "One of them: nsys-sync rules ID. A line of yours: nsys-sync rules FILE:LINE"
    return Group(table, Text(), Text(summary), Text(next_, style="dim"))


def _rule(rule: Rule) -> RenderableType:
    head = Text.assemble((harmless(rule.id), "bold"), "  ", (rule.class_, CLASS_STYLE[rule.class_]), "  ")
    parts: list[RenderableType] = [Group(head.append(harmless(rule.title))), Text(harmless(rule.why))]
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold", ratio=1)
    if rule.blocks:
        facts.add_row("blocks in", Text(harmless(rule.blocks)))
    facts.add_row("claim", Text(in_words(rule.id)))
    parts.append(facts)
    if (fix := rule.as_fix()) is not None:
        parts += _fix(fix, rule.fix)
    return _stacked(parts)


def _verdict(verdict: Verdict, rule: Rule, place: str) -> RenderableType:
    head = Text.assemble((harmless(place), "bold"), "  ", (verdict.class_, CLASS_STYLE[verdict.class_]), "  ")
    parts: list[RenderableType] = [
        Group(head.append(harmless(verdict.title))),
        Text.assemble(("Basis  ", "dim"), harmless(verdict.class_basis)),
        Text.assemble(("Rule   ", "dim"), harmless(verdict.rule)),
    ]
    if verdict.fix is not None:
        parts += _fix(verdict.fix, rule.fix)
    return _stacked(parts)


def _fix(fix: Fix, texts: list[str]) -> list[RenderableType]:
    steps = Table.grid(padding=(0, 1, 0, 0))
    steps.add_column(no_wrap=True)
    steps.add_column(overflow="fold", ratio=1)
    for number, text in enumerate(texts, 1):
        steps.add_row(f"{number}." if len(texts) > 1 else "Fix", Text(harmless(text)))
    parts: list[RenderableType] = [steps]
    for name, code in (("Before", fix.before), ("After", fix.after)):
        if code.strip():
            lines = [Text(harmless(line)) for line in code.strip("\n").splitlines()]
            parts.append(Group(Text(name, style="dim"), *[Padding(line, (0, 0, 0, 2)) for line in lines]))
    if fix.docs:
        parts.append(Text(harmless(fix.docs), style="dim"))
    return parts


def _stacked(parts: list[RenderableType]) -> RenderableType:
    return paragraphs(parts)
