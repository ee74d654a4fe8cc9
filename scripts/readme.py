"""Fill the generated blocks of the documents, so that what they show is what the program prints.

    python scripts/readme.py            rewrite them
    python scripts/readme.py --check    change nothing, exit 1 and name the stale ones

A block begins with a line ``<!-- output: COMMAND -->`` and ends with ``<!-- end -->``. COMMAND is a command line of
nsys-sync, run as a pipe of 100 columns; what it prints becomes a code block. It runs in a folder where the repository's
files are, and what it writes there is thrown away; that folder is shown as ``/home/me/nsys-sync``.
``<!-- table: traces -->`` is the table of sample_traces/.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

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


def filled(text: str) -> str:
    """The document with every block made anew."""

    def fill(block: re.Match[str]) -> str:
        made = output(block["what"]) if block["kind"] == "output" else {"traces": traces}[block["what"]]()
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
