"""How long a report on a large trace takes, and how much memory, against reading the same columns in plain Python.

    scripts/bench                    130 copies of gpt_train-fix0 in a row, 5 rounds
    scripts/bench --json             the same as JSON
    scripts/bench --check            exit 1 if the report is slower than fetchall or takes more than 600 MiB

The large trace is made once and kept in the cache folder. Each round runs every contender once, in turn, each in a
process of its own, after one round that is not counted; times are of whole processes. Ratios are the medians over the
rounds of each round's own ratio, so that a machine that is busy for a while does not favour anyone.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import lzma
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nsys-sync/bench"
SAMPLE = ROOT / "sample_traces/gpt_train-fix0.sqlite.xz"

MAX_RATIO = 1.0
MAX_MIB = 600

#: Idle time between two copies of the recording (ns).
PAUSE = 20_000_000

#: Columns that move with a copy: times by the recording's length, correlation ids by their range.
TIMES = ("start", "end")
IDS = ("correlationId",)

#: Rows that are events; the other tables and NVTX rows describe threads, domains and names once for all copies.
EVENTS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": "1",
    "CUPTI_ACTIVITY_KIND_KERNEL": "1",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "1",
    "CUPTI_ACTIVITY_KIND_MEMSET": "1",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "1",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "1",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "1",
    "NVTX_EVENTS": "eventType IN (34, 59, 60)",
    "COMPOSITE_EVENTS": "1",
    "SCHED_EVENTS": "1",
    "PROFILER_OVERHEAD": "1",
    "OSRT_API": "1",
}

#: What a report cannot do without: the columns that plain Python fetches.
NEEDED = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": ["start", "end", "globalTid", "correlationId", "nameId", "eventClass"],
    "CUPTI_ACTIVITY_KIND_KERNEL": [
        "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "shortName",
    ],
    "CUPTI_ACTIVITY_KIND_MEMCPY": [
        "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "srcKind", "dstKind",
        "bytes",
    ],
    "CUPTI_ACTIVITY_KIND_MEMSET": ["start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid"],
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ["deviceId", "contextId", "streamId", "correlationId", "globalPid"],
    "NVTX_EVENTS": ["start", "end", "eventType", "globalTid", "textId"],
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One process: wall and CPU time (s) and the largest resident memory (MiB)."""

    wall: float
    cpu: float
    peak_mib: float


@dataclass(frozen=True)
class Result:
    """One contender over all rounds.

    Medians of wall and CPU time (s), of their ratios to the first contender's in the same round, and the largest
    resident memory of any round (MiB).
    """

    name: str
    wall: float
    wall_least: float
    wall_most: float
    cpu: float
    wall_ratio: float
    cpu_ratio: float
    peak_mib: float


def columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Column names of a table, none if it is not there."""
    return [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]


def shifted(column: str, span: int, ids: int) -> str:
    """SQL for a column of the k-th copy."""
    quoted = f'"{column}"'
    if column in TIMES:
        return f"{quoted} + k.k * {span}"
    return f"{quoted} + k.k * {ids}" if column in IDS else quoted


def multiply(connection: sqlite3.Connection, copies: int) -> None:
    """Append copies - 1 copies of every event, each later than all before and with correlation ids of its own."""
    tables = {table: found for table in EVENTS if (found := columns(connection, table))}

    def extreme(what: str, column: str) -> int:
        having = [table for table in tables if column in tables[table]]
        every = " UNION ALL ".join(
            f'SELECT {what}("{column}") v FROM {table} WHERE {EVENTS[table]}' for table in having
        )
        (value,) = connection.execute(f"SELECT {what}(v) FROM ({every})").fetchone()
        return int(value)

    span = extreme("max", "end") - extreme("min", "start") + PAUSE
    ids = extreme("max", "correlationId") + 1
    for table, names in tables.items():
        quoted = ", ".join(f'"{name}"' for name in names if name != "id")
        values = ", ".join(shifted(name, span, ids) for name in names if name != "id")
        connection.execute(
            f"WITH RECURSIVE k(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM k WHERE k < {copies - 1}) "
            f"INSERT INTO {table} ({quoted}) SELECT {values} FROM k CROSS JOIN {table} WHERE {EVENTS[table]} "
            f"AND {table}.rowid <= (SELECT max(rowid) FROM {table})"
        )
    connection.commit()


def big_trace(copies: int) -> Path:
    """Path of the large trace; made if it is not in the cache."""
    packed = SAMPLE.read_bytes()
    recipe = repr((EVENTS, TIMES, IDS, PAUSE)) + inspect.getsource(multiply) + inspect.getsource(shifted)
    digest = hashlib.sha256(packed + recipe.encode()).hexdigest()[:12]
    path = CACHE / f"gpt_train-x{copies}-{digest}.sqlite"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob(f"gpt_train-x{copies}-*.sqlite"):
            old.unlink()
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            part = Path(folder) / "part.sqlite"
            part.write_bytes(lzma.decompress(packed))
            if copies > 1:
                with closing(sqlite3.connect(part)) as connection:
                    connection.execute("PRAGMA journal_mode = OFF")
                    multiply(connection, copies)
            part.chmod(0o444)
            part.rename(path)
    return path


def sizes(path: Path) -> dict[str, int]:
    """Rows of the event tables."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in EVENTS
            if columns(connection, table)
        }


def fetch_all(path: Path) -> None:
    """Read what a report needs the plain way."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        kept = []
        for table, names in NEEDED.items():
            there = [name for name in names if name in columns(connection, table)]
            if there:
                listed = ", ".join(f'"{name}"' for name in there)
                kept.append(connection.execute(f"SELECT {listed} FROM {table}").fetchall())


def measured(command: list[str]) -> Run:
    """What a process costs. Raises RuntimeError when it fails."""
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command)} exits with {process.returncode}: {errors.read().decode()}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def summary(name: str, runs: list[Run], first: list[Run]) -> Result:
    """A contender's rounds beside those of the first."""
    rounds = list(zip(runs, first, strict=True))
    return Result(
        name=name,
        wall=statistics.median(run.wall for run in runs),
        wall_least=min(run.wall for run in runs),
        wall_most=max(run.wall for run in runs),
        cpu=statistics.median(run.cpu for run in runs),
        wall_ratio=statistics.median(run.wall / other.wall for run, other in rounds),
        cpu_ratio=statistics.median(run.cpu / other.cpu for run, other in rounds),
        peak_mib=max(run.peak_mib for run in runs),
    )


def race(contenders: dict[str, list[str]], rounds: int) -> list[Result]:
    """Run all in turn, rounds times, after a round that only warms the page cache."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, command in contenders.items():
            run = measured(command)
            if number:
                runs[name].append(run)
    first = next(iter(runs.values()))
    return [summary(name, taken, first) for name, taken in runs.items()]


def table(results: list[Result]) -> str:
    """The results as a Markdown table."""
    lines = ["| | wall, s | range, s | ratio | CPU, s | ratio | peak, MiB |", "|---|--:|--:|--:|--:|--:|--:|"]
    lines += [
        f"| {r.name} | {r.wall:.2f} | {r.wall_least:.2f}–{r.wall_most:.2f} | {r.wall_ratio:.2f} "
        f"| {r.cpu:.2f} | {r.cpu_ratio:.2f} | {r.peak_mib:.0f} |"
        for r in results
    ]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure nsys-sync report on a large trace.")
    parser.add_argument("--copies", type=int, default=130, help="length of the trace in recordings (default: 130)")
    parser.add_argument("--rounds", type=int, default=5, help="counted runs of each contender (default: 5)")
    parser.add_argument("--html", action="store_true", help="also measure the report with its page")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help=f"exit 1 above ratio {MAX_RATIO} or {MAX_MIB} MiB")
    parser.add_argument("--make", action="store_true", help="only make the trace and print its path")
    parser.add_argument("--fetchall", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.copies < 1 or chosen.rounds < 1:
        parser.error("--copies and --rounds begin at 1")
    return chosen


def main() -> int:
    """Measure and print, return the exit code."""
    chosen = arguments()
    if chosen.fetchall:
        fetch_all(chosen.fetchall)
        return 0
    path = big_trace(chosen.copies)
    if chosen.make:
        print(path)
        return 0
    report = [str(Path(sys.executable).parent / "nsys-sync"), "report", str(path)]
    with tempfile.TemporaryDirectory() as folder:
        contenders = {
            "fetchall of the needed columns": [sys.executable, __file__, "--fetchall", str(path)],
            "nsys-sync report": report,
        }
        if chosen.html:
            contenders["nsys-sync report --html"] = [*report, "--html", f"{folder}/page.html", "--force"]
        results = race(contenders, chosen.rounds)
    ours = results[1]
    rows = sizes(path)
    machine = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "cores": os.cpu_count()}
    if chosen.json:
        values = {
            "trace": {"copies": chosen.copies, "bytes": path.stat().st_size, "rows": rows},
            "machine": machine,
            "rounds": chosen.rounds,
            "results": [asdict(result) for result in results],
        }
        print(json.dumps(values, indent=2))
    else:
        print(f"{path.stat().st_size / 1e6:.0f} MB, " + ", ".join(f"{count:,} {name}" for name, count in rows.items()))
        print(
            "Python {python}, SQLite {sqlite}, {cores} cores".format(**machine), f"{chosen.rounds} rounds\n", sep=", "
        )
        print(table(results))
    too_much = ours.wall_ratio > MAX_RATIO or ours.peak_mib > MAX_MIB
    if chosen.check and too_much:
        print(f"Too slow or too large: ratio {ours.wall_ratio:.2f}, {ours.peak_mib:.0f} MiB", file=sys.stderr)
    return int(chosen.check and too_much)


if __name__ == "__main__":
    sys.exit(main())
