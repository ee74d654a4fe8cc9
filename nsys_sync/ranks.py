"""The ranks of one run, from one trace or a trace each, side by side: plain values with a JSON form.

Ranks that train together meet in collectives, which end for all of them when the last has come. Who comes last holds
the others; for how long is read off the NCCL kernels: the k-th of a step is the same collective on every rank. The
clocks of several traces are laid upon each other by the ends of the collectives; docs/model.md has the definitions.
Times are nanoseconds, sums over the steps. What is not known is null. Sentences are the renderers'
(``nsys_sync.report.ranks_words``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from nsys_sync.analysis.findings import TOOL, Document, Plain, Report, Site, SiteClass, SiteProcess
from nsys_sync.compare.comparison import Basis
from nsys_sync.compare.measures import share_events, share_wait, source_text
from nsys_sync.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nsys_sync.analysis.collectives import Collectives
    from nsys_sync.analysis.timeline import Column

FORMAT = 1

#: Share of the collectives that must not end on one rank before they have begun on another.
_TOGETHER = 0.8


class Held(Plain, frozen=True, kw_only=True):
    """Why a rank was the last: what its GPU did since the collective before, beyond the GPU of the rank before it (ns).

    idle: it had nothing to do for longer; work: its operations took longer; clock: the collective before had not ended
    for both at once. Each can be negative; together they are ``Rank.holds_ns``.
    """

    idle: int
    work: int
    clock: int


class Rank(Plain, frozen=True, kw_only=True):
    """One process. rank: null unless the capture marked it. step_ns: its median; steps: how many it has.

    events, wait_ns: its syncs, by ``Ranks.basis``. Of the meetings: waits_ns: how long its GPU waited in collectives
    for the last rank; holds_ns: how long it was the only one missing; held: why; by_syncs_ns: at most this part
    of holds_ns is behind its own syncs, for no more of its idle time before was theirs.
    """

    rank: int | None
    file: str
    pid: int
    devices: list[int]
    steps: int
    step_ns: int | None
    events: int
    wait_ns: int
    waits_ns: int | None
    holds_ns: int | None
    held: Held | None
    by_syncs_ns: int | None


class RankSite(Plain, frozen=True, kw_only=True):
    """A site. events, wait_ns: by position in ``Ranks.ranks``, by ``Ranks.basis``; null where a rank does not have it.

    holds_ns: at most this part of all ranks' ``by_syncs_ns`` is its doing; null where that is not known.
    """

    id: str
    rule: str
    title: str
    class_: SiteClass = msgspec.field(name="class")
    file: str | None
    line: int | None
    function: str | None
    source: str | None
    events: list[int | None]
    wait_ns: list[int | None]
    holds_ns: int | None


class Meetings(Plain, frozen=True, kw_only=True):
    """The collectives by which ranks were compared. reason: why there are none, null where there are.

    count: of ``steps`` steps. tolerance_ns: ranks that came within it of each other count as having come together; 0
    where one clock timed all of them.
    """

    count: int
    steps: int
    tolerance_ns: int
    reason: str | None


class Ranks(Document, frozen=True, kw_only=True):
    """All ranks of a run, by rank where all are known, else as given; sites by what they hold, then by wait.

    basis: whether syncs are counted in the steps, from the first to the last, or, where a rank has none, in all.
    """

    basis: Basis
    ranks: list[Rank]
    meetings: Meetings
    sites: list[RankSite]


@dataclass(frozen=True)
class Member:
    """One process of one trace. file: which of the traces; collectives: None where it has none, or no timeline."""

    file: int
    report: Report
    pid: int
    rank: int | None
    collectives: Collectives | None


def members(traces: Sequence[tuple[Report, Sequence[Collectives]]]) -> list[Member]:
    """The processes of all traces, ordered as ``Ranks.ranks``.

    Raises UsageError for fewer than two, and for a rank that comes twice.
    """
    found = []
    for file, (report, collectives) in enumerate(traces):
        of_pid = {c.pid: c for c in collectives}
        found += [Member(file, report, p.pid, p.rank, of_pid.get(p.pid)) for p in report.trace.processes]
    if len(found) < 2:
        raise UsageError(
            "one-rank",
            "There is only one rank: one process with CUDA calls.",
            "Give the traces of all ranks, or see its own report: nsys-sync report TRACE",
        )
    numbers = [m.rank for m in found if m.rank is not None]
    twice = next((n for n in numbers if numbers.count(n) > 1), None)
    if twice is not None:
        files = [m.report.trace.file for m in found if m.rank == twice]
        raise UsageError(
            "rank-twice",
            f"Rank {twice} is in two places: {files[0]} and {files[1]}.",
            "Give the traces of one run, one for each rank.",
        )
    return sorted(found, key=lambda m: m.rank or 0) if len(numbers) == len(found) else found


def compare_ranks(found: Sequence[Member]) -> Ranks:
    """Lay the ranks side by side."""
    meeting = _meet(found)
    parts = _Parts.of(meeting) if isinstance(meeting, _Meeting) else None
    stepping = {(m.file, s.pid) for m in found for s in m.report.steps if s.count}
    basis: Basis = "step" if stepping.issuperset((m.file, m.pid) for m in found) else "capture"
    return Ranks(
        format=FORMAT,
        tool=TOOL,
        basis=basis,
        ranks=[_rank(member, parts, place, basis) for place, member in enumerate(found)],
        meetings=Meetings(count=0, steps=0, tolerance_ns=0, reason=meeting)
        if isinstance(meeting, str)
        else Meetings(count=len(meeting.rows[0]), steps=meeting.steps, tolerance_ns=meeting.tolerance, reason=None),
        sites=_sites(found, parts, basis),
    )


# --- who waits for whom ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Meeting:
    """The collectives that all ranks have: rows of each rank's own, and their times on one clock, shape (ranks, n).

    place: position of each in the members that were compared.
    """

    place: list[int]
    collectives: list[Collectives]
    rows: list[Column]
    start: Column
    end: Column
    steps: int
    tolerance: int

    def stacked(self, values: Sequence[Column]) -> Column:
        """What each rank has by its own collectives, as shape (ranks, n)."""
        return np.stack([v[rows] for v, rows in zip(values, self.rows, strict=True)])


def _meet(found: Sequence[Member]) -> _Meeting | str:
    """The meetings of the ranks, or why they are not known."""
    place = [i for i, m in enumerate(found) if m.collectives is not None]
    own = [c for m in found if (c := m.collectives) is not None]
    if len(own) < 2:
        return "fewer than two ranks have collectives (NCCL kernels) in the traces"
    if any(len(c.devices) > 1 for c in own):
        return "a process ran collectives on several GPUs"
    files = [found[i].file for i in place]
    if not all(c.steps for c in own) and (len(set(files)) > 1 or any(c.steps for c in own)):
        return "steps are not marked on every rank"
    matched = _match(own)
    if isinstance(matched, str):
        return matched
    rows, steps = matched
    start, end = (np.stack([times[r] for times, r in zip(of, rows, strict=True)]) for of in _times(own))
    # A collective ends for all ranks within microseconds: its ends tell how far one trace's clock is from another's.
    leaders = {file: files.index(file) for file in files}
    apart = [int(np.median(end[leaders[file]] - end[0])) for file in files]
    start, end = start - np.array(apart)[:, None], end - np.array(apart)[:, None]
    if float((end.min(axis=0) >= start.max(axis=0)).mean()) < _TOGETHER:
        return (
            "the collectives of the ranks do not end together: they are not of one run, or of several groups of ranks"
        )
    several = len(leaders) > 1
    tolerance = int(np.percentile(np.ptp(end, axis=0), 95)) if several else 0
    return _Meeting(place, own, rows, start, end, steps, tolerance)


def _times(own: Sequence[Collectives]) -> tuple[list[Column], list[Column]]:
    return [c.start for c in own], [c.end for c in own]


def _match(own: Sequence[Collectives]) -> tuple[list[Column], int] | str:
    """Rows of the collectives that all ranks have, and of how many steps; or why there are none.

    The first step that they share is left out: ranks enter the capture one after the other.
    """
    shared = sorted(set.intersection(*({int(s) for s in np.unique(c.step)} for c in own)) - {-1})
    in_step = [{step: np.flatnonzero(c.step == step) for step in shared} for c in own]
    if not own[0].steps:
        count = min(len(c.step) for c in own)
        in_step, shared = [{0: np.arange(1, count)} for _ in own], [0]
    else:
        shared = shared[1:]
    same = [
        step
        for step in shared
        if len({tuple(c.name[i] for i in rows[step]) for c, rows in zip(own, in_step, strict=True)}) == 1
    ]
    if len(same) * 2 <= len(shared) and shared:
        return "the ranks run different collectives: they are in several groups, or not of one run"
    rows = [np.concatenate([r[step] for step in same] or [np.empty(0, dtype=np.int64)]) for r in in_step]
    if not len(rows[0]):
        return "the ranks have no step in common after the first of the capture"
    return rows, len(same)


@dataclass(frozen=True)
class _Parts:
    """What the meetings add up to, by position in the members (by_site: by site id).

    held, by_syncs, by_site: None where idle is withheld on any rank.
    """

    waits: dict[int, int]
    holds: dict[int, int]
    held: dict[int, Held] | None
    by_syncs: dict[int, int] | None
    by_site: dict[str, int] | None

    @classmethod
    def of(cls, m: _Meeting) -> _Parts:
        """Charge each meeting to the rank that came last, up to when the one before it came."""
        order = np.argsort(m.start, axis=0, kind="stable")
        last, second = order[-1], order[-2]
        column = np.arange(m.start.shape[1])
        came, before = m.start[last, column], m.start[second, column]
        late = came - m.start
        waits = np.where(late > m.tolerance, late, 0).sum(axis=1)
        alone = np.where(came - before > m.tolerance, came - before, 0)
        idle, busy = m.stacked([c.idle for c in m.collectives]), m.stacked([c.since - c.idle for c in m.collectives])
        longer_idle = idle[last, column] - idle[second, column]
        longer_busy = busy[last, column] - busy[second, column]
        behind = np.minimum(m.stacked([c.from_syncs for c in m.collectives])[last, column], alone)
        holds, held, by_syncs = {}, {}, {}
        for i, place in enumerate(m.place):
            mine = (alone > 0) & (last == i)
            holds[place] = int(alone[mine].sum())
            parts = (int(longer_idle[mine].sum()), int(longer_busy[mine].sum()))
            held[place] = Held(idle=parts[0], work=parts[1], clock=holds[place] - sum(parts))
            by_syncs[place] = int(behind[mine].sum())
        by_site = {}
        for site in sorted({site for c in m.collectives for site in c.by_site}):
            caused = m.stacked([c.by_site.get(site, np.zeros_like(c.start)) for c in m.collectives])
            by_site[site] = int(np.minimum(caused[last, column], alone).sum())
        own_waits = {place: int(waits[i]) for i, place in enumerate(m.place)}
        if not all(c.measured for c in m.collectives):
            return cls(own_waits, holds, None, None, None)
        return cls(own_waits, holds, held, by_syncs, by_site)


def _rank(member: Member, parts: _Parts | None, place: int, basis: Basis) -> Rank:
    report = member.report
    steps = next((s for s in report.steps if s.pid == member.pid), None)
    shares = [share for site in report.sites if (share := _share(site, member.pid)) is not None]
    own = member.collectives
    return Rank(
        rank=member.rank,
        file=report.trace.file,
        pid=member.pid,
        devices=own.devices if own is not None else [],
        steps=steps.count if steps is not None else 0,
        step_ns=steps.median_ns if steps is not None else None,
        events=sum(share_events(share, basis) for share in shares),
        wait_ns=sum(share_wait(share, basis) for share in shares),
        waits_ns=parts.waits.get(place) if parts is not None else None,
        holds_ns=parts.holds.get(place) if parts is not None else None,
        held=parts.held.get(place) if parts is not None and parts.held is not None else None,
        by_syncs_ns=parts.by_syncs.get(place) if parts is not None and parts.by_syncs is not None else None,
    )


def _share(site: Site, pid: int) -> SiteProcess | None:
    return next((share for share in site.by_process if share.pid == pid), None)


def _sites(found: Sequence[Member], parts: _Parts | None, basis: Basis) -> list[RankSite]:
    shown: dict[str, Site] = {}
    shares: dict[str, list[SiteProcess | None]] = {}
    for place, member in enumerate(found):
        for site in member.report.sites:
            share = _share(site, member.pid)
            if share is not None:
                shown.setdefault(site.id, site)
                shares.setdefault(site.id, [None] * len(found))[place] = share
    by_site = parts.by_site if parts is not None else None
    rows = [
        RankSite(
            id=id_,
            rule=site.rule,
            title=site.title,
            class_=site.class_,
            file=site.file,
            line=site.line,
            function=site.function,
            source=source_text(site),
            events=[None if s is None else share_events(s, basis) for s in shares[id_]],
            wait_ns=[None if s is None else share_wait(s, basis) for s in shares[id_]],
            holds_ns=None if by_site is None else by_site.get(id_, 0),
        )
        for id_, site in shown.items()
    ]
    return sorted(rows, key=lambda r: (-(r.holds_ns or 0), -sum(w or 0 for w in r.wait_ns), r.id))
