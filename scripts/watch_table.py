"""What ``watch`` sees of the programs that ``profile`` was shown with.

    python scripts/watch_table.py record --out FOLDER    on a GPU machine: watch each program, check the marked ones
    python scripts/watch_table.py add    --out FOLDER    hold FOLDER/watch.json against the captures

``record`` also watches the programs of tests/watch/gpu_programs.py, whose lines say how often they wait, and exits with
1 if a count is wrong. ``add`` writes sample_traces/watch.json, which docs/watch.md shows (scripts/readme.py).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.record_samples import PROGRAMS, SAMPLES, environment  # noqa: E402 - found through the line above
from tests.watch.gpu_programs import PROGRAMS as MARKED  # noqa: E402
from tests.watch.gpu_programs import wrong_counts  # noqa: E402

TABLE = ROOT / "sample_traces/watch.json"
CAPTURES = ROOT / "sample_traces/captures"
WATCH = [sys.executable, "-m", "nsys_sync.cli", "watch", "--force", "--limit", "0"]
LIMIT_S = 170
AT_ONCE = 4


def watch(out: Path, name: str, program: Path) -> dict[str, Any]:
    """Watch a program: its exit code, seconds, last words if it failed, and report."""
    began = time.monotonic()
    report = out / f"{name}.json"
    report.unlink(missing_ok=True)
    log = out / f"{name}.log"
    with log.open("wb") as file:
        try:
            code = subprocess.run(
                [*WATCH, "--json", str(report), str(program)],
                cwd=out,
                env=environment(out / "home"),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    seconds = round(time.monotonic() - began, 1)
    print(f"{name}: exit {code} after {seconds} s", file=sys.stderr, flush=True)
    row: dict[str, Any] = {"name": name, "exit": code, "s": seconds}
    if code != 0:
        row["said"] = log.read_text("utf-8", "replace")[-1500:]
        print(row["said"], file=sys.stderr, flush=True)
    if report.exists():
        row["report"] = json.loads(report.read_text())
    return row


def place(site: dict[str, Any], program: str) -> list[Any]:
    """What tells a site of a program from another, in a watch and in a profile: line, and the leaf below it."""
    inside = Path(site["file"] or "").name == program
    leaf = site["leaf"] or {"file": "", "function": ""}
    return [site["line"] if inside else None, Path(leaf["file"]).name, leaf["function"]]


def sites_of(report: dict[str, Any], program: str) -> list[dict[str, Any]]:
    """A watch's sites, by place."""
    return [
        {
            "place": place(site, program),
            "calls": site["calls"],
            "calls_per_step": site["calls_per_step"],
            "in_loop": any(p["in_loop"] and p["in_loop"]["events"] for p in site["by_process"]),
            "seen_by": site["seen_by"],
        }
        for site in report["sites"]
    ]


def record(out: Path, only: list[str]) -> int:
    """Watch everything, write watch.json, and say what is wrong."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "home").mkdir(exist_ok=True)
    samples = [sample.program for sample in SAMPLES if not only or sample.program in only]
    marked = {name: out / f"check-{name.replace(' ', '-')}.py" for name in MARKED if not only or name in only}
    for name, path in marked.items():
        path.write_text(MARKED[name])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        watched = list(pool.map(lambda name: watch(out, name, PROGRAMS / f"{name}.py"), samples))
        checked = list(pool.map(lambda path: watch(out, path.stem, path), marked.values()))
    programs = []
    for row in watched:
        report = row.pop("report", None)
        if report is not None:
            row["pytorch"] = report["watch"]["pytorch"]
            row["steps"] = sum(steps["count"] for steps in report["steps"])
            row["sites"] = sites_of(report, f"{row['name']}.py")
        programs.append(row)
    checks = []
    for name, row in zip(marked, checked, strict=True):
        report = row.pop("report", None)
        row["wrong"] = ["no report"] if report is None else wrong_counts(MARKED[name], report)
        if report is not None:
            row["lines"] = {
                str(site["line"]): site["calls"] for site in sorted(report["sites"], key=lambda s: s["line"] or 0)
            }
        checks.append(row)
    text = json.dumps({"programs": programs, "checks": checks}, indent=1)
    (out / "watch.json").write_text(text + "\n")
    print(text)
    bad = [row["name"] for row in [*programs, *checks] if row["exit"] or row.get("wrong")]
    print(f"wrong: {', '.join(bad) or 'nothing'}", file=sys.stderr)
    return 1 if bad else 0


def profiled(program: str) -> list[dict[str, Any]] | None:
    """The sites that the recorded capture of a program shows, by place; None if there is none."""
    import lzma
    import shutil
    import tempfile

    import nsys_sync

    packed = CAPTURES / f"{program}.sqlite.xz"
    if not packed.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / f"{program}.sqlite"
        with lzma.open(packed) as source, trace.open("wb") as target:
            shutil.copyfileobj(source, target)
        report = json.loads(nsys_sync.analyze(trace).to_json())
    found: dict[str, dict[str, Any]] = {}
    for site in report["sites"]:
        where = place(site, f"{program}.py")
        row = found.setdefault(json.dumps(where), {"place": where, "calls_per_step": None, "apis": []})
        row["apis"] = sorted({*row["apis"], *site["apis"]})
        if site["calls_per_step"] is not None:
            row["calls_per_step"] = round((row["calls_per_step"] or 0) + site["calls_per_step"], 4)
    return list(found.values())


def add(out: Path) -> None:
    """Write sample_traces/watch.json: for each program its sites, and who sees them."""
    recorded = json.loads((out / "watch.json").read_text())
    rows = []
    for row in recorded["programs"]:
        known = profiled(row["name"])
        seen = {json.dumps(site["place"]): site for site in row.get("sites", [])}
        captured = {json.dumps(site["place"]): site for site in known or []}
        both = sorted(seen.keys() & captured.keys())
        rows.append(
            {
                "program": row["name"],
                "pytorch": row.get("pytorch"),
                "exit": row["exit"],
                "steps": row.get("steps"),
                "profiled": None if known is None else len(captured),
                "both": [json.loads(key) for key in both],
                "profile_only": [captured[key] for key in sorted(captured.keys() - seen.keys())],
                "watch_only": [seen[key] for key in sorted(seen.keys() - captured.keys())],
            }
        )
    checks = [{"name": row["name"], "wrong": row["wrong"]} for row in recorded["checks"]]
    TABLE.write_text(json.dumps({"programs": rows, "checks": checks}, indent=1) + "\n")
    print(f"{TABLE.relative_to(ROOT)} written")


def table() -> str:
    """The comparison as a Markdown table."""
    heads = ["program", "sites in the profile", "of them watched", "not watched", "watched, not in the profile"]
    lines = [f"| {' | '.join(heads)} |", "|---|--:|--:|---|---|"]
    for row in json.loads(TABLE.read_text())["programs"]:
        script = f"{row['program']}.py"
        missed = "; ".join(
            f"{shown(site['place'], script)} ({', '.join(site['apis'])})" for site in row["profile_only"]
        )
        loop = [site for site in row["watch_only"] if site["in_loop"]]
        rest = len(row["watch_only"]) - len(loop)
        more = [shown(site["place"], script) for site in loop] + ([f"{rest} outside the steps"] if rest else [])
        profiled_sites = "–" if row["profiled"] is None else str(row["profiled"])
        both = "–" if row["profiled"] is None else str(len(row["both"]))
        lines.append(f"| `{row['program']}` | {profiled_sites} | {both} | {missed or '–'} | {'; '.join(more) or '–'} |")
    return "\n".join(lines) + "\n"


def shown(where: list[Any], script: str) -> str:
    """A place in a program as people read it."""
    line, file, function = where
    leaf = "" if file == script else f"`{file}` {function}" if file else f"`{function}`" if function else ""
    return " in ".join(filter(None, [f"line {line}" if line else "", leaf])) or "no stack"


def main() -> int:
    """Parse, run, return the exit code."""
    parser = argparse.ArgumentParser(description="Hold watch against profile.")
    parser.add_argument("mode", choices=("record", "add"))
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="only these programs")
    chosen = parser.parse_args()
    if chosen.mode == "record":
        return record(chosen.out.absolute(), chosen.only)
    add(chosen.out.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())
