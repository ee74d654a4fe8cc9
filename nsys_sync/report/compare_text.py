"""A comparison in a terminal: whether the change helped, by how much, and at which lines."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nsys_sync.report import compare_words as words
from nsys_sync.report.terminal import paragraphs, show
from nsys_sync.report.words import harmless, kind, short_names

if TYPE_CHECKING:
    from nsys_sync.compare.comparison import Comparison, SiteChange, SiteSide
    from nsys_sync.compare.noise import Change

#: Sites that are listed unless the caller asks for more.
SITES_SHOWN = 20

_STATE_STYLE = {"gone": "bold green", "new": "bold red", "changed": "yellow", "same": "dim"}
_OUTCOME_STYLE = {"faster": "bold green", "slower": "bold red"}
#: Narrower terminals get one column of totals less and the sites' numbers below their place.
_WIDE = 110


def render(
    comparison: Comparison,
    *,
    width: int | None = None,
    color: bool | None = None,
    file: IO[str] | None = None,
    limit: int | None = SITES_SHOWN,
) -> None:
    """Write the comparison for people; the arguments are those of ``text.render``."""
    show(lambda columns: _page(comparison, columns, limit), width=width, color=color, file=file)


def _page(comparison: Comparison, width: int, limit: int | None) -> RenderableType:
    parts = [_headline(comparison), _sides(comparison), _totals(comparison), _sites(comparison, width, limit)]
    if comparison.warnings:
        parts.append(Group(*[Text(f"Note: {harmless(note.text)}") for note in comparison.warnings]))
    return paragraphs(parts)


def _headline(comparison: Comparison) -> RenderableType:
    style = _OUTCOME_STYLE.get(comparison.outcome, "bold")
    lines = [Text(harmless(words.headline(comparison)), style=style)]
    if comparison.prediction:
        lines.append(Text(words.prediction(comparison.prediction)))
    return Group(*lines)


def _sides(comparison: Comparison) -> RenderableType:
    table = _grid()
    for side in (comparison.before, comparison.after):
        table.add_row(Text(side.name, style="dim"), Text(harmless(words.side(side)), overflow="fold"))
    return table


def _totals(comparison: Comparison) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("a step" if comparison.basis == "step" else "whole capture", no_wrap=True)
    table.add_column("before → after", overflow="fold")
    table.add_column("difference", overflow="fold")
    table.add_column("", overflow="fold")
    for change in comparison.quantities:
        name = words.QUANTITIES[change.name]
        difference = Text(words.difference(change) if change.delta is not None else "", style=_style(change))
        table.add_row(name, words.arrow(change), difference, Text(_verdict(change), style="dim"))
    return table


def _verdict(change: Change) -> str:
    """The verdict where there is one; that the noise is unknown is said once, in the headline."""
    return "" if change.verdict == "noise_unknown" else words.verdict(change)


def _style(change: Change) -> str:
    if not change.notable or change.delta is None:
        return "dim"
    return "green" if change.delta < 0 else "red"


def _sites(comparison: Comparison, width: int, limit: int | None) -> RenderableType:
    title = Text(harmless(words.sites_line(comparison)), style="bold")
    if not comparison.sites:
        return title
    shown = comparison.sites if limit is None else comparison.sites[:limit]
    if len(shown) < len(comparison.sites):
        title.append(f" ({len(shown)} of {len(comparison.sites)} shown)", style="not bold")
    rows = _Rows(comparison, wide=width >= _WIDE)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=rows.wide)
    table.add_column("", no_wrap=True)
    per = "/step" if comparison.basis == "step" else ""
    if rows.wide:
        table.add_column(f"wait{per}", no_wrap=True)
        table.add_column(f"syncs{per}", no_wrap=True)
    table.add_column("where", overflow="fold", ratio=1)
    for site in shown:
        state = Text(site.state, style=_STATE_STYLE[site.state])
        table.add_row(state, *rows.numbers(site), rows.where(site))
    return Group(title, table)


class _Rows:
    """The rows of a comparison's sites; wide: with columns for the numbers."""

    def __init__(self, comparison: Comparison, *, wide: bool) -> None:
        self.wide = wide
        self.basis = comparison.basis
        sides = [side for site in comparison.sites or [] for side in words.sides(site)]
        self.names = short_names({side.file for side in sides if side.file})

    def numbers(self, site: SiteChange) -> list[Text]:
        if not self.wide:
            return []
        if self.basis == "step" and not words.in_loop(site):
            return [Text("outside the loop", style="dim"), Text("")]
        return [Text(words.arrow(site.wait)), Text(words.arrow(site.events))]

    def where(self, site: SiteChange) -> Text:
        """Place, old and new where it moved; the line of code; what it is; the numbers where they have no column."""
        sides = words.sides(site)
        first, last = sides[0], sides[-1]
        place = words.place(first, self.names)
        if site.moved:
            place += f" → {last.line}" if last.file == first.file else f" → {words.place(last, self.names)}"
        text = Text(place, style="bold", overflow="fold")
        if last.function:
            text.append(f"  {harmless(last.function, 60)}", style="not bold")
        if site.state != "same":
            for code, style in _code(first, last):
                text.append(f"\n{harmless(code, 100)}", style=f"not bold {style}")
            text.append(f"\n{site.class_} · {kind(site)} · id {harmless(site.id, 40)}", style="not bold dim")
        if not self.wide:
            text.append(f"\n{words.cost(site, self.basis)}", style="not bold")
        elif self.basis == "step" and not words.in_loop(site):
            text.append(f"\n{words.outside(site)}", style="not bold dim")
        if site.state == "changed":
            text.append(f"\n{_what_changed(site)}", style="not bold yellow")
        return text


def _code(first: SiteSide, last: SiteSide) -> list[tuple[str, str]]:
    """The line of code, or both where it was edited."""
    if first.source and last.source and first.source != last.source:
        return [(f"− {first.source}", "red"), (f"+ {last.source}", "green")]
    code = last.source or first.source
    return [(code, "green")] if code else []


def _what_changed(site: SiteChange) -> str:
    parts = [f"{name} {words.difference(c)}" for name, c in (("wait", site.wait), ("syncs", site.events)) if c.notable]
    unknown = "noise_unknown" in {site.wait.verdict, site.events.verdict}
    return ", ".join(parts) + (", noise unknown" if unknown else "")


def _grid() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    return table
