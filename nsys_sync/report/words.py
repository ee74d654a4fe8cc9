"""What all renderers say the same way: units, names of causes and classes, places, harmless text, what is missing."""

from __future__ import annotations

import shlex
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from nsys_sync.analysis.findings import (
    DeviceTime,
    IdleByCause,
    ProcessName,
    Report,
    Site,
    SiteClass,
    StackOrigin,
    WhatIf,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nsys_sync.analysis.watch.findings import WatchSite
    from nsys_sync.compare.comparison import SiteChange
    from nsys_sync.ranks import RankSite

NOT_MEASURED = "–"


@dataclass(frozen=True)
class Cause:
    """One cause of idle time. light, dark: its colour on each ground; ansi: its name for rich, seen on both."""

    label: str
    meaning: str
    light: str
    dark: str
    ansi: str


#: In the order in which every legend, table and chart lists them.
CAUSES: dict[str, Cause] = {
    "sync_wait": Cause("waiting in a sync", "inside a blocking call", "#c8322b", "#f0665e", "red"),
    "sync_refill": Cause("refilling after a sync", "the CPU catching up after a sync", "#d97706", "#f2a541", "yellow"),
    "sync_overhead": Cause(
        "sync call overhead", "the part of a blocking call that is not waiting", "#a98467", "#c9a688", "bright_red"
    ),
    "host": Cause("Python and launching", "the CPU at work between calls", "#2f6fb5", "#6aa5e8", "bright_blue"),
    "device": Cause("launched, not started", "latency and dependencies on the GPU", "#4d908e", "#6fc2bf", "cyan"),
    "alloc": Cause("allocating", "inside an allocation call", "#7b4fb0", "#b38ae6", "magenta"),
    "tail": Cause("after the last work", "nothing more was launched", "#8a8f98", "#9aa1ac", "bright_black"),
    "unknown": Cause("unknown", "the launching call was not recorded", "#5c6370", "#c3c8d0", ""),
}

#: How a device was busy, as DeviceTime tells it apart: label, meaning.
BUSY = {
    "computing": ("computing", "kernels, alone or beside copies"),
    "copy_blocking": ("blocking copies alone", "no kernel ran, and the CPU was blocked"),
    "copy_async": ("other copies alone", "no kernel ran"),
}

CLASSES: dict[SiteClass, str] = {
    "avoidable": "can be removed without changing the result",
    "deferrable": "the value is needed, but not now",
    "needed": "the program depends on the value here",
    "intentional": "the program waits on purpose",
    "unknown": "no rule knows this pattern",
}

ORIGINS: dict[StackOrigin, str] = {
    "exact": "Python stack recorded at the call",
    "neighbour": "Python stack of the sync that directly follows the copy",
    "sampled": "Python stack sampled during the call",
    "native": "named by native symbols, for there is no Python stack",
    "none": "no stack recorded",
}

_UNITS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s"))


@dataclass(frozen=True)
class Scale:
    """One unit for a whole column of times."""

    per_unit: int
    unit: str
    decimals: int

    def show(self, ns: int | None) -> str:
        """A time (ns) in this unit, without its name; never rounds a positive time to 0."""
        if ns is None:
            return NOT_MEASURED
        if ns == 0:
            return "0"
        smallest = self.per_unit / 10**self.decimals
        if 0 < abs(ns) < smallest / 2:
            return ("<" if ns > 0 else ">-") + f"{10**-self.decimals:.{self.decimals}f}"
        return f"{ns / self.per_unit:,.{self.decimals}f}"


def scale(values: Iterable[int | None], digits: int = 5) -> Scale:
    """The unit in which the largest of the times (ns) has one to three digits before the point, ``digits`` in all."""
    largest = max((abs(v) for v in values if v is not None), default=0)
    per_unit, unit = next(((p, u) for p, u in reversed(_UNITS) if largest >= p), _UNITS[0])
    if per_unit == 1:
        return Scale(1, "ns", 0)
    before = 1 if largest < 10 * per_unit else 2 if largest < 100 * per_unit else 3
    return Scale(per_unit, unit, min(2, max(0, digits - before)))


def duration(ns: int | None) -> str:
    """One time with its unit, three digits: ``28.4 ms``."""
    if ns is None:
        return NOT_MEASURED
    own = scale([ns], 3)
    return f"{own.show(ns)} {own.unit}"


def span(low: int, high: int) -> str:
    """A range of times in one unit: ``2.61–2.84 ms``."""
    column = scale((low, high), 3)
    first, last = column.show(low), column.show(high)
    return f"{first} {column.unit}" if first == last else f"{first}–{last} {column.unit}"


def percent(part: int | None, whole: int | None) -> str:
    """A share, ``44 %``; the sign for not measured where it has no meaning."""
    if part is None or not whole:
        return NOT_MEASURED
    share = 100 * part / whole
    return "<1 %" if 0 < share < 0.5 else f"{share:.0f} %"


def size(count: int) -> str:
    """Bytes, ``32.0 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 site``, ``1,234 sites``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def per_step(calls: float | None) -> str:
    """Calls a step, shown as a whole number where it is one."""
    if calls is None:
        return NOT_MEASURED
    return f"{calls:.0f}" if calls == round(calls) else f"{calls:.1f}" if calls >= 0.05 else "<0.1"


def harmless(text: str, limit: int | None = None) -> str:
    """Text from a trace on one line: control, format and lone surrogate characters become visible escapes.

    limit: characters to keep, cut in the middle.
    """
    if limit is not None:
        text = middle(text, limit)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(c) for c in text)


def middle(text: str, limit: int) -> str:
    """At most ``limit`` characters, both ends kept."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def _visible(char: str) -> str:
    if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def short_names(files: Iterable[str]) -> dict[str, str]:
    """For each path its shortest tail that no other path of the set shares."""
    parts = {file: PurePosixPath(file.replace("\\", "/")).parts or (file,) for file in set(files)}
    names: dict[str, str] = {}
    depth = 1
    open_files = sorted(parts)
    while open_files:
        tails: dict[tuple[str, ...], list[str]] = {}
        for file in open_files:
            tails.setdefault(parts[file][-depth:], []).append(file)
        open_files = []
        for tail, same in tails.items():
            if len(same) == 1 or all(len(parts[file]) <= depth for file in same):
                names.update((file, str(PurePosixPath(*tail))) for file in same)
            else:
                open_files += same
        depth += 1
    return names


class Places:
    """Names of source files as a person reads them, unambiguous within one report."""

    def __init__(self, sites: Sequence[Site]) -> None:
        frames = [f.file for s in sites for f in (*s.stack, *([s.leaf] if s.leaf else []))]
        files = {f for f in (*(s.file for s in sites), *frames) if f}
        self._names = short_names(files)
        folders = {str(PurePosixPath(s.file).parent) for s in sites if s.file}
        #: The one folder of all sites' files, if they share one.
        self.folder = folders.pop() if len(folders) == 1 else None

    def file(self, path: str) -> str:
        """The short name of a file of this report."""
        return harmless(self._names.get(path, path), 160)

    def site(self, site: Site) -> str:
        """``file:line`` of a site, or what stands for it where no Python frame is known."""
        if site.file:
            return f"{self.file(site.file)}:{site.line}" if site.line else self.file(site.file)
        if site.native:
            symbol = site.leaf.function if site.leaf and not site.leaf.file else site.native[0]
            return f"native {harmless(symbol, 80)}"
        apis = " + ".join(harmless(api, 60) for api in site.apis) or "unknown call"
        return f"{apis} (no stack)"

    def leaf(self, site: Site) -> str | None:
        """``file:line function`` of the frame that made the call, where it is another one than the user's."""
        leaf = site.leaf
        if (
            leaf is None
            or not leaf.file
            or (leaf.file, leaf.line, leaf.function) == (site.file, site.line, site.function)
        ):
            return None
        at = f"{self.file(leaf.file)}:{leaf.line}" if leaf.line else self.file(leaf.file)
        return f"{at} {harmless(leaf.function, 80)}"


def by_wait(sites: Sequence[Site]) -> list[Site]:
    """Sites, longest total wait first; the report's own order decides ties."""
    return sorted(sites, key=lambda s: -s.wait_ns.total)


def by_gain(sites: Sequence[Site]) -> list[Site]:
    """Sites, the one that alone gives back the most first; by wait where that is not known."""
    return sorted(sites, key=lambda s: (-(s.recoverable_ns or 0), -s.wait_ns.total))


def kind(site: Site | WatchSite | SiteChange | RankSite) -> str:
    """What a site's rule says of it, and the name to ask ``nsys-sync rules`` for."""
    rule = f" ({harmless(site.rule, 40)})" if site.rule != site.class_ else ""
    return f"{harmless(site.title, 80)}{rule}"


def no_sites(report: Report) -> str:
    """What stands in place of an empty table of sites."""
    nothing = report.headline.slug == "nothing_measured"
    return "No call that blocks was recorded." if nothing else "No call blocked the CPU."


def source_line(site: Site) -> str | None:
    """The site's own line of source, blanks as single spaces, if the report holds it."""
    if site.source is None or site.line is None:
        return None
    return " ".join(site.source.lines.get(site.line, "").split()) or None


def prediction(what_if: WhatIf) -> str:
    """The sentence about all sites together."""
    guess, now = span(what_if.step_ns_low, what_if.step_ns_high), duration(what_if.step_ns_now)
    shorter = what_if.step_ns_high < what_if.step_ns_now
    step = f"about {guess} instead of {now}" if shorter else f"about as long, {guess} where it takes {now}"
    alone = f"GPU work alone: about {duration(what_if.gpu_bound_ns)}"
    return f"If no sync blocked, a step would take {step} ({alone}); confidence {what_if.confidence}."


def gpus(report: Report) -> list[str]:
    """The models of the GPUs, ``2 × NVIDIA H200``."""
    names = Counter(harmless(device.name, 60) for device in report.trace.devices)
    return [name if number == 1 else f"{number} × {name}" for name, number in names.items()]


def process_label(process: ProcessName) -> str:
    """``rank 3`` where the capture marked it, else ``pid 4711``."""
    return f"pid {process.pid}" if process.rank is None else f"rank {process.rank}"


def idle_by_cause(report: Report) -> IdleByCause | None:
    """Idle by cause (ns) over all devices; None if it was withheld on any of them."""
    measured = [d.idle_by_cause_ns for d in report.devices]
    known = [m for m in measured if m is not None]
    if not known or len(known) < len(measured):
        return None
    return IdleByCause(**{name: sum(getattr(m, name) for m in known) for name in CAUSES})


def quoted(name: str) -> str:
    """A file name as a word of a shell command line."""
    return shlex.quote(harmless(name))


def busy(devices: Sequence[DeviceTime]) -> dict[str, int] | None:
    """Busy time (ns) of devices by BUSY; None if it was withheld on any of them."""
    parts = dict.fromkeys(BUSY, 0)
    for device in devices:
        if device.compute_busy_ns is None or device.copy_only_ns is None:
            return None
        parts["computing"] += device.compute_busy_ns
        parts["copy_blocking"] += device.copy_only_ns.blocking
        parts["copy_async"] += device.copy_only_ns.async_
    return parts if devices else None


@dataclass(frozen=True)
class Missing:
    """Something the trace does not hold, and the command that gets it."""

    what: str
    command: str


def missing(report: Report, path: str | None = None, options: str = "") -> list[Missing]:
    """What was not recorded or not exported and has a command that gets it, most useful first.

    path: the trace as commands name it; the file's name if None. options: those that it was read with.
    """
    trace, file = report.trace, path or report.trace.file
    stem = file.removesuffix(".xz").removesuffix(".sqlite")
    again = "nsys-sync profile SCRIPT.py"
    found = []
    if trace.python_frames == "not_exported":
        what = "Python stacks were recorded but are not in this export."
        found.append(Missing(what, f"nsys-sync export {quoted(stem + '.nsys-rep')}"))
    elif trace.python_frames == "not_recorded":
        found.append(Missing("No Python stacks were recorded at the calls.", again))
    reasons = {d.idle_reason for d in report.devices if d.idle_status == "withheld" and d.idle_reason}
    kernels = "nsys-sync profile --nsys-arg=--cuda-graph-trace=node SCRIPT.py"
    found += [Missing(harmless(reason), kernels) for reason in sorted(reasons)]
    unnamed = sum(s.calls for s in report.sites if s.stack_origin == "none")
    if unnamed and trace.python_frames == "recorded" and not trace.capture.sampling:
        found.append(Missing(f"{count(unnamed, 'blocking call')} without a stack: Python was not sampled.", again))
    if not report.steps and report.sites:
        command = f"nsys-sync report {quoted(file)}{options} --step RANGE_NAME"
        found.append(Missing("No steps are marked, so nothing is counted a step.", command))
    folder = Places(report.sites).folder
    if folder and all(s.source_status == "missing" for s in report.sites if s.file):
        command = f"nsys-sync report {quoted(file)}{options} --map-path {quoted(folder)}=FOLDER"
        found.append(Missing(f"The source files are not in {harmless(folder)} on this machine.", command))
    return found


def notes(report: Report) -> list[str]:
    """What else a reader must know about the measurement: the warnings that ``missing`` does not cover."""
    covered = {"python-frames-not-exported", "python-frames-not-recorded"}
    return [harmless(note.text) for note in report.trace.warnings if note.slug not in covered]
