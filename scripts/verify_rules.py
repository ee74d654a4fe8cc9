r"""Try the catalogue's claims on a GPU: an ``after`` waits less than its ``before`` and has the same result.

    nsys profile -t cuda,nvtx --python-backtrace=cuda --cudabacktrace=sync:0 -o rules -f true \
        --capture-range=cudaProfilerApi --capture-range-end=stop python scripts/verify_rules.py run results.json
    nsys export --type sqlite --include-json=true -o rules.sqlite -f true rules.nsys-rep
    python scripts/verify_rules.py table rules.sqlite results.json

``run`` needs PyTorch and a GPU (CuPy for some rules) and nothing of this project but rules.toml; it runs each pair in
NVTX ranges of its own. Pairs of JAX are left out: in a capture that had them nsys recorded no CUDA call of the process.
``table`` counts the sync events in these ranges (and the allocating calls, for rules about allocating) and writes the
table that the package and docs/rules.md show.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import tomllib
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "nsys_sync/analysis/catalogue/rules.toml"
TABLE = ROOT / "nsys_sync/analysis/catalogue/rules_verified.json"
SIDES = ("before", "after")
REGION = "nsys-sync:region "
WARM_UP = 2
PRELUDE = """
import numpy as np
import torch
import torch.nn.functional as F
dev = "cuda"
"""


def torch_module() -> Any:
    """PyTorch, which is not installed where this project is developed."""
    return importlib.import_module("torch")


def rules_to_run() -> list[dict[str, Any]]:
    """The rules that say how to run their two sides, without those of JAX."""
    rules = [rule for rule in tomllib.loads(RULES.read_text())["rule"] if "run" in rule]
    return [rule for rule in rules if "jax" not in f"{rule['run'].get('setup')} {rule['before']} {rule.get('after')}"]


def free_to_run() -> list[dict[str, Any]]:
    """The operations that are said not to wait."""
    return list(tomllib.loads(RULES.read_text())["free"])


def about_allocating() -> frozenset[str]:
    """The rules whose claim is about calls that allocate or free; in the pairs of others these say nothing."""
    return frozenset(rule["id"] for rule in rules_to_run() if rule["run"].get("allocations"))


def range_name(rule: str, side: str) -> str:
    """The NVTX range around one side of a rule."""
    return f"{REGION}{rule}/{side}"


# --- on the GPU ------------------------------------------------------------------------------------------------------


def run(out: Path) -> int:
    """Run all pairs and write which results agree, and the versions."""
    torch = torch_module()
    torch.cuda.init()
    torch.cuda.cudart().cudaProfilerStart()
    outcomes = {}
    for rule in rules_to_run():
        outcomes[rule["id"]] = outcome = run_pair(rule)
        print(
            f"{rule['id']:28} {outcome['error'] or ('same result' if outcome['same'] else 'RESULTS DIFFER')}",
            flush=True,
        )
    for free in free_to_run():
        outcomes[free["id"]] = outcome = run_pair({"id": free["id"], "before": free["code"], "run": free})
        print(f"{free['id']:28} {outcome['error'] or 'ran'}", flush=True)
    torch.cuda.cudart().cudaProfilerStop()
    found = {
        "gpu": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in ("torch", "cupy")},
        "pairs": outcomes,
    }
    out.write_text(json.dumps(found, indent=2) + "\n")
    print(f"Written: {out}")
    return 0


def installed(name: str) -> str | None:
    """The version of a package, under whichever name its wheel has."""
    for wheel in (name, f"{name}-cuda13x", f"{name}-cuda12x"):
        try:
            return version(wheel).partition("+")[0]
        except PackageNotFoundError:
            continue
    return None


def run_pair(rule: dict[str, Any]) -> dict[str, Any]:
    """Whether the two sides of a rule give the same result; the error where one cannot be run."""
    spec = rule["run"]
    expressions = spec.get("result", [])
    try:
        if not expressions:
            run_side(rule["id"], "before", spec.get("setup", ""), rule["before"], "None")
            return {"same": None, "error": None}
        values = [
            run_side(rule["id"], side, spec.get("setup", ""), rule[side], expressions[i if len(expressions) > 1 else 0])
            for i, side in enumerate(SIDES)
        ]
        return {"same": agree(*values), "error": None}
    except Exception as error:  # noqa: BLE001 one pair that fails says nothing of the others
        traceback.print_exc()
        return {"same": False, "error": f"{type(error).__name__}: {error}"[:300]}


def run_side(rule: str, side: str, setup: str, code: str, result: str) -> Any:
    """Run one side, warm, inside its range; its result."""
    torch = torch_module()
    compiled = compile(code, f"<{rule}/{side}>", "exec")
    names: dict[str, Any] = {}
    for measured in [False] * WARM_UP + [True]:
        names = {}
        exec(PRELUDE + setup, names)  # noqa: S102 the catalogue's own examples
        torch.cuda.synchronize()
        if measured:
            torch.cuda.nvtx.range_push(range_name(rule, side))
        exec(compiled, names)  # noqa: S102
        if measured:
            torch.cuda.nvtx.range_pop()
        torch.cuda.synchronize()
    return eval(result, names)  # noqa: S307


def agree(first: Any, second: Any) -> bool:
    """Whether two results are the same up to rounding."""
    import numpy as np

    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(agree(a, b) for a, b in zip(first, second, strict=True))
    one, other = as_array(first), as_array(second)
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-4, atol=1e-5))


def as_array(value: Any) -> Any:
    """A number, array or tensor as a NumPy array."""
    import numpy as np

    if hasattr(value, "detach"):
        return value.detach().float().cpu().numpy()
    return np.asarray(value, dtype=float)


# --- on any machine --------------------------------------------------------------------------------------------------


def table(trace: Path, results: Path) -> int:
    """Count what blocked in each range and write the table."""
    found = json.loads(results.read_text())
    counted = count(trace, about_allocating())
    rows = {}
    for rule in [*rules_to_run(), *({"id": f["id"], "run": {}} for f in free_to_run())]:
        pair = found["pairs"].get(rule["id"])
        if pair is None:
            continue
        before, after = (counted.get(range_name(rule["id"], side)) for side in SIDES)
        rows[rule["id"]] = {
            "verdict": verdict(pair, before, after, rule["run"].get("remaining", 0)),
            "library": rule["run"].get("needs", "torch"),
            "same_result": pair["same"],
            "error": pair["error"],
            "before": before,
            "after": after,
        }
    content = {k: found[k] for k in ("gpu", "python", "versions")} | {"rules": rows}
    TABLE.write_text(json.dumps(content, indent=2) + "\n")
    for rule, row in rows.items():
        sides = [row[side] or {"events": "-", "calls": {}} for side in SIDES]
        print(f"{row['verdict']:10} {rule:28} {sides[0]['events']} -> {sides[1]['events']}  {sides[1]['calls']}")
    print(f"Written: {TABLE}")
    return 0


def verdict(pair: dict[str, Any], before: dict[str, Any] | None, after: dict[str, Any] | None, remaining: int) -> str:
    """What the capture shows.

    ``verified``: the after waits no more than it may, and less than the before; ``refuted``: it waits more; ``waits``
    and ``no_wait``: of a before, alone or in spite of its rule; ``failed``: an error, other results, or no range.
    """
    if pair["error"] or pair["same"] is False or before is None:
        return "failed"
    if not before["events"]:
        return "no_wait"
    if pair["same"] is None:
        return "waits"
    if after is None:
        return "failed"
    return "verified" if after["events"] <= remaining and after["events"] < before["events"] else "refuted"


def count(trace: Path, allocating: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Sync events and the calls they consist of, by range; for the rules ``allocating`` allocations count as events
    too. Any thread of the process counts: some libraries wait on threads of their own.
    """
    from nsys_sync.analysis.calls import connect, find_blocking
    from nsys_sync.trace.reader import open_trace

    counted = {}
    with open_trace(trace) as opened:
        activity = connect(opened)
        blocking, events = find_blocking(opened, activity)
        calls = activity.calls
        alloc = activity.is_api("alloc").nonzero()[0]
        first = blocking.row[events.first]
        for i, name in enumerate(opened.ranges.name):
            text = opened.ranges.names[name]
            if not text.startswith(REGION):
                continue
            low, high = opened.ranges.start[i], opened.ranges.end[i]

            def inside(rows: Any, low: int = low, high: int = high) -> Any:
                return rows[(calls.start[rows] >= low) & (calls.start[rows] < high)]

            waits = inside(first)
            rule = text.removeprefix(REGION).rpartition("/")[0]
            allocations = inside(alloc) if rule in allocating else []
            names: dict[str, int] = {}
            for row in [*inside(blocking.row), *allocations]:
                api = calls.names[calls.name[row]]
                names[api] = names.get(api, 0) + 1
            counted[text] = {"events": len(waits) + len(allocations), "calls": dict(sorted(names.items()))}
    return counted


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    on_gpu = commands.add_parser("run", help="run the pairs on a GPU")
    on_gpu.add_argument("results", type=Path)
    on_any = commands.add_parser("table", help="make the table from the capture")
    on_any.add_argument("trace", type=Path)
    on_any.add_argument("results", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        return run(arguments.results)
    return table(arguments.trace, arguments.results)


if __name__ == "__main__":
    sys.exit(main())
