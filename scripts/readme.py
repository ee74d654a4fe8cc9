"""Fill the generated blocks of the documents, so that what they show is what the program prints.

    python scripts/readme.py            rewrite them
    python scripts/readme.py --check    change nothing, exit 1 and name the stale ones

A block begins with a line ``<!-- output: COMMAND -->`` and ends with ``<!-- end -->``. COMMAND is a command line of
nsys-sync, run as a pipe of 100 columns; what it prints becomes a code block. It runs in a folder where the repository's
files are, and what it writes there is thrown away; that folder is shown as ``/home/me/nsys-sync``.
``<!-- table: NAME -->`` is a table of what lies in sample_traces/: ``traces``, ``captures``, ``overhead`` or ``watch``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "sample_traces/README.md", "docs/*.md"]
BLOCK = re.compile(
    r"(?P<head><!-- (?P<kind>output|table): (?P<what>[^\n]+?) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL
)


def output(command: str) -> str:
    """What the command prints, as a code block that begins with the command. Raises RuntimeError when it fails."""
    program, *arguments = shlex.split(command)
    if program != "nsys-sync":
        raise RuntimeError(f"only nsys-sync is run here, not {program}")
    with tempfile.TemporaryDirectory() as folder:
        for entry in ROOT.iterdir():
            if not entry.name.startswith("."):
                (Path(folder) / entry.name).symlink_to(entry)
        done = run([str(Path(sys.executable).parent / program), *arguments], folder)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"`{command}` exits with {done.returncode}: {done.stderr.strip()}")
    text = done.stdout.replace(folder, "/home/me/nsys-sync")
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "```console\n" + "\n".join([f"$ {command}", *lines]) + "\n```\n"


def run(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    """Run a command there, as a pipe of 100 columns without colour."""
    environment = {
        "PATH": os.environ["PATH"],
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
        "HOME": folder,
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def ms(nanoseconds: int) -> str:
    """Milliseconds with two decimals."""
    return f"{nanoseconds / 1e6:.2f}"


def traces() -> str:
    """Three numbers for each recorded trace, and its longest-waiting line."""
    known = json.loads((ROOT / "sample_traces/expected.json").read_text())
    rows = ["| trace | sync events | idle, ms | recoverable, ms | waits longest at |", "|---|--:|--:|--:|---|"]
    for name, values in sorted(known.items()):
        idle = sum(device["idle_ns"] for device in values["devices"].values())
        site, worst = max(values["sites"].items(), key=lambda item: item[1]["wait_ns"])
        place = site.removeprefix("?:")
        rows.append(
            f"| `{name}` | {values['sync_events']} | {ms(idle)} | {ms(values['recoverable_all_ns'])} "
            f"| `{place}` ({ms(worst['wait_ns'])} ms) |"
        )
    return "\n".join(rows) + "\n"


def captures() -> str:
    """What ``profile`` found in each recorded program, against the lines that the program marks."""
    heads = ["program", "captured with", "range", "steps", "syncs", "marked lines found", "not marked", "slowdown"]
    rows = [f"| {' | '.join(heads)} |", "|---|---|---|--:|--:|---|---|--:|"]
    for row in json.loads((ROOT / "sample_traces/captures.json").read_text()):
        trace = row["trace"]
        name = f"[`{trace}`](captures/{trace}.sqlite.xz)" if trace else f"`{row['program']}`"
        how = f"`{' '.join(row['options'])}`" if row["options"] else "defaults"
        if row["nsys"] != "2025.3.1":
            how += f", nsys {row['nsys']}"
        if "failed" in row:
            rows.append(f"| {name} | {how} | failed: {row['failed']} | | | | | |")
            continue
        slowdown = row["slowdown"]
        cells = [
            name,
            how,
            f"`{row['range']}`",
            " + ".join(str(count) for count, _ in row["steps"]) or "–",
            str(row["syncs"]),
            lines_found(row),
            not_marked(row),
            "–" if slowdown is None else f"{slowdown['ratio']:.2f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def lines_found(row: dict[str, Any]) -> str:
    """The marked lines that a capture has syncs at, of all that are marked."""
    found = [int(line) for line in row["at_lines"] if int(line) not in row["other_lines"]]
    text = f"{len(found)} of {len(found) + len(row['missing_lines'])}: {', '.join(map(str, found))}"
    return text + (f" (not {', '.join(map(str, row['missing_lines']))})" if row["missing_lines"] else "")


def not_marked(row: dict[str, Any]) -> str:
    """Syncs at other lines of the program, and those at none of it."""
    parts = [f"line {line}: {row['at_lines'][str(line)]}" for line in row["other_lines"]]
    elsewhere = row["syncs"] - sum(row["at_lines"].values())
    return "; ".join([*parts, *([f"no line: {elsewhere}"] if elsewhere else [])]) or "–"


def overhead() -> str:
    """Step times under each way of profiling, as ratios within a round."""
    rounds = json.loads((ROOT / "sample_traces/overhead.json").read_text())["rounds"]
    heads = ["profiled with", "rounds", "host-bound, to plain", "host-bound, to tracing only", "GPU-bound, to plain"]
    rows = [f"| {' | '.join(heads)} |", "|---|--:|---|---|---|"]
    for name, shown in WAYS.items():
        measured = [times for times in rounds if name in times]
        ratios = [
            spread([times[name][kind] / times[base][kind] for times in measured])
            for kind, base in (
                ("host_bound_ms", "plain"),
                ("host_bound_ms", "tracing only"),
                ("gpu_bound_ms", "plain"),
            )
        ]
        rows.append(f"| {shown} | {len(measured)} | {' | '.join(ratios)} |")
    return "\n".join(rows) + "\n"


#: What overhead.json calls the ways of profiling, and what a reader does.
WAYS = {
    "plain": "nothing",
    "tracing only": "`nsys profile --trace=cuda,nvtx --sample=none`",
    "nsys-sync": "`nsys-sync profile`",
    "nsys-sync --backtrace all": "`nsys-sync profile --backtrace all`",
    "guides": "`nsys profile --python-sampling=true --backtrace=dwarf`",
}


def spread(values: list[float]) -> str:
    """Median of ratios; where they differ also the range, and in how many rounds they are above 1."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    if low == high:
        return low
    slower = sum(value > 1 for value in values)
    return f"{statistics.median(values):.2f} ({low}–{high}; slower in {slower} of {len(values)})"


def watch() -> str:
    """What ``watch`` sees of the sites that ``profile`` found."""
    sys.path.insert(0, str(ROOT))
    from scripts.watch_table import table

    return table()


TABLES = {"traces": traces, "captures": captures, "overhead": overhead, "watch": watch}


def filled(text: str) -> str:
    """The document with every block made anew."""

    def fill(block: re.Match[str]) -> str:
        made = output(block["what"]) if block["kind"] == "output" else TABLES[block["what"]]()
        return block["head"] + made + block["end"]

    return BLOCK.sub(fill, text)


def main() -> int:
    """Rewrite or check, return the exit code."""
    parser = argparse.ArgumentParser(description="Fill the generated blocks of the documents.")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if a block is stale")
    check = parser.parse_args().check
    stale = 0
    for path in sorted(path for pattern in DOCUMENTS for path in ROOT.glob(pattern)):
        old = path.read_text()
        new = filled(old)
        if new == old:
            continue
        if check:
            stale += 1
            print(f"{path.relative_to(ROOT)} is stale; run: python scripts/readme.py")
        else:
            path.write_text(new)
            print(f"{path.relative_to(ROOT)} rewritten")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
