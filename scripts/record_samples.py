"""Records on a GPU machine what the project shows: captures of unedited programs, of ranks, and what capturing costs.

    python scripts/record_samples.py samples  --out FOLDER    one capture of each program, and what was found in it
    python scripts/record_samples.py ranks    --out FOLDER    two GPUs: one report for both ranks, and one for each
    python scripts/record_samples.py overhead --out FOLDER    step times without nsys, with it, and with our options
    python scripts/record_samples.py old-nsys --out FOLDER --nsys PATH    a report of an old nsys, and its export
    python scripts/record_samples.py probe    --out FOLDER    how this nsys behaves where the launcher depends on it

    python scripts/record_samples.py add      --out FOLDER    take FOLDER/pack/overhead.json into sample_traces/

Everything runs in an environment of few variables, traces are scrubbed, and the report is masked (mask_report.py). The
last thing printed is a table as JSON; it and the traces are in FOLDER/MODE.tar.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "sample_traces/programs"
OVERHEAD = ROOT / "sample_traces/overhead.json"
OURS = [sys.executable, "-m", "nsys_sync.cli", "profile"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

#: Variables that the programs need, by name or beginning; all others stay behind.
KEPT = {"PATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV"}
KEPT_BEGINNINGS = ("CUDA_", "NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_")
LIMIT_S = 150
#: What the recorded files call this checkout.
RENAMED = (str(ROOT), "/workspace")


@dataclass(frozen=True)
class Sample:
    """A program and how it is captured."""

    program: str
    options: tuple[str, ...] = ()


SAMPLES = (
    Sample("plain_loop"),
    Sample("hf_trainer"),
    Sample("lightning_fit"),
    Sample("resnet_amp"),
    Sample("compiled"),
    Sample("generate", ("--capture", "time:3:2")),
    Sample("cupy_loop"),
    Sample("jax_train"),
)


def environment(home: Path) -> dict[str, str]:
    """The few variables that the recorded programs see."""
    kept = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith(KEPT_BEGINNINGS)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # JAX would take most of the GPU's memory, and nothing may be fetched.
    own = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "HF_HUB_OFFLINE": "1"}
    return {**kept, **own, "PYTHONPATH": path, "HOME": str(home)}


class Recorder:
    """Runs command lines in the out folder, keeps their output beside the traces, packs what is to be kept."""

    def __init__(self, out: Path, nsys: str | None) -> None:
        self.out = out.absolute()
        self.pack = self.out / "pack"
        self.pack.mkdir(parents=True, exist_ok=True)
        self.nsys = nsys
        (self.out / "home").mkdir(exist_ok=True)

    def run(self, name: str, command: list[str]) -> tuple[int, str, float]:
        """Exit code, output and seconds of a command; both its streams are kept as NAME.log."""
        began = time.monotonic()
        log = self.out / f"{name}.log"
        with log.open("wb") as file:
            try:
                done = subprocess.run(
                    command,
                    cwd=self.out,
                    env=environment(self.out / "home"),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=LIMIT_S,
                    check=False,
                )
                code = done.returncode
            except subprocess.TimeoutExpired:
                code = -1
        text = log.read_text("utf-8", "replace")
        seconds = round(time.monotonic() - began, 1)
        print(f"{name}: exit {code} after {seconds} s", file=sys.stderr, flush=True)
        if code != 0:
            print(text[-3000:], file=sys.stderr, flush=True)
        return code, text, seconds

    def profile(self, name: str, options: list[str], program: list[str]) -> tuple[int, str, float]:
        """Run a program under nsys-sync; its files are called NAME."""
        chosen = ["--nsys", self.nsys] if self.nsys else []
        return self.run(name, [*OURS, *chosen, "--force", "-o", str(self.out / name), *options, *program])

    def keep(self, name: str) -> int | None:
        """Pack the scrubbed trace NAME; its size in bytes, None if there is none."""
        from nsys_sync.scrub import scrub

        source, target = self.out / f"{name}.sqlite", self.pack / f"{name}.sqlite.xz"
        if not source.exists():
            return None
        scrub(source, target, map_paths=[RENAMED], force=True)
        return target.stat().st_size

    def finish(self, mode: str, table: Any) -> None:
        """Print the table and pack everything."""
        text = json.dumps(table, indent=1)
        (self.pack / f"{mode}.json").write_text(text + "\n")
        with tarfile.open(self.out / f"{mode}.tar", "w") as tar:
            tar.add(self.pack, arcname=mode)
        print(text)


def expected_lines(program: Path) -> set[int]:
    """Lines of a program that say that they wait."""
    return {n for n, line in enumerate(program.read_text().splitlines(), 1) if line.rstrip().endswith("# sync")}


def found_in(found: dict[str, Any], program: Path) -> dict[str, Any]:
    """What a report (as its JSON has it) says about a program: the table's row."""
    lines: dict[int, int] = {}
    for site in found["sites"]:
        if site["file"] and Path(site["file"]).name == program.name and site["line"]:
            lines[site["line"]] = lines.get(site["line"], 0) + site["events"]
    expected = expected_lines(program)
    capture, totals = found["trace"]["capture"], found["totals"]
    return {
        "range": capture["range"],
        "steps_run": capture["steps_run"],
        "steps": [[steps["count"], steps["median_ns"]] for steps in found["steps"]],
        "slowdown": capture["slowdown"],
        "syncs": totals["sync_events"],
        "at_lines": {str(line): events for line, events in sorted(lines.items())},
        "missing_lines": sorted(expected - lines.keys()),
        "other_lines": sorted(lines.keys() - expected),
        "python_frames": found["trace"]["python_frames"],
        "headline": found["headline"]["text"],
        "warnings": [warning["slug"] for warning in found["trace"]["warnings"]],
    }


def record_samples(recorder: Recorder, only: list[str]) -> None:
    """One capture of each program."""
    table = []
    for sample in SAMPLES:
        if only and sample.program not in only:
            continue
        program = PROGRAMS / f"{sample.program}.py"
        code, text, seconds = recorder.profile(sample.program, list(sample.options), [str(program)])
        row: dict[str, Any] = {"program": sample.program, "options": list(sample.options), "exit": code, "s": seconds}
        report = recorder.out / f"{sample.program}.json"
        if report.exists():
            row |= found_in(json.loads(report.read_text()), program)
            row["trace_bytes"] = recorder.keep(sample.program)
        else:
            row["said"] = text[-1500:]
        table.append(row)
    recorder.finish("samples", table)


def record_ranks(recorder: Recorder) -> None:
    """Two ranks: in one report, and in one each."""
    program = PROGRAMS / "ddp.py"
    table = []
    recorder.profile("ddp-both", [], ["--", *TORCHRUN, str(program)])
    each = [*OURS, "--force", "-o", str(recorder.out / "ddp-rank{rank}"), str(program)]
    recorder.run("ddp-each", [*TORCHRUN, "--no-python", *each])
    recorder.run("ddp-one", [*TORCHRUN, "--no-python", *each[:-2], "ddp-only{rank}", "--only-ranks", "1", str(program)])
    for name in ("ddp-both", "ddp-rank0", "ddp-rank1", "ddp-only1"):
        report = recorder.out / f"{name}.json"
        row: dict[str, Any] = {"trace": name}
        if report.exists():
            ranks = [process["rank"] for process in json.loads(report.read_text())["trace"]["processes"]]
            row |= {
                "ranks": ranks,
                **found_in(json.loads(report.read_text()), program),
                "trace_bytes": recorder.keep(name),
            }
        table.append(row)
    table.append({"trace": "ddp-only0", "written": (recorder.out / "ddp-only0.json").exists()})
    recorder.finish("ranks", table)


def record_overhead(recorder: Recorder, rounds: int, seconds: float, only: list[str]) -> None:
    """Step times of one program in turn without nsys, with it alone, with ours, and with what guides recommend.

    No round is begun that would end after so many seconds, judged by the longest so far.
    """
    program = str(PROGRAMS / "overhead.py")
    nsys = recorder.nsys or shutil.which("nsys") or "nsys"
    traced = [nsys, "profile", "--force-overwrite=true", "--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    traced += [f"--output={recorder.out / 'overhead-raw'}", "--trace=cuda,nvtx", "--cpuctxsw=none"]
    ours = [
        *OURS,
        *(["--nsys", nsys]),
        "--force",
        "--no-html",
        "-o",
        str(recorder.out / "overhead"),
        "--capture",
        "script",
    ]
    variants = {
        "plain": [sys.executable, program],
        "tracing only": [*traced, "--sample=none", sys.executable, program],
        "nsys-sync": [*ours, program],
        "nsys-sync --backtrace all": [*ours, "--backtrace", "all", program],
        "guides": [*traced, "--python-sampling=true", "--backtrace=dwarf", sys.executable, program],
    }
    variants = {name: command for name, command in variants.items() if not only or name in only}
    found: list[dict[str, Any]] = []
    began, longest = time.monotonic(), 0.0
    for number in range(rounds):
        round_began = time.monotonic()
        if round_began - began + longest > seconds:
            break
        times = {}
        for name, command in variants.items():
            _, text, _ = recorder.run(f"overhead-{name.replace(' ', '-')}-{number}", command)
            line = next((line for line in text.splitlines() if line.startswith('{"host_bound_ms"')), None)
            if line is not None:
                times[name] = json.loads(line)
        found.append(times)
        longest = max(longest, time.monotonic() - round_began)
    recorder.finish("overhead", {"rounds": found})


def add_overhead(recorded: Path) -> None:
    """Add the rounds of another recording to those that the documents show."""
    kept = json.loads(OVERHEAD.read_text())
    kept["rounds"] += json.loads(recorded.read_text())["rounds"]
    OVERHEAD.write_text(json.dumps(kept, indent=1) + "\n")


def record_old(recorder: Recorder) -> None:
    """A report of an old nsys with CUDA and Python backtraces in it, masked, and its export, scrubbed."""
    from scripts.mask_report import mask_file

    program = PROGRAMS / "plain_loop.py"
    code, text, seconds = recorder.profile("cuda-2023.4", ["--capture", "steps:10:5"], [str(program)])
    row: dict[str, Any] = {"exit": code, "s": seconds, "said": text[-800:]}
    made = recorder.out / "cuda-2023.4.nsys-rep"
    trace_bytes = recorder.keep("cuda-2023.4")
    if made.exists() and trace_bytes is not None:
        packed = recorder.pack / "cuda-2023.4.nsys-rep.xz"
        mask_file(made, recorder.pack / "cuda-2023.4.sqlite.xz", packed, [RENAMED])
        row |= {"bytes": packed.stat().st_size, "trace_bytes": trace_bytes}
    report = recorder.out / "cuda-2023.4.json"
    if report.exists():
        row |= found_in(json.loads(report.read_text()), program)
    recorder.finish("old-nsys", row)


def probe(recorder: Recorder) -> None:
    """Answers that the launcher's code relies on, for the nsys of this machine."""
    nsys = recorder.nsys or shutil.which("nsys") or "nsys"
    base = [nsys, "profile", "--force-overwrite=true", f"--output={recorder.out / 'probe'}", "--trace=cuda,nvtx"]
    waiting = [*base, "--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    python = [sys.executable, "-c", "print('alive')"]
    sampled = ["--python-sampling=true", "--python-backtrace=cuda", "--cudabacktrace=sync:0"]
    _, version, _ = recorder.run("version", [nsys, "--version"])
    never, _, _ = recorder.run("never-started-sampled", [*waiting, *sampled, *python])
    unsampled, _, _ = recorder.run("never-started", [*waiting, *sampled[1:], *python])
    through = "if { true >&8; } 2>/dev/null; then echo passed; else echo closed; fi"
    _, passed, _ = recorder.run("descriptors", ["sh", "-c", 'exec "$@" 8>&1', "sh", *base, "sh", "-c", through])
    _, help_text, _ = recorder.run("help", [nsys, "profile", "--help"])
    code, said, _ = recorder.profile("probe-marks", ["--capture", "all"], [str(PROGRAMS / "plain_loop.py")])
    report = recorder.out / "probe-marks.json"
    table = {
        "version": version.strip(),
        "exit_never_started_with_sampling": never,
        "exit_never_started_without": unsampled,
        "descriptors": "passed" if "passed" in passed else "closed",
        "options": sorted(set(re.findall(r"--[a-z][\w-]+(?==|\[)", help_text))),
        "all_exit": code,
        "all_steps": [steps["count"] for steps in json.loads(report.read_text())["steps"]]
        if report.exists()
        else said[-800:],
    }
    recorder.finish("probe", table)


def main() -> None:
    """Record what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["samples", "ranks", "overhead", "old-nsys", "probe", "add"])
    parser.add_argument("only", nargs="*", help="samples: only these programs; overhead: only these kinds")
    parser.add_argument("--out", type=Path, required=True, help="folder for everything that is made")
    parser.add_argument("--nsys", help="the nsys to use (default: the launcher's choice)")
    parser.add_argument("--rounds", type=int, default=6, help="overhead: captures of each kind (default: 6)")
    parser.add_argument("--seconds", type=float, default=540, help="overhead: begin no round that would end later")
    chosen = parser.parse_args()
    if chosen.mode == "add":
        add_overhead(chosen.out / "pack/overhead.json")
        return
    sys.path.insert(0, str(ROOT))
    recorder = Recorder(chosen.out, chosen.nsys)
    modes: dict[str, Callable[[], None]] = {
        "samples": lambda: record_samples(recorder, chosen.only),
        "ranks": lambda: record_ranks(recorder),
        "overhead": lambda: record_overhead(recorder, chosen.rounds, chosen.seconds, chosen.only),
        "old-nsys": lambda: record_old(recorder),
        "probe": lambda: probe(recorder),
    }
    modes[chosen.mode]()


if __name__ == "__main__":
    main()
