"""What the renderers of a comparison say the same way: its sentences, the names of its quantities and states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys_sync.report.words import NOT_MEASURED, count, duration, harmless, scale, span

if TYPE_CHECKING:
    from nsys_sync.compare.comparison import Basis, Comparison, Prediction, Side, SiteChange, SiteSide, State
    from nsys_sync.compare.noise import Change, Sample, Unit

QUANTITIES = {
    "step_time": "step time",
    "wait": "CPU waiting in syncs",
    "idle": "GPU idle",
    "idle_from_syncs": "GPU idle from syncs",
    "recoverable": "recoverable, all syncs",
    "syncs": "syncs",
}

STATES: dict[State, str] = {
    "gone": "only before",
    "new": "only after",
    "changed": "on both sides, with a difference that counts",
    "same": "on both sides, without one",
}


def headline(comparison: Comparison) -> str:
    """The step time before and after and what to think of the difference, one or two sentences."""
    step = comparison.quantity("step_time")
    if step.before is None or step.after is None or step.delta is None:
        return f"Step time {step.reason}."
    pair = f"Step time {arrow(step)}"
    if comparison.outcome == "same":
        return f"Step time {shown(step.after, step.unit)} on both sides."
    if comparison.outcome == "within_noise":
        return f"{pair}: {difference(step)}, within noise."
    direction = "faster" if step.delta < 0 else "slower"
    if comparison.outcome == "noise_unknown":
        return f"{pair}: {times(step)} {direction}. {noise_unknown(comparison)}"
    return f"{pair}: {times(step)} {direction}, more than noise explains."


def noise_unknown(comparison: Comparison) -> str:
    """Why no verdict is given, and what would allow one."""
    few = [s.name for s in (comparison.before, comparison.after) if len(s.captures) < 2]
    where = "a side" if len(few) == 2 else few[0]
    return f"One capture {where}: how much of this is noise is unknown (give several: --before, --after)."


def times(change: Change) -> str:
    """How many times the larger value is the smaller, ``1.20 ×``."""
    if not change.ratio:
        return NOT_MEASURED
    return f"{max(change.ratio, 1 / change.ratio):.2f} ×"


def sites_line(comparison: Comparison) -> str:
    """``4 sites gone, 0 new, 1 changed, 2 same``."""
    if comparison.sites is None:
        return f"Sites are not compared: {comparison.sites_reason}"
    number = {state: sum(s.state == state for s in comparison.sites) for state in STATES}
    return (
        f"{count(number['gone'], 'site')} gone, {number['new']} new, {number['changed']} changed, {number['same']} same"
    )


def prediction(found: Prediction) -> str:
    """What the what-if had said, and what came."""
    removed = {
        "all": "all syncs of the loop",
        "class": f"the {found.name} syncs",
        "site": "this site",
    }[found.scope]
    low, high = found.step_ns_low, found.step_ns_high
    outcome = (
        "inside the range" if found.holds else "below the range" if found.measured.high < low else "above the range"
    )
    return (
        f"The what-if without {removed} said {span(low, high)} a step; measured {shown(found.measured, 'ns')}: "
        f"{outcome}."
    )


def side(found: Side) -> str:
    """The captures of a side and how they were made, on one line."""
    files = [c.file for c in found.captures]
    names = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    facts = [names, _steps(found)]
    facts += [", ".join(found.gpus)] if found.gpus else []
    facts += [f"nsys {', '.join(found.nsys_versions)}"] if found.nsys_versions else []
    return " · ".join(facts)


def _steps(found: Side) -> str:
    """``10 steps``, of several captures ``10 / 20 steps``, of several processes ``20 steps in 2 processes``."""
    steps = sorted({c.steps for c in found.captures})
    if steps == [0]:
        return "no steps"
    text = f"{' / '.join(str(s) for s in steps)} steps"
    processes = max(c.stepping_processes for c in found.captures)
    return f"{text} in {processes} processes" if processes > 1 else text


def verdict(change: Change) -> str:
    """What to think of a difference, in two or three words."""
    if change.verdict in {"lower", "higher"} and not change.notable:
        return "negligible"
    return {
        "lower": "lower",
        "higher": "higher",
        "equal": "equal",
        "within_noise": "within noise",
        "noise_unknown": "noise unknown",
        "unmeasured": change.reason or "not measured",
    }[change.verdict]


def number(value: float, unit: Unit) -> str:
    """A value with its unit; counts without trailing zeros."""
    if not value:
        return "0"
    return duration(round(value)) if unit == "ns" else f"{round(value, 2):,g}"


def shown(sample: Sample | None, unit: Unit) -> str:
    """The median, with the range of several captures: ``2.76 ms (2.75–2.78)``."""
    if sample is None:
        return NOT_MEASURED
    if sample.low == sample.high:
        return number(sample.median, unit)
    if unit == "count":
        return f"{number(sample.median, unit)} ({number(sample.low, unit)}–{number(sample.high, unit)})"
    column = scale((round(sample.median), round(sample.low), round(sample.high)), 3)
    low, middle, high = (column.show(round(v)) for v in (sample.low, sample.median, sample.high))
    return f"{middle} {column.unit} ({low}–{high})"


def arrow(change: Change) -> str:
    """``3.31 ms → 2.76 ms``, with ranges where there are several captures."""
    return f"{shown(change.before, change.unit)} → {shown(change.after, change.unit)}"


def difference(change: Change) -> str:
    """``−0.55 ms (−17 %)``; the share is left out where before is 0."""
    if change.delta is None:
        return NOT_MEASURED
    if change.delta == 0:
        return "0"
    sign = "+" if change.delta > 0 else "−"
    text = f"{sign}{number(abs(change.delta), change.unit)}"
    if change.ratio is None or change.ratio > 10:
        return text
    share = abs(change.ratio - 1) * 100
    return f"{text} ({sign}{share:.0f} %)" if share >= 0.5 else f"{text} (<1 %)"


def cost(site: SiteChange, basis: Basis) -> str:
    """A site's wait and syncs before and after; of a site outside the loop its whole ones in the capture."""
    per = "/step" if basis == "step" else ""
    if basis == "capture" or in_loop(site):
        return f"wait{per} {arrow(site.wait)} · syncs{per} {arrow(site.events)}"
    return f"outside the loop: {outside(site)}"


def in_loop(site: SiteChange) -> bool:
    """Whether any capture of either side has the site between its first step and its last."""
    return any(s is not None and s.high > 0 for s in (site.events.before, site.events.after))


def outside(site: SiteChange) -> str:
    """Wait and syncs of a site in the whole capture, before and after."""
    wait = [number(s.wait_ns if s else 0, "ns") for s in (site.before, site.after)]
    syncs = [f"{s.events:,}" if s else "0" for s in (site.before, site.after)]
    return f"wait {' → '.join(wait)} · syncs {' → '.join(syncs)}"


def sides(site: SiteChange) -> list[SiteSide]:
    """The sides that have the site, before first."""
    return [side for side in (site.before, site.after) if side is not None]


def place(side: SiteSide, names: dict[str, str]) -> str:
    """``file:line`` of a side's site; names: ``short_names`` of all files of the comparison."""
    if not side.file:
        return " + ".join(harmless(api, 60) for api in side.apis) + " (no Python line)"
    return f"{harmless(names[side.file], 160)}:{side.line}" if side.line else harmless(names[side.file], 160)
