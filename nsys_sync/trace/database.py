"""A read-only SQLite database: its tables and columns by presence, small results as rows, large ones as columns."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np

from nsys_sync.errors import InputError
from nsys_sync.trace import arrow
from nsys_sync.trace.tables import Column

_VERSIONED = re.compile(r"^(?P<base>.+)_V\d+$")

#: No time (ns, either side of zero) lies beyond, so that differences fit into 64 bits.
LATEST = 1 << 61
#: Rows that can be: in order, written at all, and at such times.
SANE = f'"end" >= start AND NOT (start = 0 AND "end" = 0) AND start > -{LATEST} AND "end" < {LATEST}'


class Database:
    """An export, opened so that nothing beside or in it can change (``immutable``).

    Table names are looked up without their ``_V2``-like suffix; of several the plain one wins. Every failure of
    SQLite is an InputError that names ``shown``.
    """

    def __init__(self, path: Path, shown: Path) -> None:
        self._uri = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro&immutable=1"
        self._shown = shown
        with self.reading():
            self._rows = sqlite3.connect(self._uri, uri=True)
            self._rows.text_factory = lambda raw: raw.decode("utf-8", "replace")
            try:
                self._tables = self._find_tables()
            except sqlite3.Error:
                self._rows.close()
                raise

    def close(self) -> None:
        """Close the database; nothing can be read afterwards."""
        self._rows.close()

    def table(self, name: str) -> str | None:
        """The quoted real name of a table, None if the export lacks it."""
        found = self._tables.get(name)
        return None if found is None else f'"{found[0]}"'

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there with all these columns."""
        found = self._tables.get(table)
        return found is not None and all(column in found[1] for column in columns)

    @property
    def tables(self) -> frozenset[str]:
        """All table names, without version suffixes."""
        return frozenset(self._tables)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """All rows of a small result."""
        with self.reading():
            return self._rows.execute(sql, parameters).fetchall()

    def listed(self, table: str, *columns: str) -> list[tuple[object, ...]]:
        """Rows of a small table in which all these columns are filled; none if the export lacks one of them.

        In an order of their own, so that of rows which contradict each other the same one is believed in every file.
        """
        if not self.has(table, *columns):
            return []
        names = ", ".join(f'"{column}"' for column in columns)
        filled = " AND ".join(f'"{column}" IS NOT NULL' for column in columns)
        return sorted(self.rows(f"SELECT {names} FROM {self.table(table)} WHERE {filled}"), key=repr)

    def strings(self, ids: Sequence[int] | Column) -> dict[int, str]:
        """Values of StringIds by id; ids that are not there are left out."""
        found: dict[int, str] = {}
        table = self.table("StringIds")
        if table is None:
            return found
        wanted = [int(i) for i in ids]
        for at in range(0, len(wanted), 900):
            part = wanted[at : at + 900]
            marks = ",".join("?" * len(part))
            for key, value in self.rows(f"SELECT id, value FROM {table} WHERE id IN ({marks})", part):
                found[int(str(key))] = str(value)
        return found

    def columns(self, table: str, expressions: Sequence[str], where: str = "") -> list[Column]:
        """One int64 column for each name or SQL expression, in the table's own order.

        NULL becomes -1; a column that this export lacks is all -1.
        """
        name = self.table(table)
        if name is None:
            return [np.empty(0, dtype=np.int64) for _ in expressions]
        known = self._tables[table][1]
        terms = []
        for expression in expressions:
            if expression.isidentifier():
                terms.append(f'"{expression}"' if expression in known else "-1")
            else:
                terms.append(expression)
        sql = f"SELECT {', '.join(terms)} FROM {name}" + (f" WHERE {where}" if where else "")
        with self.reading():
            return arrow.fetch(self._uri, sql, len(terms))

    def _find_tables(self) -> dict[str, tuple[str, frozenset[str]]]:
        found: dict[str, tuple[str, frozenset[str]]] = {}
        names = self._rows.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY length(name) DESC, name"
        )
        for (name,) in names.fetchall():
            versioned = _VERSIONED.match(name)
            quoted = name.replace('"', '""')
            columns = frozenset(row[1] for row in self._rows.execute(f'PRAGMA table_xinfo("{quoted}")'))
            found[versioned["base"] if versioned else name] = (quoted, columns)
        return found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around everything that takes values apart: what does not fit is an InputError."""
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, OverflowError, OSError, MemoryError) as error:
            raise self._damaged(error) from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] == "adbc_driver_manager":
                raise self._damaged(error) from None
            raise

    def _damaged(self, error: Exception) -> InputError:
        # Python's own words would quote the value, and nothing of the environment may be quoted.
        own = isinstance(error, (ValueError, TypeError, OverflowError)) or not str(error)
        reason = "a value is not of its column's kind" if own else str(error).splitlines()[0][:200]
        if isinstance(error, MemoryError):
            # A length that is damaged can ask for any amount.
            reason = "a value is longer than memory can hold"
        return InputError(
            "damaged-trace",
            f"{self._shown} is damaged: {reason}.",
            "Copy it again, or export the report again: nsys-sync export REPORT.nsys-rep",
        )
