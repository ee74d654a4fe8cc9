"""A check in a terminal: what was exceeded, by how much, and at which lines."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nsys_sync.report import gate_words as words
from nsys_sync.report.terminal import next_steps, paragraphs, show
from nsys_sync.report.words import Places, count, harmless, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nsys_sync.analysis.findings import Site
    from nsys_sync.gate import Gate

_STATUS_STYLE = {"passed": "bold green", "failed": "bold red", "not_measured": "bold yellow"}
_MARKS = {"held": ("✓", "green"), "exceeded": ("✗", "red"), "not_measured": ("?", "yellow")}


def render(
    gate: Gate,
    sites: dict[str, Site],
    *,
    width: int | None = None,
    color: bool | None = None,
    file: IO[str] | None = None,
) -> None:
    """Write the result for people. sites: ``gate.sites_by_id`` of the reports; the rest as in ``text.render``."""
    show(lambda _: _page(gate, sites), width=width, color=color, file=file)


def _page(gate: Gate, sites: dict[str, Site]) -> RenderableType:
    places = Places(list(sites.values()))
    checked = Text(harmless(", ".join(gate.captures)), style="dim")
    parts: list[RenderableType] = [Group(Text(words.headline(gate), style=_STATUS_STYLE[gate.status]), checked)]
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for mark, style, line in [*_limits(gate, sites, places), *_baseline(gate, sites, places)]:
        table.add_row(Text(mark, style=style), line)
    parts.append(table)
    notes = [*_accepted(gate, sites, places), *[f"Note: {harmless(n.text)}" for n in gate.warnings]]
    if notes:
        parts.append(Group(*[Text(note) for note in notes]))
    return paragraphs([*parts, _next(gate, sites)])


def _next(gate: Gate, sites: dict[str, Site]) -> RenderableType | None:
    """How to mend the first of the sites that fail."""
    failing = [name for result in gate.limits for name in result.sites]
    failing += [growth.site for growth in gate.baseline.growth] if gate.baseline else []
    fixable = next((sites[name] for name in failing if sites[name].fix is not None), None)
    return next_steps([f"nsys-sync rules {quoted(fixable.rule)}"] if fixable else [])


def _limits(gate: Gate, sites: dict[str, Site], places: Places) -> Iterable[tuple[str, str, Text]]:
    several = len(gate.captures) > 1
    for result in gate.limits:
        text = Text(harmless(words.limit_line(result)))
        where = [harmless(result.capture)] if several else []
        where += [f"process {result.pid}"] if result.pid is not None and _processes(sites) > 1 else []
        if where:
            text.append(f" ({', '.join(where)})", style="dim")
        for site_id in result.sites:
            text.append_text(_site(sites[site_id], places))
        yield *_MARKS[result.status], text


def _processes(sites: dict[str, Site]) -> int:
    return len({p.pid for s in sites.values() for p in s.by_process})


def _baseline(gate: Gate, sites: dict[str, Site], places: Places) -> Iterable[tuple[str, str, Text]]:
    if gate.baseline is None:
        return
    for growth in gate.baseline.growth:
        yield *_MARKS["exceeded"], Text(words.growth_line(growth)).append_text(_site(sites[growth.site], places))
    for reason in gate.baseline.not_measured:
        yield *_MARKS["not_measured"], Text(f"--baseline: not measured: {harmless(reason)}")
    if not gate.baseline.growth and not gate.baseline.not_measured:
        yield (
            *_MARKS["held"],
            Text(f"--baseline {harmless(', '.join(gate.baseline.captures))}: no new site, no growth."),
        )


def _site(site: Site, places: Places) -> Text:
    text = Text(f"\n{places.site(site)}", style="bold")
    if site.function:
        text.append(f"  {harmless(site.function, 60)}", style="not bold")
    rule = f"{site.class_} ({harmless(site.rule, 40)})" if site.rule != site.class_ else site.class_
    text.append(f"  {rule} · id {harmless(site.id, 40)}", style="not bold dim")
    code = words.code(site)
    return text.append(f"\n  {code}", style="not bold green") if code else text


def _accepted(gate: Gate, sites: dict[str, Site], places: Places) -> Iterable[str]:
    accepted = [s for s in gate.sites if s.outcome == "accepted"]
    if accepted:
        yield f"{count(len(accepted), 'accepted site')}, not counted:"
    for site in accepted:
        yield f"  {places.site(sites[site.id])}: {harmless(site.accepted_because or '', 120)}"
    yield from (line for use in gate.allow if (line := words.entry_line(use)))
