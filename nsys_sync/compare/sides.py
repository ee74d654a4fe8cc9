"""The captures of both sides, on one basis."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Literal

from nsys_sync.compare.measures import Quantity, step_count, step_time, window
from nsys_sync.compare.noise import Change, Margin, change

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nsys_sync.analysis.findings import Report
    from nsys_sync.compare.comparison import Basis, SideName

#: Two identical captures of a host-bound program were seen to differ by a quarter.
UNKNOWN_NOISE = 0.25
#: A share of a step (of the window where there are no steps) that is too small to be called a change.
NEGLIGIBLE = 0.01
#: Counts of calls are far steadier than times.
UNKNOWN_NOISE_COUNT = 0.10


class Sides:
    """The captures of both sides, each once, and how their values are brought to one basis."""

    def __init__(self, before: Sequence[Report], after: Sequence[Report]) -> None:
        self.before = once(before)
        self.after = once(after)
        self.both = [*self.before, *self.after]
        self.basis: Basis = "step" if all(step_count(r) for r in self.both) else "capture"
        self._unit_ns = statistics.median(
            (step_time(r) if self.basis == "step" else None) or window(r) / self.divisor(r) for r in self.both
        )

    @property
    def named(self) -> list[tuple[SideName, list[Report]]]:
        """Both sides with their names."""
        return [("before", self.before), ("after", self.after)]

    def divisor(self, report: Report) -> int:
        """What a total of a capture is divided by."""
        return step_count(report) if self.basis == "step" else 1

    def margin(self, unit: Literal["ns", "count"]) -> Margin:
        """Counts may differ by one event a capture: where a capture begins and ends is chance."""
        if unit == "ns":
            return Margin(UNKNOWN_NOISE, NEGLIGIBLE * self._unit_ns)
        return Margin(UNKNOWN_NOISE_COUNT, 1 / min(self.divisor(r) for r in self.both))

    def total(self, quantity: Quantity) -> Change:
        """How a total changed."""

        def values(reports: Iterable[Report]) -> list[float | None]:
            return [
                None
                if (v := quantity.value(r, self.basis)) is None
                else v / (self.divisor(r) if quantity.scaled else 1)
                for r in reports
            ]

        margin = self.margin(quantity.unit)
        return change(quantity.name, quantity.unit, values(self.before), values(self.after), margin)


def once(reports: Sequence[Report]) -> list[Report]:
    """The captures without repetitions: the same capture twice would look like a program without noise."""
    return list({r.trace.sha256 or str(id(r)): r for r in reports}.values())
