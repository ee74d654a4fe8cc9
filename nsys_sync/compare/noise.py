"""How much two sets of captures must differ for the difference to be more than noise.

The rule: with two or more captures a side, a change is clear when the medians differ by more than ``factor(n)`` times
the larger of the two spreads (largest minus smallest value of a side), n being the captures of the smaller side.
The factors are chosen so that two sets of captures of one program are called different in at most 5 % of cases, for
normal, Laplace, log-normal and outlier-ridden noise, and also where only one of the sides is noisy.
With one capture on either side the noise is unknown, and nothing is called clear.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nsys_sync.analysis.findings import Plain

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Spreads that the medians must lie apart, from so many captures of the smaller side on.
FACTORS = {2: 6.5, 3: 1.4, 4: 0.75, 5: 0.6, 6: 0.5, 8: 0.4, 12: 0.3}

Verdict = Literal["lower", "higher", "equal", "within_noise", "noise_unknown", "unmeasured"]
Unit = Literal["ns", "count"]


class Sample(Plain, frozen=True, kw_only=True):
    """One quantity of one side: a value for each capture that measured it, in the order given."""

    values: list[float]
    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Largest minus smallest value."""
        return self.high - self.low


class Change(Plain, frozen=True, kw_only=True):
    """One quantity before and after.

    before, after: None where no capture of that side measured it; ``reason`` then says so. delta: after's median minus
    before's. ratio: after's median over before's, None where before's is 0. noise: the largest difference of medians
    that noise explains, None with fewer than two captures on a side.
    notable: whether the difference counts as a change. It does when it is larger than ``Margin.floor`` and larger than
    the noise or, where that is unknown, than ``Margin.share`` of the larger median.
    """

    name: str
    unit: Unit
    before: Sample | None
    after: Sample | None
    delta: float | None
    ratio: float | None
    noise: float | None
    verdict: Verdict
    notable: bool
    reason: str | None = None


@dataclass(frozen=True)
class Margin:
    """Differences that never count: up to ``floor`` (in the quantity's unit), and, noise unknown, up to ``share``."""

    share: float
    floor: float


def factor(captures: int) -> float:
    """Spreads that the medians must lie apart, with ``captures`` (two or more) on the smaller side."""
    return FACTORS[max(number for number in FACTORS if number <= captures)]


def sample(values: Sequence[float | None]) -> Sample | None:
    """The measured ones of a side's values; None if there are none."""
    known = [round(float(v), 4) for v in values if v is not None]
    if not known:
        return None
    return Sample(values=known, median=round(statistics.median(known), 4), low=min(known), high=max(known))


def noise(before: Sample, after: Sample) -> float | None:
    """The largest difference of medians that noise explains; None with fewer than two captures on a side."""
    captures = min(len(before.values), len(after.values))
    return None if captures < 2 else factor(captures) * max(before.spread, after.spread)


def change(
    name: str, unit: Unit, before: Sequence[float | None], after: Sequence[float | None], margin: Margin
) -> Change:
    """Judge one quantity from its value in each capture of each side (None: not measured in that capture)."""
    first, second = sample(before), sample(after)
    if first is None or second is None:
        sides = [side for side, known in (("before", first), ("after", second)) if known is None]
        return Change(
            name=name,
            unit=unit,
            before=first,
            after=second,
            delta=None,
            ratio=None,
            noise=None,
            verdict="unmeasured",
            notable=False,
            reason=f"not measured {' and '.join(sides)}",
        )
    delta = round(second.median - first.median, 4)
    explained = noise(first, second)
    return Change(
        name=name,
        unit=unit,
        before=first,
        after=second,
        delta=delta,
        ratio=round(second.median / first.median, 6) if first.median else None,
        noise=None if explained is None else round(explained, 4),
        verdict=_verdict(delta, explained),
        notable=abs(delta) > max(margin.floor, _explained(first, second, explained, margin)),
        reason=_partly(before, after),
    )


def _verdict(delta: float, explained: float | None) -> Verdict:
    if explained is None:
        return "noise_unknown" if delta else "equal"
    if abs(delta) > explained:
        return "higher" if delta > 0 else "lower"
    return "within_noise" if delta or explained else "equal"


def _explained(before: Sample, after: Sample, explained: float | None, margin: Margin) -> float:
    return margin.share * max(before.median, after.median) if explained is None else explained


def _partly(before: Sequence[float | None], after: Sequence[float | None]) -> str | None:
    missing = [
        f"{sum(v is None for v in values)} of {len(values)} captures {side}"
        for side, values in (("before", before), ("after", after))
        if None in values
    ]
    return f"not measured in {' and '.join(missing)}" if missing else None
