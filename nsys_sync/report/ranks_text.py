"""Several ranks in a terminal: who holds the others, a row for each rank, and which of them have which syncs."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nsys_sync.report import ranks_words as words
from nsys_sync.report.terminal import next_steps, paragraphs, show
from nsys_sync.report.words import NOT_MEASURED, harmless, kind, quoted, scale

if TYPE_CHECKING:
    from nsys_sync.ranks import Ranks, RankSite

#: Sites that are listed unless the caller asks for more.
SITES_SHOWN = 20


def render(
    found: Ranks,
    *,
    width: int | None = None,
    color: bool | None = None,
    file: IO[str] | None = None,
    limit: int | None = SITES_SHOWN,
) -> None:
    """Write the ranks for people; the arguments are those of ``text.render``."""
    show(lambda _: _page(found, limit), width=width, color=color, file=file)


def _page(found: Ranks, limit: int | None) -> RenderableType:
    notes = words.notes(found)
    return paragraphs(
        [
            Text(words.headline(found), style="bold"),
            _ranks(found),
            _sites(found, limit),
            Group(*[Text(line, style="dim") for line in notes]) if notes else None,
            next_steps([f"nsys-sync rules {quoted(found.sites[0].rule)}"] if found.sites else []),
        ]
    )


def _ranks(found: Ranks) -> RenderableType:
    rows = found.ranks
    per = "a step" if found.basis == "step" else "in all"
    step, waited = scale((r.step_ns for r in rows), 4), scale((words.of_rank(found, r, r.wait_ns) for r in rows), 4)
    met = scale((words.each(found, ns) for r in rows for ns in (r.waits_ns, r.holds_ns)), 3)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(per, overflow="fold")
    table.add_column("GPU", no_wrap=True)
    for heading in (
        f"step\n{step.unit}",
        f"CPU waits\n{waited.unit}",
        f"GPU waits for\nothers, {met.unit}",
        f"holds\nothers, {met.unit}",
        f"behind its\nsyncs, {met.unit}",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    most = max((r.holds_ns or 0 for r in rows), default=0)
    for r in rows:
        table.add_row(
            words.label(found, r),
            ", ".join(str(d) for d in r.devices) or NOT_MEASURED,
            step.show(r.step_ns),
            waited.show(words.of_rank(found, r, r.wait_ns)),
            met.show(words.each(found, r.waits_ns)),
            Text(met.show(words.each(found, r.holds_ns)), style="bold" if most and r.holds_ns == most else ""),
            words.at_most(met.show(words.each(found, r.by_syncs_ns)), r.by_syncs_ns),
        )
    return table


def _sites(found: Ranks, limit: int | None) -> RenderableType | None:
    if not found.sites:
        return None
    shown = found.sites if limit is None else found.sites[:limit]
    title = Text("Syncs by rank", style="bold")
    if len(shown) < len(found.sites):
        title.append(f" ({len(shown)} of {len(found.sites)} shown)", style="not bold")
    unit = words.unit_of_waits(found)
    held = scale((words.each(found, s.holds_ns) for s in shown), 3)
    per = "/step" if found.basis == "step" else ""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(f"wait{per}\n{unit.unit}", justify="right", no_wrap=True)
    table.add_column(f"holds{per}\n{held.unit}", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold", ratio=1)
    files = words.names(found)
    for site in shown:
        table.add_row(
            words.waits(found, site, unit),
            words.at_most(held.show(words.each(found, site.holds_ns)), site.holds_ns),
            _where(found, site, files),
        )
    return Group(title, table)


def _where(found: Ranks, site: RankSite, files: dict[str, str]) -> Text:
    text = Text(words.place(site, files), style="bold", overflow="fold")
    if site.function and site.file:
        text.append(f"  {harmless(site.function, 60)}", style="not bold")
    if site.source:
        text.append(f"\n{harmless(site.source, 100)}", style="not bold green")
    who = words.who(found, site)
    text.append(f"\n{site.class_} · {kind(site)} · ", style="not bold dim")
    return text.append(who, style="not bold dim" if who == "all ranks" else "not bold yellow")
