"""Write the .sql files of this folder from real exports: python -m tests.builder_schema.extract TRACE...

Each file holds every CREATE TABLE that the exports of one schema version use, as they wrote it, and the rows of the
ENUM_ tables that a sync report can meet.
"""

from __future__ import annotations

import lzma
import sqlite3
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE = Path(__file__).parent

#: Enumerations whose rows are kept; of the others (graphics, network, OpenMP) only the table is.
FILLED = ("ENUM_CUDA_", "ENUM_CUPTI_", "ENUM_DIAGNOSTIC_", "ENUM_NSYS_EVENT_", "ENUM_SAMPLING_", "ENUM_STACK_")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A trace in memory, from .sqlite or .sqlite.xz."""
    data = path.read_bytes()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(lzma.decompress(data) if path.suffix == ".xz" else data)
        yield connection


def schema_version(connection: sqlite3.Connection) -> str:
    """EXPORT_SCHEMA_VERSION of an export."""
    query = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'"
    return str(connection.execute(query).fetchone()[0])


def tables(connection: sqlite3.Connection) -> dict[str, str]:
    """CREATE TABLE text by table name."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    return dict(connection.execute(query))


def collect(paths: Iterable[Path]) -> dict[str, tuple[dict[str, str], dict[str, list[tuple[object, ...]]]]]:
    """Tables and enumeration rows by schema version; two texts for one table of one version are an error."""
    found: dict[str, tuple[dict[str, str], dict[str, list[tuple[object, ...]]]]] = {}
    for path in paths:
        with opened(path) as connection:
            texts, enums = found.setdefault(schema_version(connection), ({}, {}))
            for name, text in tables(connection).items():
                if texts.setdefault(name, text) != text:
                    raise SystemExit(f"{path}: {name} differs from another export of the same schema version")
                if name.startswith(FILLED):
                    enums[name] = connection.execute(f'SELECT * FROM "{name}" ORDER BY id').fetchall()
    return found


def quoted(value: object) -> str:
    """An integer, a text or NULL as SQL."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def main() -> None:
    """Write one file a schema version and say so."""
    for version, (texts, enums) in collect(Path(argument) for argument in sys.argv[1:]).items():
        lines = [f"{texts[name]};" for name in sorted(texts)]
        for name in sorted(enums):
            rows = ",\n".join("  (" + ", ".join(quoted(value) for value in row) + ")" for row in enums[name])
            if rows:
                lines.append(f"INSERT INTO {name} VALUES\n{rows};")
        target = HERE / f"{version}.sql"
        target.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
        print(f"{target}: {len(texts)} tables")


if __name__ == "__main__":
    main()
