"""The report in a terminal: one screen that says where the CPU waits, how much and how often a step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from nsys_sync.report import words
from nsys_sync.report.terminal import CLASS_STYLE, command, next_steps, paragraphs, show
from nsys_sync.report.words import Places, duration, harmless, percent, scale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nsys_sync.analysis.findings import DeviceTime, ProcessName, Report, Site

#: Sites that are listed unless the caller asks for more.
SITES_SHOWN = 10

#: Origins of a site's stack that speak for themselves.
_PLAIN_ORIGINS = {"exact", "none"}


def render(
    report: Report,
    *,
    width: int | None = None,
    color: bool | None = None,
    file: IO[str] | None = None,
    limit: int | None = SITES_SHOWN,
    path: str | None = None,
    options: str = "",
    page: bool = False,
) -> None:
    """Write the report for people.

    width: columns, None for the terminal's (80 in a pipe). color: None for colour only in a terminal that has it.
    file: standard output if None. limit: sites to list, None for all. path, options: the trace as commands name it,
    its file's name if None, and how it was read. page: whether the dashboard was written, so that it need not be
    suggested.
    """

    def screen(columns: int) -> RenderableType:
        return _Screen(report, columns, limit, path, options, page=page).page()

    show(screen, width=width, color=color, file=file)


@dataclass(frozen=True)
class _Column:
    """A column of numbers beside each site; heading in one or two lines; rank: the last to go where space is short."""

    heading: str
    rank: int
    cell: Callable[[Site], str]
    style: str = ""


@dataclass(frozen=True)
class _ProcessRow:
    """One process's sums over all sites; times in ns."""

    name: str
    calls: int
    wait: int
    recoverable: int | None
    step: int | None

    @classmethod
    def of(cls, process: ProcessName, sites: Sequence[Site], step: int | None) -> _ProcessRow:
        shares = [p for s in sites for p in s.by_process if p.pid == process.pid]
        saved = [p.recoverable_ns for p in shares if p.recoverable_ns is not None]
        label = words.process_label(process)
        return cls(
            name=f"{label}  {harmless(process.name, 30)}" if process.name else label,
            calls=sum(p.calls for p in shares),
            wait=sum(p.wait_ns for p in shares),
            recoverable=sum(saved) if len(saved) == len(shares) else None,
            step=step,
        )


@dataclass(frozen=True)
class _Bar:
    """The devices' time as one bar of (colour, ns): busy, then idle by cause. Without colours it would say nothing."""

    parts: list[tuple[str, int]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if console.color_system is None:
            return
        cells, total, done, drawn = min(options.max_width, 100), sum(ns for _, ns in self.parts) or 1, 0, 0
        bar = Text()
        for style, ns in self.parts:
            done += ns
            end = round(cells * done / total)
            bar.append("█" * (end - drawn), style=style)
            drawn = end
        yield bar


class _Screen:
    def __init__(
        self, report: Report, width: int, limit: int | None, path: str | None, options: str, *, page: bool
    ) -> None:
        self.report, self.width, self.limit, self.written = report, width, limit, page
        self.path, self.options = path or report.trace.file, f" {options}" if options else ""
        self.places = Places(report.sites)
        lines = Counter(self._at(site) for site in report.sites)
        #: Lines that several sites share; their leaves tell them apart.
        self.shared = {at for at, number in lines.items() if number > 1}

    @staticmethod
    def _at(site: Site) -> tuple[str | None, int | None]:
        return site.file, site.line

    def page(self) -> RenderableType:
        parts = [
            self._title(),
            self._headline(),
            self._devices(),
            self._sites(),
            self._processes(),
            self._missing(),
            self._next(),
        ]
        return paragraphs(parts)

    def _title(self) -> RenderableType:
        trace = self.report.trace
        facts = words.gpus(self.report)
        if trace.nsys_version:
            facts.append(f"nsys {harmless(trace.nsys_version, 40)}")
        if len(trace.processes) > 1:
            facts.append(f"{len(trace.processes)} processes")
        text = Text(harmless(trace.file), style="bold", overflow="fold")
        return text.append(" · " + " · ".join(facts), style="not bold") if facts else text

    def _headline(self) -> RenderableType:
        lines = [Text(harmless(self.report.headline.text), style="bold")]
        if self.report.what_if.all:
            lines.append(Text(words.prediction(self.report.what_if.all)))
        slowdown = self.report.trace.capture.slowdown
        if slowdown:
            before, inside = duration(slowdown.step_ns_before), duration(slowdown.step_ns_inside)
            lines.append(Text(f"A step took {before} before the capture, {inside} in it ({slowdown.ratio:.2f} ×)."))
        return Group(*lines)

    def _devices(self) -> RenderableType | None:
        devices = self.report.devices
        if not devices:
            return None
        times = scale(v for d in devices for v in (d.window_ns, d.busy_ns, d.idle_ns))
        table = _numbers()
        for heading in ("", f"window {times.unit}", "busy", "idle"):
            table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
        for device in devices:
            table.add_row(
                f"GPU {device.device}",
                times.show(device.window_ns),
                f"{times.show(device.busy_ns)} {percent(device.busy_ns, device.window_ns):>5}",
                f"{times.show(device.idle_ns)} {percent(device.idle_ns, device.window_ns):>5}",
            )
        return Group(table, *self._idle(devices))

    def _idle(self, devices: Sequence[DeviceTime]) -> Iterable[RenderableType]:
        for device in devices:
            if device.idle_status == "withheld":
                yield Text(f"GPU {device.device} idle not given: {harmless(device.idle_reason or 'unknown')}")
        causes, busy = words.idle_by_cause(self.report), words.busy(devices)
        if causes is None or busy is None:
            return
        whole = " (all GPUs)" if len(devices) > 1 else ""
        if busy["copy_blocking"] or busy["copy_async"]:
            yield self._shares(f"Busy{whole}", [(words.BUSY[name][0], "", ns) for name, ns in busy.items()])
        idle = [(cause.label, cause.ansi, getattr(causes, name)) for name, cause in words.CAUSES.items()]
        yield self._shares(f"Idle by cause{whole}", idle) if causes.total else Text("The GPU was never idle.")
        yield _Bar([("dim", sum(busy.values())), *[(style, ns) for _, style, ns in idle]])

    @staticmethod
    def _shares(title: str, parts: Sequence[tuple[str, str, int]]) -> Text:
        """``Idle by cause, ms: Python 3.20 (60 %) · …`` from (label, style, ns)."""
        unit, total = scale(ns for _, _, ns in parts), sum(ns for _, _, ns in parts)
        line = Text(f"{title}, {unit.unit}: ")
        for place, (label, style, ns) in enumerate(part for part in parts if part[2]):
            line.append(" · " if place else "").append(label, style=style)
            line.append(f" {unit.show(ns)} ({percent(ns, total)})")
        return line

    def _sites(self) -> RenderableType:
        sites = words.by_wait(self.report.sites)
        if not sites:
            return Text(words.no_sites(self.report))
        shown = sites if self.limit is None else sites[: self.limit]
        totals = self.report.totals
        title = Text("Where the CPU waits for the GPU", style="bold")
        number = f"{len(shown):,} of " if len(shown) < len(sites) else ""
        title.append(f": {number}{words.count(len(sites), 'site')}, ", style="not bold")
        blocked = f"{words.count(totals.host_blocking_calls, 'blocking call')}, {duration(totals.wait_ns)} of waiting"
        title.append(blocked, style="not bold")
        notes = [Text(note, style="dim") for note in self._notes(shown)]
        return Group(title, self._table(shown), *notes)

    def _columns(self, shown: Sequence[Site]) -> list[_Column]:
        total = scale(s.wait_ns.total for s in shown)
        each = scale(s.wait_ns.median for s in shown)
        saved = scale(s.recoverable_ns for s in shown)
        stepped = any(s.calls_per_step is not None for s in shown)
        often = (
            _Column("calls\n/step", 1, lambda s: words.per_step(s.calls_per_step))
            if stepped
            else _Column("calls", 1, lambda s: f"{s.calls:,}")
        )
        return [
            _Column(f"wait\n{total.unit}", 0, lambda s: total.show(s.wait_ns.total), "bold"),
            _Column(f"median\n{each.unit}", 3, lambda s: each.show(s.wait_ns.median)),
            _Column(f"recov.\n{saved.unit}", 2, lambda s: saved.show(s.recoverable_ns)),
            often,
        ]

    def _table(self, shown: Sequence[Site]) -> RenderableType:
        columns = self._columns(shown)
        cells = {column.rank: [column.cell(s) for s in shown] for column in columns}
        widths = {c.rank: max(len(part) for part in (*c.heading.split("\n"), *cells[c.rank])) + 2 for c in columns}
        room = self.width - len(str(len(shown))) - 2
        kept = [c for c in columns if room - sum(w for rank, w in widths.items() if rank <= c.rank) >= 26 or not c.rank]
        wide = self.width >= 120
        table = _numbers()
        table.add_column("#", justify="right", no_wrap=True)
        for column in kept:
            table.add_column(column.heading, justify="right", no_wrap=True, style=column.style)
        if wide:
            table.add_column("class", no_wrap=True)
            table.add_column("stack", no_wrap=True)
        table.add_column("where", overflow="fold", ratio=1)
        for number, site in enumerate(shown, 1):
            cause = [Text(site.class_, style=CLASS_STYLE[site.class_]), Text(site.stack_origin)] if wide else []
            row = [cells[c.rank][number - 1] for c in kept]
            table.add_row(str(number), *row, *cause, self._where(site, wide=wide))
        return table

    def _where(self, site: Site, *, wide: bool) -> Text:
        """Place and function; the line of source; what blocks there."""
        text = Text(self.places.site(site), style="bold", overflow="fold")
        if site.function:
            text.append(f"  {harmless(site.function, 60)}", style="not bold")
        source = words.source_line(site)
        if source:
            text.append(f"\n{harmless(source, 100)}", style="not bold green")
        facts = [words.kind(site)]
        if wide:
            facts += [_calls(site)] if site.file else []
        else:
            facts = [site.class_, *facts, *({site.stack_origin} - _PLAIN_ORIGINS)]
        leaf = self.places.leaf(site)
        if leaf and (wide or self._at(site) in self.shared):
            facts.append(f"in {leaf}")
        text.append("\n" + " · ".join(facts), style="not bold dim")
        spread = self._over_processes(site)
        return text.append(f"\n{spread}", style="not bold dim") if spread else text

    def _over_processes(self, site: Site) -> str | None:
        """How a site's wait spreads over the processes, where there are several."""
        if len(self.report.trace.processes) < 2 or not site.by_process:
            return None
        labels = {p.pid: words.process_label(p) for p in self.report.trace.processes}
        shares = sorted(site.by_process, key=lambda p: -p.wait_ns)
        unit = scale(p.wait_ns for p in shares)
        if not shares[0].wait_ns:
            return None
        most, least = shares[0], shares[-1]
        name = labels.get(most.pid, f"pid {most.pid}")
        if len(shares) == 1:
            return f"only {name}"
        low = labels.get(least.pid, f"pid {least.pid}")
        return f"{name} {unit.show(most.wait_ns)} … {low} {unit.show(least.wait_ns)} {unit.unit}"

    def _notes(self, shown: Sequence[Site]) -> Iterable[str]:
        if self.places.folder and any(s.source_status != "missing" for s in shown if s.file):
            yield f"Files are in {harmless(self.places.folder)}."
        stale = sorted({self.places.file(s.file) for s in shown if s.file and s.source_status == "changed"})
        if stale:
            yield f"Changed since the capture, so lines may be off: {', '.join(stale)}."
        if any(s.source_status == "found_unverified" and words.source_line(s) for s in shown):
            yield "Source lines are from files found here; the trace cannot tell whether they have changed."
        for origin in sorted({s.stack_origin for s in shown} - _PLAIN_ORIGINS):
            yield f"{origin}: {words.ORIGINS[origin]}."
        together, apart = self.report.totals.recoverable_all_ns, self.report.totals.recoverable_ns
        if together is not None and apart is not None and any(s.recoverable_ns for s in shown):
            yield f"recov.: time that this site alone could give back; all together {duration(together)}."

    def _processes(self) -> RenderableType | None:
        processes = self.report.trace.processes
        if len(processes) < 2:
            return None
        steps = {s.pid: s.median_ns for s in self.report.steps}
        rows = [_ProcessRow.of(p, self.report.sites, steps.get(p.pid)) for p in processes]
        wait, saved, step = scale(r.wait for r in rows), scale(r.recoverable for r in rows), scale(r.step for r in rows)
        table = _numbers()
        table.add_column("process", overflow="fold")
        for heading in ("calls", f"wait {wait.unit}", f"recov. {saved.unit}", f"step {step.unit}"):
            table.add_column(heading, justify="right", no_wrap=True)
        for r in rows:
            table.add_row(r.name, f"{r.calls:,}", wait.show(r.wait), saved.show(r.recoverable), step.show(r.step))
        calls, waited = sum(r.calls for r in rows), sum(r.wait for r in rows)
        table.add_row("all", f"{calls:,}", wait.show(waited), "", "", style="bold")
        return table

    def _missing(self) -> RenderableType | None:
        lines: list[RenderableType] = []
        # A saved report cannot be read in another way, its trace can.
        saved = self.path.endswith(".json")
        for item in words.missing(self.report, None if saved else self.path, "" if saved else self.options):
            lines += [Text(item.what), command(item.command)]
        lines += [Text(f"Note: {note}") for note in words.notes(self.report)]
        return Group(*lines) if lines else None

    def _next(self) -> RenderableType | None:
        fixable = next((s for s in words.by_gain(self.report.sites) if s.fix is not None), None)
        lines = [f"nsys-sync rules {words.quoted(fixable.rule)}"] if fixable else []
        lines += (
            [] if self.written else [f"nsys-sync report {words.quoted(self.path)}{self.options} --html report.html"]
        )
        lines += [f"nsys-sync ranks {words.quoted(self.path)}"] if len(self.report.trace.processes) > 1 else []
        return next_steps(lines)


def _calls(site: Site) -> str:
    """What blocks there: each API with its calls, most frequent first."""
    return " · ".join(f"{harmless(api, 60)} × {n:,}" for api, n in sorted(site.apis.items(), key=lambda item: -item[1]))


def _numbers() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
