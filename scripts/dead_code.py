"""Fail on code that nothing uses.

Vulture finds it. Fields of structs and dataclasses are left out: they are the JSON contract and the tables' columns,
read by name from outside. scripts/dead_code.toml lists what else may look unused, each name with its reason; a name
that has gone must leave that list.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parent.parent


def field_lines(path: Path) -> set[int]:
    """Lines of annotated names in class bodies."""
    return {
        statement.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }


def unused(package: Path) -> list[tuple[str, Path, int, str]]:
    """(name, file, line, kind) of everything below package that nothing below it refers to."""
    finder = Vulture(ignore_decorators=["@app.command", "@app.callback"])
    finder.scavenge([package])
    return [
        (item.name, Path(item.filename), item.first_lineno, item.typ)
        for item in finder.get_unused_code(min_confidence=60)
        if not (item.typ == "variable" and item.first_lineno in field_lines(Path(item.filename)))
    ]


def main() -> int:
    """Print what is wrong, return the exit code."""
    allowed = tomllib.loads((ROOT / "scripts/dead_code.toml").read_text())
    found = unused(ROOT / "nsys_sync")
    dead = [entry for entry in found if entry[0] not in allowed]
    for name, path, line, kind in dead:
        print(f"{path.relative_to(ROOT)}:{line}: unused {kind} {name}")
    gone = sorted(set(allowed) - {name for name, *_ in found})
    for name in gone:
        print(f"scripts/dead_code.toml: {name} is used, or gone: take it off the list")
    return 1 if dead or gone else 0


if __name__ == "__main__":
    sys.exit(main())
