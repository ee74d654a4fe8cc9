"""The page of a comparison: totals before and after, every site of either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nsys_sync.paths import write_new
from nsys_sync.report import compare_words
from nsys_sync.report.page import NAME, fill
from nsys_sync.report.words import harmless, short_names

if TYPE_CHECKING:
    from pathlib import Path

    from nsys_sync.compare.comparison import Basis, Comparison, SiteChange
    from nsys_sync.compare.noise import Change, Sample, Unit


def write_comparison(comparison: Comparison, path: str | Path, *, force: bool = False) -> Path:
    """Write the page of a comparison; returns its absolute path. Raises OutputError."""
    return write_new(path, comparison_page(comparison).encode("utf-8"), force=force)


def comparison_page(comparison: Comparison) -> str:
    """The page of a comparison as text."""
    data = {"sites": None, "classes": compare_words.STATES, "timeline": None}
    return fill("comparison.html.jinja", data, _values(comparison), plotly=False)


def _values(comparison: Comparison) -> dict[str, Any]:
    sites = comparison.sites or []
    names = short_names({side.file for site in sites for side in compare_words.sides(site) if side.file})
    sides = (comparison.before, comparison.after)
    files = [", ".join(harmless(c.file, 80) for c in side.captures) for side in sides]
    return {
        "title": f"{files[0]} and {files[1]} – nsys-sync",
        "before": files[0],
        "after": files[1],
        "headline": harmless(compare_words.headline(comparison)),
        "prediction": compare_words.prediction(comparison.prediction) if comparison.prediction else None,
        "per_step": comparison.basis == "step",
        "per": " a step" if comparison.basis == "step" else "",
        "quantities": [_quantity(change) for change in comparison.quantities],
        "sites_line": harmless(compare_words.sites_line(comparison)),
        "rows": [_row(site, names, comparison.basis) for site in sites],
        "warnings": [harmless(note.text, 1000) for note in comparison.warnings],
        "sides": [(side.name, harmless(compare_words.side(side))) for side in sides],
    }


def _quantity(change: Change) -> dict[str, Any]:
    medians = [0.0 if sample is None else sample.median for sample in (change.before, change.after)]
    largest = max(medians) or 1
    direction = "lower" if (change.delta or 0) < 0 else "higher"
    return {
        "name": compare_words.QUANTITIES[change.name],
        "before": compare_words.shown(change.before, change.unit),
        "after": compare_words.shown(change.after, change.unit),
        "width_before": f"{100 * medians[0] / largest:.1f}",
        "width_after": f"{100 * medians[1] / largest:.1f}",
        "difference": compare_words.difference(change),
        "verdict": harmless(compare_words.verdict(change)),
        "direction": direction if change.notable else "",
    }


def _row(site: SiteChange, names: dict[str, str], basis: Basis) -> dict[str, Any]:
    sides = compare_words.sides(site)
    last = sides[-1]
    outside = compare_words.outside(site) if basis == "step" and not compare_words.in_loop(site) else None
    return {
        "state": site.state,
        "place": " → ".join(dict.fromkeys(compare_words.place(side, names) for side in sides)),
        "file": harmless(names[last.file], NAME) if last.file else "",
        "function": harmless(last.function, 80) if last.function else "",
        "code": _code(site),
        "before": _wait(site.wait.before, site.wait.unit, there=site.before is not None and not outside),
        "after": _wait(site.wait.after, site.wait.unit, there=site.after is not None and not outside),
        "difference": "" if outside else compare_words.difference(site.wait),
        "verdict": "" if outside else harmless(compare_words.verdict(site.wait)),
        "events": "" if outside else compare_words.arrow(site.events),
        "outside": f"outside the loop, in the whole capture: {outside}" if outside else "",
        "title": harmless(site.title, 120),
        "class": site.class_,
        "api": ", ".join(harmless(api, 60) for api in last.apis),
        "order": {
            "before": site.wait.before.median if site.wait.before else -1,
            "after": site.wait.after.median if site.wait.after else -1,
            "wait": site.wait.delta or 0,
            "events": site.events.delta or 0,
        },
    }


def _wait(sample: Sample | None, unit: Unit, *, there: bool) -> str:
    return compare_words.shown(sample, unit) if there else ""


def _code(site: SiteChange) -> list[tuple[str, str]]:
    """Lines of code with a mark: "−" only before, "+" only after, "" on both sides."""
    before, after = (side.source if side else None for side in (site.before, site.after))
    if before == after or not (before and after):
        code = after or before
        return [("", harmless(code, 160))] if code else []
    return [("−", harmless(before, 160)), ("+", harmless(after, 160))]
