"""The rule that tells a change from noise: what it says, and how often it is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from nsys_sync.compare.noise import FACTORS, Change, Margin, change

Floats = npt.NDArray[np.float64]
#: How often two sets of captures of the same program may be called different, for one quantity.
FALSE_ALARM = 0.05
ANY = Margin(share=0.25, floor=0)


def judge(before: list[float | None], after: list[float | None], margin: Margin = ANY) -> Change:
    return change("step_time", "ns", before, after, margin)


SHAPES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "laplace": lambda rng, n: rng.laplace(size=n),
    "log-normal": lambda rng, n: rng.lognormal(0, 0.5, size=n) - 1,
    "outliers": lambda rng, n: rng.normal(size=n) * np.where(rng.random(n) < 0.1, 5, 1),
}


def false_alarms(captures: int, shape: str, noise_after: float, trials: int = 2000) -> float:
    """How often two sides with the same median are called different."""
    rng = np.random.default_rng([captures, *shape.encode()])
    found = 0
    for _ in range(trials):
        before = 1000 + 10 * SHAPES[shape](rng, captures)
        after = 1000 + 10 * noise_after * SHAPES[shape](rng, captures)
        found += judge(before.tolist(), after.tolist()).verdict in {"lower", "higher"}
    return found / trials


@pytest.mark.parametrize("captures", [*FACTORS, 20])
def test_captures_of_one_program_are_rarely_called_different(captures: int) -> None:
    rates = [false_alarms(captures, shape, ratio) for shape in SHAPES for ratio in (1.0, 0.3, 0.0)]
    three_sigma = 3 * (FALSE_ALARM * (1 - FALSE_ALARM) / 2000) ** 0.5
    assert max(rates) <= FALSE_ALARM + three_sigma


@pytest.mark.parametrize("captures", [2, 3, 4, 5])
def test_the_rule_is_no_stricter_than_it_must_be(captures: int) -> None:
    """In the case that fixes the factor, false alarms are close to the rate that is allowed."""
    assert max(false_alarms(captures, shape, 0.0) for shape in SHAPES) > FALSE_ALARM / 2


@pytest.mark.parametrize(("captures", "spreads"), [(2, 8), (3, 3), (5, 2)])
def test_a_real_difference_is_found(captures: int, spreads: float) -> None:
    """Medians this many spreads (of ten noise units) apart are nearly always called different."""
    rng = np.random.default_rng(captures)
    found = 0
    for _ in range(500):
        before = 1000 + rng.uniform(-5, 5, captures)
        after = 1000 - 10 * spreads + rng.uniform(-5, 5, captures)
        found += judge(before.tolist(), after.tolist()).verdict == "lower"
    assert found > 450


def test_one_capture_a_side_leaves_noise_unknown() -> None:
    assert judge([100], [50]).verdict == "noise_unknown"
    assert judge([100, 101, 102], [50]).verdict == "noise_unknown"
    assert judge([100], [100]).verdict == "equal"


def test_unknown_noise_counts_a_difference_beyond_a_quarter() -> None:
    assert not judge([100], [80]).notable
    assert judge([100], [70]).notable
    assert judge([100], [70]).noise is None


def test_what_is_not_measured_is_never_zero() -> None:
    nothing = judge([None, None], [5, 6])
    assert (nothing.before, nothing.verdict, nothing.delta) == (None, "unmeasured", None)
    assert nothing.reason == "not measured before"
    partly = judge([10, None, 12], [5, 5, 5])
    assert partly.before is not None
    assert partly.before.values == [10, 12]
    assert partly.reason == "not measured in 1 of 3 captures before"


def test_zero_is_measured() -> None:
    gone = judge([100, 100], [0, 0])
    assert (gone.verdict, gone.ratio) == ("lower", 0)
    new = judge([0, 0], [100, 100])
    assert (new.verdict, new.ratio) == ("higher", None)


def test_a_difference_below_the_floor_is_no_change_however_clear() -> None:
    assert judge([100, 100, 100], [101, 101, 101], Margin(0.25, 5)).verdict == "higher"
    assert not judge([100, 100, 100], [101, 101, 101], Margin(0.25, 5)).notable


def test_one_outlier_does_not_make_a_change() -> None:
    assert judge([100, 101, 102, 103, 100], [101, 100, 102, 160, 101]).verdict == "within_noise"
