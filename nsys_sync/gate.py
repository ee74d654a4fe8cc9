"""Reports against limits, a baseline and a list of accepted sites: ``check`` returns a ``Gate``, plain values.

What is judged: the sites that no entry of the allow-list accepts. Every capture must hold every limit by itself; limits
per step hold for the loop of each process, from its first step to its last. Against a baseline, a site in the loop that
the baseline does not have fails, and so does one that clearly grew (``nsys_sync.compare.noise`` says what is clear).
What a limit needs and the capture does not have is "not measured", which is no pass. Sentences are the renderers'
(``nsys_sync.report.gate_words``).
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from nsys_sync.analysis.findings import TOOL, Document, Note, Plain, Report, Site
from nsys_sync.compare import compare
from nsys_sync.compare.comparison import Basis, Comparison, SiteChange, State
from nsys_sync.compare.measures import share_events, share_wait, step_count
from nsys_sync.compare.noise import Change
from nsys_sync.errors import ExitCode, InputError, UsageError
from nsys_sync.inputs import NS, NUMBER
from nsys_sync.paths import is_file, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FORMAT = 1

Quantity = Literal["syncs", "wait", "idle_from_syncs"]
LimitUnit = Literal["count", "ns", "share"]
Status = Literal["passed", "failed", "not_measured"]
Outcome = Literal["fails", "passes", "accepted"]

#: The option that sets the limit of each quantity.
OPTIONS: dict[Quantity, str] = {
    "syncs": "--max-syncs-per-step",
    "wait": "--max-wait",
    "idle_from_syncs": "--max-idle-from-syncs",
}
_EMPTY = "the capture holds no GPU activity"
_PART = re.compile(r"\*\*/|\*\*|.", re.DOTALL)
_AMOUNT = re.compile(rf"(?P<number>{NUMBER})\s*(?P<unit>{'|'.join(NS)}|%)?(?:/(?P<per>step|capture))?")


class Limit(Plain, frozen=True, kw_only=True):
    """The most that may be. value: calls, ns, or a share of the GPUs' window (0.05 is 5 %)."""

    quantity: Quantity
    value: float
    unit: LimitUnit
    per: Basis

    @property
    def option(self) -> str:
        """The option that set it."""
        return OPTIONS[self.quantity]


class AllowEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A site that is accepted, by its id, or by a glob for its file and one for its function.

    A file's glob may leave out leading folders; ``*`` stays within a folder, ``**`` does not. until: the last day on
    which the entry holds.
    """

    reason: str
    site: str | None = None
    file: str | None = None
    function: str | None = None
    until: dt.date | None = None

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError("an entry needs a reason")
        if (self.site is None) == (self.file is None and self.function is None):
            raise ValueError("an entry names either `site`, or `file` and `function`")
        if self.site is None and not (self.file and self.function):
            raise ValueError("an entry needs both `file` and `function` (`*` stands for any)")

    def matches(self, site: Site) -> bool:
        """Whether the entry means this site."""
        if self.site is not None:
            return site.id == self.site
        assert self.file is not None
        assert self.function is not None
        if site.file is None or not _fits(self.file, site.file):
            return False
        return fnmatch.fnmatchcase(site.function or "", self.function)


class _AllowTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allow: list[AllowEntry] = []


class AllowUse(Plain, frozen=True, kw_only=True):
    """What became of an entry: it accepted sites, matched none (stale), or its day has passed (expired)."""

    entry: AllowEntry
    status: Literal["used", "stale", "expired"]
    sites: list[str]


class LimitResult(Plain, frozen=True, kw_only=True):
    """One limit in one capture.

    pid: the process that comes closest to the limit or exceeds it most, None for the whole capture. measured: in the
    limit's unit, without accepted sites; None where it was not measured, and ``reason`` says why. excess: how much too
    much it is, None unless exceeded. sites: the fewest whose removal would hold the limit, weightiest first.
    """

    limit: Limit
    status: Literal["held", "exceeded", "not_measured"]
    capture: str
    pid: int | None
    measured: float | None
    excess: float | None
    sites: list[str]
    reason: str | None


class Growth(Plain, frozen=True, kw_only=True):
    """A site that the baseline does not have, or in which something clearly grew. change: what, per ``per``."""

    kind: Literal["new_site", "growth"]
    site: str
    change: Change
    per: Basis


class BaselineResult(Plain, frozen=True, kw_only=True):
    """The captures against the baseline's. not_measured: why a part of the comparison could not be made."""

    captures: list[str]
    growth: list[Growth]
    not_measured: list[str]


class JudgedSite(Plain, frozen=True, kw_only=True):
    """What the gate makes of one site. state: against the baseline, None without one."""

    id: str
    outcome: Outcome
    accepted_because: str | None
    state: State | None


class Gate(Document, frozen=True, kw_only=True):
    """The result of a check."""

    status: Status
    captures: list[str]
    limits: list[LimitResult]
    baseline: BaselineResult | None
    sites: list[JudgedSite]
    allow: list[AllowUse]
    warnings: list[Note]

    @property
    def exit_code(self) -> ExitCode:
        """0 passed, 3 failed, 4 something that was asked for was not measured (and nothing failed)."""
        return {
            "passed": ExitCode.OK,
            "failed": ExitCode.GATE_FAILED,
            "not_measured": ExitCode.NOTHING_TO_ANALYZE,
        }[self.status]


# Limits and allow-list as people write them


def parse_limit(quantity: Quantity, text: str) -> Limit:
    """A limit from the command line.

    syncs: a number, per step. Times: a number with ns, us, ms or s, per step, or followed by ``/capture`` for the whole
    capture. idle_from_syncs also takes a percentage of the GPUs' window. Raises UsageError.
    """
    match = _AMOUNT.fullmatch(text.strip())
    number, unit, per = (match["number"], match["unit"], match["per"]) if match else (None, None, None)
    basis: Basis = "capture" if per == "capture" else "step"
    option = OPTIONS[quantity]
    if quantity == "syncs":
        if number is None or unit or per:
            raise UsageError("bad-limit", f"{option} {text!r} is not a number of calls.", f"For example: {option} 2")
        return Limit(quantity=quantity, value=float(number), unit="count", per="step")
    example = f"{option} 2ms, {option} 40ms/capture" + (f", {option} 5%" if quantity == "idle_from_syncs" else "")
    if number is None or (unit is None and float(number) != 0):
        reason = "has no unit" if number is not None else "is not a time"
        raise UsageError("bad-limit", f"{option} {text!r} {reason}.", f"For example: {example}")
    if unit == "%":
        if quantity != "idle_from_syncs" or per:
            raise UsageError("bad-limit", f"{option} {text!r} is not a time.", f"For example: {example}")
        return Limit(quantity=quantity, value=float(number) / 100, unit="share", per="capture")
    return Limit(quantity=quantity, value=float(number) * NS[unit or "ns"], unit="ns", per=basis)


def parse_limits(**texts: str | None) -> list[Limit]:
    """The limits that were given, by quantity. Raises UsageError."""
    return [parse_limit(quantity, text) for quantity in OPTIONS if (text := texts.get(quantity)) is not None]


def find_allow(given: Path | None, root: Path) -> list[AllowEntry]:
    """The accepted sites in the given file, else in the root's pyproject.toml, if there is one. Raises InputError."""
    path = given or root / "pyproject.toml"
    return load_allow(path) if given or is_file(path) else []


def today() -> dt.date:
    """The date, in UTC, that decides which entries have expired."""
    return dt.datetime.now(dt.UTC).date()


def load_allow(path: Path) -> list[AllowEntry]:
    """The accepted sites in a TOML file: ``[[allow]]``, in a pyproject.toml ``[[tool.nsys-sync.allow]]``.

    Raises InputError when the file cannot be read or has an entry that is not understood.
    """
    try:
        content = tomllib.loads(read_bytes(path).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("allow-list", f"{path} is not TOML: {error}.", "docs/ci.md shows an entry.") from None
    if path.name == "pyproject.toml":
        tools = content.get("tool", {})
        content = tools.get("nsys-sync", {}) if isinstance(tools, dict) else {}
    try:
        return msgspec.convert(content, type=_AllowTable).allow
    except msgspec.ValidationError as error:
        raise InputError(
            "allow-list", f"The allow-list in {path} is not understood: {error}.", "docs/ci.md shows an entry."
        ) from None


def _fits(pattern: str, path: str) -> bool:
    """Whether a glob is found at any folder's beginning, up to the path's end.

    All ways to read it are followed along the path at once, so that no pattern takes long.
    """
    parts = _PART.findall(pattern.lstrip("/"))

    def reached(at: int) -> Iterator[int]:
        """This part, and the ones behind it as far as they can stand for nothing."""
        yield at
        while at < len(parts) and parts[at] in ("*", "**", "**/"):
            at += 1
            yield at

    here = {*reached(0)}
    for char in path:
        there = {*reached(0)} if char == "/" else set()
        for at in here:
            part = parts[at] if at < len(parts) else ""
            if part == "**/":
                there |= {at, *reached(at + 1)} if char == "/" else {at}
            elif part == "**" or (part == "*" and char != "/"):
                there.update(reached(at))
            elif part == char or (part == "?" and char != "/"):
                there.update(reached(at + 1))
        here = there
    return len(parts) in here


# Judgement


@dataclass(frozen=True)
class _Accepted:
    """The allow-list applied: why each accepted site is accepted, by id, and what became of each entry."""

    because: dict[str, str]
    uses: list[AllowUse]


def check(
    reports: Sequence[Report],
    limits: Sequence[Limit],
    *,
    baseline: Sequence[Report] = (),
    allow: Sequence[AllowEntry] = (),
    today: dt.date,
) -> Gate:
    """Judge captures of one program. ``today`` decides which entries of the allow-list have expired.

    Raises UsageError when there is nothing to judge by.
    """
    if not limits and not baseline:
        raise UsageError(
            "no-limits",
            "There is no limit and no baseline to check against.",
            "For example: nsys-sync check TRACE --max-syncs-per-step 1",
        )
    sites = sites_by_id(reports)
    accepted = _accept(sites.values(), allow, today)
    results = [_judge(report, limit, accepted) for limit in limits for report in reports]
    comparison = compare(baseline, reports) if baseline else None
    against = _against_baseline(comparison, [*baseline, *reports], accepted) if comparison else None
    return Gate(
        format=FORMAT,
        tool=TOOL,
        status=_status(results, against),
        captures=[r.trace.file for r in reports],
        limits=results,
        baseline=against,
        sites=_judged(sites, accepted, _failing(results, against), comparison),
        allow=accepted.uses,
        warnings=[
            *_trace_warnings(reports),
            *([*comparison.warnings, *_outside(comparison, accepted)] if comparison else []),
        ],
    )


def _status(results: Sequence[LimitResult], against: BaselineResult | None) -> Status:
    if any(r.status == "exceeded" for r in results) or (against and against.growth):
        return "failed"
    if any(r.status == "not_measured" for r in results) or (against and against.not_measured):
        return "not_measured"
    return "passed"


def _failing(results: Sequence[LimitResult], against: BaselineResult | None) -> set[str]:
    return {i for r in results for i in r.sites} | ({g.site for g in against.growth} if against else set())


def sites_by_id(reports: Iterable[Report]) -> dict[str, Site]:
    """Every site of the captures, as the capture saw it in which it waited longest; longest wait first."""
    found: dict[str, Site] = {}
    for site in (s for r in reports for s in r.sites):
        known = found.get(site.id)
        if known is None or site.wait_ns.total > known.wait_ns.total:
            found[site.id] = site
    return dict(sorted(found.items(), key=lambda item: (-item[1].wait_ns.total, item[0])))


def _accept(sites: Iterable[Site], allow: Sequence[AllowEntry], today: dt.date) -> _Accepted:
    because: dict[str, str] = {}
    uses = []
    sites = list(sites)
    for entry in allow:
        matched = [s.id for s in sites if entry.matches(s)]
        expired = entry.until is not None and entry.until < today
        if not expired:
            for site_id in matched:
                because.setdefault(site_id, entry.reason)
        status: Literal["used", "stale", "expired"] = "expired" if expired else "used" if matched else "stale"
        uses.append(AllowUse(entry=entry, status=status, sites=matched))
    return _Accepted(because, uses)


def _why_not_measured(report: Report, limit: Limit) -> str | None:
    """Why the report cannot answer for this limit, or None."""
    if _is_empty(report):
        return _EMPTY
    if limit.per == "step" and not any(s.count for s in report.steps):
        return "the capture has no steps, and the limit is per step (--step NAME names the range of a step)"
    return None if limit.quantity == "syncs" else _withheld(report)


def _is_empty(report: Report) -> bool:
    """Whether neither the GPU nor a sync was seen to do anything, so that nothing could have been exceeded."""
    if not any(d.window_ns for d in report.devices):
        return True
    return report.totals.sync_events == 0 and all(d.busy_ns == 0 for d in report.devices)


def _withheld(report: Report) -> str | None:
    """Work that is not in the trace makes waits look short, so that neither waits nor idle time can be judged."""
    reasons = {d.idle_reason or "idle time was withheld" for d in report.devices if d.idle_status == "withheld"}
    return "; ".join(sorted(reasons)) or None


def _judge(report: Report, limit: Limit, accepted: _Accepted) -> LimitResult:
    """One limit in one capture; where it holds for each process, by the process with the most."""
    reason = _why_not_measured(report, limit)
    if reason:
        return LimitResult(
            limit=limit,
            status="not_measured",
            capture=report.trace.file,
            pid=None,
            measured=None,
            excess=None,
            sites=[],
            reason=reason,
        )
    sites = [s for s in report.sites if s.id not in accepted.because]
    parts = _parts(report, limit)
    amounts = {pid: {s.id: _amount(s, limit, pid) for s in sites} for pid in parts}
    worst = max(parts, key=lambda pid: sum(amounts[pid].values()) / parts[pid])
    measured = sum(amounts[worst].values()) / parts[worst]
    exceeded = measured > limit.value
    return LimitResult(
        limit=limit,
        status="exceeded" if exceeded else "held",
        capture=report.trace.file,
        pid=worst,
        measured=round(measured, 9),
        excess=round(measured - limit.value, 9) if exceeded else None,
        sites=_culprits(amounts[worst], (measured - limit.value) * parts[worst]),
        reason=None,
    )


def _parts(report: Report, limit: Limit) -> dict[int | None, int]:
    """What the limit holds for, each with its divisor: every process and its steps, or the capture as a whole.

    A process without steps of its own is measured by the steps of the others.
    """
    if limit.unit == "share":
        return {None: sum(d.window_ns for d in report.devices)}
    if limit.per == "capture":
        return {None: 1}
    if limit.quantity == "idle_from_syncs":
        return {None: step_count(report)}
    steps: dict[int | None, int] = {s.pid: s.count for s in report.steps if s.count}
    most = max(steps.values())
    return {p.pid: most for site in report.sites for p in site.by_process} | steps


def _amount(site: Site, limit: Limit, pid: int | None) -> int:
    """A site's events, or its wait or the idle time it caused (ns), in one process (pid) or in all."""
    if limit.quantity == "idle_from_syncs":
        return site.idle_ns.sync_wait + site.idle_ns.sync_refill if site.idle_ns else 0
    value = share_events if limit.quantity == "syncs" else share_wait
    return sum(value(p, limit.per) for p in site.by_process if pid is None or p.pid == pid)


def _culprits(amounts: dict[str, int], excess: float) -> list[str]:
    """The fewest sites that together make up the excess, weightiest first."""
    chosen: list[str] = []
    for site_id, amount in sorted(amounts.items(), key=lambda item: (-item[1], item[0])):
        if excess <= 0:
            break
        chosen.append(site_id)
        excess -= amount
    return chosen


def _against_baseline(comparison: Comparison, captures: Sequence[Report], accepted: _Accepted) -> BaselineResult:
    return BaselineResult(
        captures=[c.file for c in comparison.before.captures],
        growth=[
            g for s in comparison.sites or [] if s.id not in accepted.because for g in _growth(s, comparison.basis)
        ],
        not_measured=[*filter(None, [comparison.sites_reason]), *_unmeasured(captures)],
    )


def _is_counted(events: Change) -> bool:
    """Whether a site has events after in what is judged: in the loop, or anywhere where there are no steps."""
    return events.after is not None and events.after.high > 0


def _outside(comparison: Comparison, accepted: _Accepted) -> list[Note]:
    """Sites that are new but outside the loop: a read that was moved behind it is no regression."""
    new = [s for s in comparison.sites or [] if s.state == "new" and s.id not in accepted.because]
    return [
        Note(
            slug="new-outside-loop",
            text=f"New outside the loop, not failed: {s.after.file or 'unknown file'}:{s.after.line} (id {s.id}).",
        )
        for s in new
        if s.after and not _is_counted(s.events)
    ]


def _growth(site: SiteChange, per: Basis) -> list[Growth]:
    if site.state == "new":
        return [Growth(kind="new_site", site=site.id, change=site.events, per=per)] if _is_counted(site.events) else []
    if site.state == "gone":
        return []
    grown = [c for c in (site.events, site.wait) if c.notable and c.delta is not None and c.delta > 0]
    return [Growth(kind="growth", site=site.id, change=c, per=per) for c in grown]


def _unmeasured(reports: Sequence[Report]) -> list[str]:
    """Why a capture cannot show growth, however little it seems to have."""
    found = []
    for report in reports:
        reason = _EMPTY if _is_empty(report) else _withheld(report)
        if reason:
            found.append(f"{report.trace.file}: {reason}")
    return found


def _judged(
    sites: dict[str, Site], accepted: _Accepted, failing: set[str], comparison: Comparison | None
) -> list[JudgedSite]:
    states = {c.id: c.state for c in (comparison.sites or [])} if comparison else {}
    return [
        JudgedSite(
            id=i,
            outcome="accepted" if i in accepted.because else "fails" if i in failing else "passes",
            accepted_because=accepted.because.get(i),
            state=states.get(i),
        )
        for i in sites
    ]


def _trace_warnings(reports: Sequence[Report]) -> list[Note]:
    """The captures' own warnings, each once, and the failure of a program that was captured while it failed."""
    notes = {(n.slug, n.text): n for r in reports for n in r.trace.warnings}
    for report in reports:
        exit_code = report.trace.capture.target_exit
        if exit_code:
            text = f"{report.trace.file}: the captured program failed with exit code {exit_code}."
            notes["target-failed", text] = Note(slug="target-failed", text=text)
    return list(notes.values())
