"""A copy of an export that holds what a report shows and nothing else.

Everything is left behind unless a rule (``trace.harmless``) names it: tables and columns of text by name, numbers in
the kept tables, strings only where a kept column refers to them. Texts that are kept are cleaned (``trace.private``).
The copy is a new database, so nothing deleted is in its pages.
"""

from __future__ import annotations

import lzma
import mmap
import os
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from nsys_sync.errors import InputError, OutputError, UsageError
from nsys_sync.paths import check_new, unwritable
from nsys_sync.trace import capture_info, stacks
from nsys_sync.trace.database import Database
from nsys_sync.trace.files import sqlite_file
from nsys_sync.trace.harmless import OPS, RULES, RUNTIME, Rule, is_usual
from nsys_sync.trace.nvtx import GIL_DOMAIN, HOLDING, WAITING, payload_layouts
from nsys_sync.trace.private import LIBRARY, Cleaner, Private, recorded_variables
from nsys_sync.trace.reader import check_export

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Counts = tuple[tuple[str, int], ...]

_REPORT_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")


@dataclass(frozen=True)
class Scrubbed:
    """What ``scrub`` did. removed, kept: (what, how many). folders: where the Python files that are still named lie."""

    source: Path
    target: Path
    bytes: int
    removed: Counts
    kept: Counts
    folders: Counts

    def lines(self, width: int = 100) -> list[str]:
        """The summary for people, in lines of at most ``width`` characters where words allow it."""
        digits = max(len(f"{count:,}") for _, count in (*self.removed, *self.kept, *self.folders, ("", 0)))

        def table(rows: Counts) -> list[str]:
            indent = " " * (digits + 4)
            texts = (f"  {count:>{digits},}  {what}" for what, count in rows)
            return [line for text in texts for line in wrap(text, width, subsequent_indent=indent) or [text]]

        lines = [f"Removed from {self.source.name}:", *(table(self.removed) or ["  nothing"])]
        lines += ["Kept, because a report shows it:", *table(self.kept)]
        if self.folders:
            lines += ["Folders of Python files (rename: --map-path OLD=NEW):", *table(self.folders)]
        return [*lines, f"Written: {self.target} ({self.bytes:,} bytes). Look at it before you share it."]


def scrub(
    source: str | Path, target: str | Path, *, map_paths: Sequence[tuple[str, str]] = (), force: bool = False
) -> Scrubbed:
    """Write a copy of the export ``source`` (.sqlite, .sqlite.xz) without what a report does not show.

    target: the new file; compressed if its name ends in .xz. map_paths: (old, new) beginnings of paths to rewrite.
    Raises InputError for what is not an export, OutputError if the target exists (without force) or cannot be written,
    UsageError for a path map that cannot be.
    """
    if str(target) == "-":
        raise UsageError(
            "scrub-target", "The copy is a database, which does not go to a terminal or a pipe.", "Name a file."
        )
    source, target = Path(source), Path(target).absolute()
    if source.suffix in _REPORT_SUFFIXES:
        raise InputError(
            "scrub-report",
            f"{source} is a report in a closed format, from which nothing can be taken out.",
            f"Export it, then scrub the export: nsys-sync export {source}",
        )
    paths = [_path_pair(old, new) for old, new in map_paths]
    check_new(target, force=force, reads=[source], plain=True)
    with sqlite_file(source) as readable, _new_file(target) as work:
        with closing(Database(readable, source)) as db:
            check_export(db, source)
            if db.rows("PRAGMA encoding") != [("UTF-8",)]:
                raise InputError("not-a-trace", f"{source} is not in UTF-8, so nsys did not write it.")
            cleaner = Cleaner(Private.of(recorded_variables(db)), paths)
            with _one_sentence(source, target), closing(_attached(readable, work)) as connection:
                removed, kept, folders = _Copy(db, connection, cleaner).run()
        _refuse_leaks(work, cleaner.private)
        _put_in_place(work, target, force=force)
    return Scrubbed(source, target, target.stat().st_size, removed, kept, folders)


def _path_pair(old: str, new: str) -> tuple[str, str]:
    if not old.rstrip("/") or not new or not (old + new).isprintable():
        raise UsageError("path-map", "A path map needs a folder and what to call it.", "Write --map-path OLD=NEW.")
    return old.rstrip("/"), new.rstrip("/")


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A new private file beside the target, removed afterwards if it is still there."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise unwritable(target, error) from None
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _put_in_place(work: Path, target: Path, *, force: bool) -> None:
    try:
        if target.suffix == ".xz":
            with _new_file(target) as packed:
                with work.open("rb") as plain, lzma.open(packed, "wb") as out:
                    shutil.copyfileobj(plain, out, 1 << 20)
                packed.replace(work)
        umask = os.umask(0)
        os.umask(umask)
        work.chmod(0o666 & ~umask)
        check_new(target, force=force, plain=True)
        work.replace(target)
    except OSError as error:
        raise unwritable(target, error) from None


@contextmanager
def _one_sentence(source: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_CANTOPEN,
        ):
            raise OutputError("unwritable", f"{target} cannot be written: {error}.", "Name another place.") from None
        raise InputError(
            "damaged-trace", f"{source} is damaged: {error}.", "Copy it again, or export the report again."
        ) from None
    except MemoryError:
        raise InputError(
            "damaged-trace",
            f"{source} is damaged: a value is longer than memory can hold.",
            "Copy it again, or export the report again.",
        ) from None


def _refuse_leaks(path: Path, private: Private) -> None:
    """The last word have the bytes: a secret that is still in them stops everything."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if any(data.find(secret.encode()) >= 0 for secret in private.secrets):
            raise OutputError(
                "scrub-leak",
                "A secret of the recorded environment was still in the copy, so nothing was written.",
                "Please report this: the rules of scrub need one more.",
            )


def _attached(readable: Path, work: Path) -> sqlite3.Connection:
    """The new database, with the export as ``src``, which cannot change."""
    connection = sqlite3.connect(work, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.execute("ATTACH ? AS src", (f"file:{quote(os.fsencode(readable.resolve()))}?mode=ro&immutable=1",))
    for setting in ("journal_mode = OFF", "synchronous = OFF", "temp_store = MEMORY", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("BEGIN")
    return connection


_NUMBER = re.compile(r"INT|REAL|FLOA|DOUB|NUM|BOOL", re.IGNORECASE)
_COLUMN_WORDS = ("globalPid", "globalTid", "pid", "processId", "text", "name", "value", "utcTime", "nameId")
_MARK, _PUSH_POP, _START_END, _DOMAIN = 34, 59, 60, 75
_CODE, _MODULE, _FREE = 1, 2, 4

_WHAT = {
    "META_DATA_CAPTURE": "options of the capture, with the environment and the command line",
    "META_DATA_EXPORT": "options of the export, with host, user and paths",
    "TARGET_INFO_SYSTEM_ENV": "facts about the machine",
    "PROCESSES": "processes that did nothing on a GPU",
    "ThreadNames": "thread names",
    "NVTX_EVENTS": "NVTX events that no report shows",
    "DIAGNOSTIC_EVENT": "messages of the profiler",
    "ProcessStreams": "outputs of processes",
    "TARGET_INFO_CUDA_DEVICE": "devices of other processes",
    "PROFILER_OVERHEAD": "notes on what the profiler itself did",
}

_TABLES = "rows of tables that the copy does not need"
_LABELS = "labels of enumerations"
_COLUMNS = "texts in columns that a report does not show"
_BLOBS = "binary payloads, which hold uninitialised memory (their stacks are kept as JSON)"


class _Copy:
    """One run of the copy, table by table, inside ``connection`` (main is new, src the export)."""

    def __init__(self, db: Database, connection: sqlite3.Connection, cleaner: Cleaner) -> None:
        self._db = db
        self._sql = connection
        self._cleaner = cleaner
        self._removed: Counter[str] = Counter()
        self._tables: set[str] = set()
        self._columns: set[str] = set()
        self._files: set[int] = set()
        self._functions: set[int] = set()
        for name, arity, function in (
            ("clean", 1, cleaner.text),
            ("note", 1, cleaner.note),
            ("usual", 2, is_usual),
            ("shown", 2, self._shown),
        ):
            connection.create_function(name, arity, function, deterministic=True)

    def run(self) -> tuple[Counts, Counts, Counts]:
        """Copy, and say (what, how many) was removed, was kept, and the folders of the Python files."""
        for name, columns in (
            ("range", "id INTEGER PRIMARY KEY"),
            ("mark", "id INTEGER PRIMARY KEY, stack INTEGER"),
            ("stack", "stack INTEGER PRIMARY KEY, json TEXT"),
            ("domain", "process INTEGER, domain INTEGER, name TEXT"),
            ("process", "id INTEGER PRIMARY KEY"),
            ("thread", "id INTEGER PRIMARY KEY"),
            ("string", "id INTEGER PRIMARY KEY, kind INTEGER"),
        ):
            self._sql.execute(f"CREATE TEMP TABLE kept_{name} ({columns})")
        self._choose_events()
        self._choose_processes()
        for table in sorted(self._db.tables - {"StringIds"}):
            self._copy(table)
        self._copy_strings()
        self._count_rest()
        self._sql.execute("COMMIT")
        return self._summary(), self._kept(), self._folders()

    # What belongs to the report

    def _source(self, table: str) -> str | None:
        name = self._db.table(table)
        return None if name is None else f"src.{name}"

    def _choose_events(self) -> None:
        """Ranges of the default domain, this tool's own marks, spans of Python's lock, marks with Python stacks."""
        if not self._db.has("NVTX_EVENTS", "eventType", "globalTid", "domainId"):
            return
        nvtx, strings = self._source("NVTX_EVENTS"), self._source("StringIds")
        text = "text" if self._db.has("NVTX_EVENTS", "text") else "NULL"
        if self._db.has("NVTX_EVENTS", "textId"):
            text = f"coalesce({text}, (SELECT value FROM {strings} s WHERE s.id = textId))"
        python = ", ".join(f"'{name}'" for name in stacks.PYTHON_DOMAINS)
        own = f"{text} GLOB '{capture_info.MARK_PREFIX}*'"
        lock = f"{text} IN ('{HOLDING}', '{WAITING}')"
        ranges = f"eventType IN ({_PUSH_POP}, {_START_END}) AND (coalesce(domainId, 0) = 0 OR {own} OR {lock})"
        self._sql.execute(
            f"INSERT INTO kept_range SELECT rowid FROM {nvtx} WHERE globalTid NOT NULL AND ({ranges} OR "
            f"(eventType = {_MARK} AND {own}) OR (eventType = {_DOMAIN} AND {text} IN ({python}, '{GIL_DOMAIN}')))"
        )
        self._sql.execute(
            f"INSERT INTO kept_domain SELECT DISTINCT globalTid & ~0xFFFFFF, domainId, {text} FROM {nvtx} "
            f"WHERE eventType = {_DOMAIN} AND {text} IN ({python})"
        )
        self._choose_stacks(nvtx, strings)

    def _choose_stacks(self, nvtx: str | None, strings: str | None) -> None:
        has = {name: self._db.has("NVTX_EVENTS", name) for name in ("jsonText", "jsonTextId", "binaryData")}
        json = "jsonText" if has["jsonText"] else "NULL"
        if has["jsonTextId"]:
            json = f"coalesce({json}, (SELECT value FROM {strings} s WHERE s.id = jsonTextId))"
        binary = "CAST(binaryData AS BLOB)" if has["binaryData"] else "NULL"
        layouts = payload_layouts(self._db)
        known: dict[tuple[str, tuple[stacks.RawFrame, ...]], int] = {}
        marks = self._sql.execute(
            f"SELECT n.rowid, d.name, {json}, {binary} FROM {nvtx} n JOIN kept_domain d "
            f"ON d.process = n.globalTid & ~0xFFFFFF AND d.domain = n.domainId WHERE n.eventType = {_MARK}"
        )
        chosen: list[tuple[int, int | None]] = []
        for row, domain, text, data in marks:
            frames = stacks.from_json(text) if isinstance(text, str) else None
            if frames is None and isinstance(data, bytes):
                frames = stacks.from_binary(data, layouts)
            stack = None if frames is None else known.setdefault((domain, tuple(frames)), len(known))
            chosen.append((row, stack))
            self._removed[_BLOBS] += data is not None
        self._sql.executemany("INSERT OR IGNORE INTO kept_mark VALUES (?, ?)", chosen)
        self._write_stacks(known)

    def _write_stacks(self, known: Mapping[tuple[str, tuple[stacks.RawFrame, ...]], int]) -> None:
        table = self._source("StringIds")
        named = {i for _, frames in known for function, file, _ in frames for i in (function, file) if i < 1 << 63}
        there = {i for i in named if self._sql.execute(f"SELECT 1 FROM {table} WHERE id = ?", (i,)).fetchone()}
        for (domain, frames), stack in known.items():
            listed = [
                {"Function": fn if fn in there else -1, "File": file if file in there else -1, "Line": line}
                for fn, file, line in frames
            ]
            self._functions.update(fn for fn, _, _ in frames if fn in there)
            self._files.update(file for _, file, _ in frames if file in there)
            json = msgspec.json.encode({domain: {"Frames": listed}}).decode()
            self._sql.execute("INSERT INTO kept_stack VALUES (?, ?)", (stack, json))
        self._sql.executemany("INSERT INTO kept_string VALUES (?, ?)", ((i, _CODE) for i in there))

    def _choose_processes(self) -> None:
        """Processes and threads with CUDA calls, GPU work or NVTX events that are kept."""
        nvtx = "rowid IN (SELECT id FROM kept_mark) OR (rowid IN (SELECT id FROM kept_range) AND eventType <> 75)"
        for table, where in ((RUNTIME, "1"), ("NVTX_EVENTS", nvtx)):
            if self._db.has(table, "globalTid", *(["eventType"] if table == "NVTX_EVENTS" else [])):
                query = f"SELECT DISTINCT globalTid FROM {self._source(table)} WHERE typeof(globalTid) = 'integer'"
                self._sql.execute(f"INSERT OR IGNORE INTO kept_thread {query} AND ({where})")
        self._sql.execute("INSERT OR IGNORE INTO kept_process SELECT id & ~0xFFFFFF FROM kept_thread")
        for table in OPS:
            if self._db.has(table, "globalPid"):
                query = f"SELECT DISTINCT globalPid FROM {self._source(table)} WHERE typeof(globalPid) = 'integer'"
                self._sql.execute(f"INSERT OR IGNORE INTO kept_process {query}")

    # Tables

    def _copy(self, table: str) -> None:
        source, rule = self._source(table), RULES.get(table)
        if source is None:
            return
        (before,) = self._sql.execute(f"SELECT count(*) FROM {source}").fetchone()
        if rule is None:
            self._drop(table, before)
            return
        name = self._db.table(table)
        # As the reader does, with computed columns; the last value of a row says whether one is.
        declared = [row[:6] for row in self._sql.execute(f"PRAGMA src.table_xinfo({name})")]
        terms, columns = self._terms(table, source, rule, declared)
        key = [
            f'"{column}"' for _, column, _, _, _, pk in sorted(declared, key=lambda c: c[5]) if pk and column in terms
        ]
        columns += [f"PRIMARY KEY ({', '.join(key)})"] if key else []
        self._sql.execute(f"CREATE TABLE main.{name} ({', '.join(columns)})")
        where = self._rows(rule, {column for _, column, *_ in declared})
        self._sql.execute(
            f"INSERT INTO main.{name} SELECT {', '.join(terms.values())} FROM {source} AS source WHERE {where}"
        )
        (after,) = self._sql.execute(f"SELECT count(*) FROM main.{name}").fetchone()
        self._removed[_WHAT.get(table, f"rows of {table}")] += before - after
        for column in rule.strings:
            if column in terms:
                kind = _MODULE if column == "module" else _FREE if column == "textId" else _CODE
                self._keep_strings(
                    f'SELECT DISTINCT "{column}" FROM main.{name} WHERE typeof("{column}") = \'integer\'', kind
                )

    def _drop(self, table: str, rows: int) -> None:
        labels = table.startswith("ENUM_")
        self._removed[_WHAT.get(table, _LABELS if labels else _TABLES)] += rows
        if rows and not labels and table not in _WHAT:
            self._tables.add(table)

    def _terms(
        self, table: str, source: str, rule: Rule, declared: Sequence[tuple[int, str, str, int, object, int]]
    ) -> tuple[dict[str, str], list[str]]:
        """SQL by column for what is copied, and the columns' definitions."""
        terms: dict[str, str] = {}
        columns: list[str] = []
        for _, column, kind, *_ in declared:
            number = bool(_NUMBER.search(kind)) and column.isidentifier()
            if column in rule.texts:
                terms[column] = rule.texts[column]
            elif number and column not in rule.without:
                terms[column] = f"CASE WHEN typeof(\"{column}\") IN ('integer', 'real') THEN \"{column}\" END"
            elif not number and column not in {*rule.computed, "binaryData"}:
                quoted = column.replace('"', '""')
                query = f'SELECT count("{quoted}") FROM {source} WHERE CAST("{quoted}" AS BLOB) <> x\'\''
                if filled := self._sql.execute(query).fetchone()[0]:
                    self._removed[_COLUMNS] += filled
                    self._columns.add(f"{table}.{column}")
                continue
            else:
                continue
            columns.append(f'"{column}" {"REAL" if "REAL" in kind else "INTEGER" if number else "TEXT"}')
        for column, term in rule.computed.items():
            terms[column] = term
            columns.append(f'"{column}" TEXT')
        return terms, columns

    def _rows(self, rule: Rule, columns: set[str]) -> str:
        """The rule's condition; nothing is kept where it cannot be checked."""
        words = set(re.findall(r"\w+", rule.rows)) & set(_COLUMN_WORDS)
        named = {table: self._source(table) for table in re.findall(r"{(\w+)}", rule.rows)}
        own = words - {"value"} if "{StringIds}" in rule.rows else words
        return "0" if own - columns or None in named.values() else rule.rows.format(**named)

    # Strings

    def _keep_strings(self, query: str, kind: int) -> None:
        self._sql.execute(
            f"INSERT INTO kept_string SELECT *, {kind} FROM ({query}) WHERE 1 "
            "ON CONFLICT (id) DO UPDATE SET kind = kind | excluded.kind"
        )

    def _copy_strings(self) -> None:
        source = self._source("StringIds")
        self._sql.execute('CREATE TABLE main."StringIds" ("id" INTEGER PRIMARY KEY, "value" TEXT)')
        self._sql.execute(
            f"INSERT INTO main.StringIds SELECT s.id, shown(k.kind, CAST(s.value AS BLOB)) "
            f"FROM {source} s JOIN kept_string k ON k.id = s.id ORDER BY s.id"
        )
        (before,) = self._sql.execute(f"SELECT count(*) FROM {source}").fetchone()
        (after,) = self._sql.execute("SELECT count(*) FROM main.StringIds").fetchone()
        self._removed["strings that nothing kept refers to"] += before - after

    def _shown(self, kind: int, value: bytes | None) -> str | None:
        text = self._cleaner.text(value) if kind & _FREE else self._cleaner.string(value)
        return text.rpartition("/")[2] if text is not None and kind == _MODULE else text

    # Summary

    def _count_rest(self) -> None:
        """Tables that only another version of a kept name has, views, and what else a schema can hold."""
        real = {name for (name,) in self._sql.execute("SELECT name FROM src.sqlite_master WHERE type = 'table'")}
        real = {name for name in real if not name.startswith("sqlite_")}
        chosen = {str(self._db.table(table)).strip('"') for table in self._db.tables}
        self._removed["tables that have a namesake"] += len(real - chosen)
        others = "SELECT count(*) FROM src.sqlite_master WHERE type IN ('view', 'trigger')"
        self._removed["views and triggers"] += self._sql.execute(others).fetchone()[0]

    def _summary(self) -> Counts:
        names = {_TABLES: self._tables, _COLUMNS: self._columns}
        return tuple(
            (f"{what} ({', '.join(map(_plain, sorted(names[what])))})" if what in names else what, count)
            for what, count in sorted(self._removed.items())
            if count
        )

    def _kept(self) -> Counts:
        queries = {
            "kernel names": (OPS[0], "SELECT count(DISTINCT shortName) FROM main.{}"),
            "names of ranges": ("NVTX_EVENTS", "SELECT count(DISTINCT coalesce(text, textId)) FROM main.{}"),
            "native symbols": ("CUDA_CALLCHAINS", "SELECT count(DISTINCT symbol) FROM main.{}"),
            "process names": ("PROCESSES", "SELECT count(DISTINCT name) FROM main.{}"),
            "GPU names": ("TARGET_INFO_GPU", "SELECT count(DISTINCT name) FROM main.{}"),
        }
        kept = Counter({"Python functions": len(self._functions), "Python files": len(self._files)})
        for what, (table, query) in queries.items():
            name = self._db.table(table)
            if name is not None:
                with suppress(sqlite3.OperationalError):
                    kept[what] = self._sql.execute(query.format(name)).fetchone()[0]
        names = [*self._cleaner.private.users, *self._cleaner.private.hosts]
        for name in names:
            query = "SELECT count(*) FROM main.StringIds WHERE instr(value, ?)"
            kept[f"of these with {name!a} in them, names of code that are not changed"] += self._sql.execute(
                query, (name,)
            ).fetchone()[0]
        return tuple((what, count) for what, count in kept.items() if count)

    def _folders(self) -> Counts:
        folders: Counter[str] = Counter()
        for file in self._files:
            (text,) = self._sql.execute("SELECT value FROM main.StringIds WHERE id = ?", (file,)).fetchone()
            library = LIBRARY.search(str(text))
            end = library.end() - 1 if library else str(text).rfind("/")
            folders[unescape(str(text)[: max(end, 0)]) or "."] += 1
        return tuple(folders.most_common())


def _plain(name: str) -> str:
    return name if re.fullmatch(r"[\w.]{1,80}", name, re.ASCII) else "an odd name"
