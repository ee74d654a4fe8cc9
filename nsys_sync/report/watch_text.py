"""What ``watch`` saw, in a terminal: where the CPU waits for the GPU and how often."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nsys_sync.analysis.watch.findings import PYTORCH
from nsys_sync.report import words
from nsys_sync.report.terminal import CLASS_STYLE, next_steps, paragraphs, show
from nsys_sync.report.words import count, duration, harmless

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nsys_sync.analysis.watch.findings import WatchReport, WatchSite

#: Sites that are listed unless the caller asks for more.
SITES_SHOWN = 20


def render(
    report: WatchReport,
    *,
    width: int | None = None,
    color: bool | None = None,
    file: IO[str] | None = None,
    limit: int | None = SITES_SHOWN,
    command: str | None = None,
) -> None:
    """Write the report for people.

    width: columns, None for the terminal's. color: None for colour only in a terminal that has it. file: standard
    output if None. limit: sites to list, None for all. command: the program's command line, for what to do next.
    """
    show(lambda columns: _Screen(report, columns, limit, command).page(), width=width, color=color, file=file)


@dataclass(frozen=True)
class _Screen:
    report: WatchReport
    width: int
    limit: int | None
    command: str | None

    def page(self) -> RenderableType:
        parts = [
            self._title(),
            Text(self.report.headline.text, style="bold"),
            self._sites(),
            self._notes(),
            self._next(),
        ]
        return paragraphs(parts)

    def _title(self) -> RenderableType:
        trace = self.report.trace
        facts = ["watched without nsys"]
        if self.report.watch.pytorch:
            facts.append(f"PyTorch {harmless(self.report.watch.pytorch, 40)}")
        if len(trace.processes) > 1:
            facts.append(f"{len(trace.processes)} processes")
        text = Text(harmless(trace.file), style="bold", overflow="fold")
        return text.append(" · " + " · ".join(facts), style="not bold")

    def _sites(self) -> RenderableType | None:
        sites = self.report.sites
        if not sites:
            return None
        shown = sites if self.limit is None else sites[: self.limit]
        title = Text("Where the CPU waits for the GPU", style="bold")
        part = f"{len(shown):,} of " if len(shown) < len(sites) else ""
        title.append(
            f": {part}{count(len(sites), 'site')}, {count(self.report.totals.host_blocking_calls, 'call')}",
            style="not bold",
        )
        return Group(title, self._table(shown), *[Text(note, style="dim") for note in self._table_notes(shown)])

    def _table(self, shown: list[WatchSite]) -> RenderableType:
        stepped = any(site.calls_per_step is not None for site in shown)
        timed = any(site.wait_ns is not None for site in shown)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("#", justify="right", no_wrap=True)
        if stepped:
            table.add_column("calls\n/step", justify="right", no_wrap=True, style="bold")
        table.add_column("calls", justify="right", no_wrap=True, style="" if stepped else "bold")
        if timed:
            table.add_column("median\ntime", justify="right", no_wrap=True)
        wide = self.width >= 120
        if wide:
            table.add_column("class", no_wrap=True)
        table.add_column("where", overflow="fold", ratio=1)
        names = words.short_names(file for site in self.report.sites for file in _files(site))
        lines = Counter((site.file, site.line) for site in self.report.sites)
        for number, site in enumerate(shown, 1):
            row = [str(number)]
            row += [words.per_step(site.calls_per_step)] if stepped else []
            row += [f"{site.calls:,}"]
            row += [duration(site.wait_ns.median if site.wait_ns else None)] if timed else []
            cells: list[str | Text] = [*row]
            if wide:
                cells.append(Text(site.class_, style=CLASS_STYLE[site.class_]))
            shared = lines[site.file, site.line] > 1
            table.add_row(*cells, self._where(site, names, wide=wide, shared=shared))
        return table

    def _where(self, site: WatchSite, names: dict[str, str], *, wide: bool, shared: bool) -> Text:
        """Place and function; the line of source; what it is and how it was seen."""
        place = f"{harmless(names.get(site.file or '', '?'), 160)}:{site.line}"
        text = Text(place, style="bold", overflow="fold")
        if site.function:
            text.append(f"  {harmless(site.function, 60)}", style="not bold")
        line = None if site.source is None or site.line is None else site.source.lines.get(site.line)
        if line and line.strip():
            text.append(f"\n{harmless(line.strip(), 100)}", style="not bold green")
        facts: list[str] = [] if wide else [site.class_]
        facts.append(words.kind(site))
        facts += [harmless(name, 60) for name in site.seen_by if name != PYTORCH]
        leaf = site.leaf
        if leaf is not None and (leaf.file, leaf.line) != (site.file, site.line) and (wide or shared):
            facts.append(
                f"in {harmless(names.get(leaf.file, leaf.file), 80)}:{leaf.line} {harmless(leaf.function, 60)}"
            )
        if site.allowed:
            facts.append("allowed" if site.allowed == site.calls else f"{site.allowed:,} allowed")
        if len(self.report.trace.processes) > 1 and len(site.by_process) < len(self.report.trace.processes):
            facts.append(f"in {count(len(site.by_process), 'process', 'processes')}")
        return text.append("\n" + " · ".join(facts), style="not bold dim")

    def _table_notes(self, shown: list[WatchSite]) -> Iterator[str]:
        if any(site.wait_ns is None for site in shown) and any(site.wait_ns is not None for site in shown):
            yield "time: only of calls that Python can time; PyTorch's own operations only tell that they waited."

    def _notes(self) -> RenderableType | None:
        lines = [Text(f"Note: {harmless(note.text)}") for note in self.report.trace.warnings]
        return Group(*lines) if lines else None

    def _next(self) -> RenderableType | None:
        fixable = next((site for site in self.report.sites if site.fix is not None and not site.allowed), None)
        lines = [f"nsys-sync rules {words.quoted(fixable.rule)}"] if fixable else []
        lines += [f"nsys-sync profile {self.command}"] if self.command and self.report.sites else []
        return next_steps(lines)


def _files(site: WatchSite) -> Iterator[str]:
    yield from (name for name in (site.file, site.leaf.file if site.leaf else None) if name)
