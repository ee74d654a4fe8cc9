"""A copy of an export that holds what a report shows and nothing else.

Everything is left behind unless a rule names it: tables and columns of text by name, numbers within kept tables,
strings only where a kept column refers to them. The copy is a new database, so nothing deleted is in its pages.
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
from dataclasses import dataclass, field
from functools import cached_property
from html import escape, unescape
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from nsys_sync.errors import InputError, OutputError, UsageError
from nsys_sync.trace import capture_info, stacks
from nsys_sync.trace.database import Database
from nsys_sync.trace.files import sqlite_file
from nsys_sync.trace.nvtx import GIL_DOMAIN, HOLDING, WAITING, payload_layouts
from nsys_sync.trace.reader import check_export

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

REMOVED = "[removed]"

Counts = tuple[tuple[str, int], ...]

_REPORT_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")


# --- what is kept ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """What is kept of a table.

    rows: an SQL condition; {NAME} in it is another table. strings: columns that refer to StringIds. texts: columns of
    text with the SQL expression that makes them harmless; computed: columns that are there in any case. without:
    columns of numbers that are not kept. All other columns are kept if they are declared as numbers, and of their
    values only the numbers.
    """

    rows: str = "1"
    strings: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()


def _clean(column: str) -> str:
    # As a blob, because a text that is not UTF-8 never reaches a function.
    return f"clean(CAST({column} AS BLOB))"


def _is(kind: str, text: str) -> str:
    return f"usual('{kind}', CAST({text} AS BLOB))"


_OF_PROCESS = "globalPid IS NULL OR globalPid IN (SELECT id FROM kept_process)"
_OF_THREAD = "globalTid IN (SELECT id FROM kept_thread)"
_OF_PID = "IN (SELECT (id >> 24) & 0xFFFFFF FROM kept_process)"
_IN_RANGE = "source.rowid IN (SELECT id FROM kept_range)"
_PAIR = {"name": "name", "value": "value"}
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_OPS = tuple(
    f"CUPTI_ACTIVITY_KIND_{name}"
    for name in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "SYNCHRONIZATION", "CUDA_EVENT")
)

RULES: dict[str, Rule] = {
    _RUNTIME: Rule(strings=("nameId",)),
    **dict.fromkeys(_OPS, Rule(_OF_PROCESS, without=("virtualAddress",))),
    _OPS[0]: Rule(_OF_PROCESS, strings=("shortName", "demangledName"), without=("mangledName",)),
    "CUDA_CALLCHAINS": Rule(
        f"id IN (SELECT callchainId FROM {{{_RUNTIME}}})", strings=("symbol", "module"), without=("originalIP",)
    ),
    "NVTX_EVENTS": Rule(
        f"{_IN_RANGE} OR source.rowid IN (SELECT id FROM kept_mark)",
        strings=("textId",),
        texts={
            "text": f"CASE WHEN {_IN_RANGE} THEN {_clean('text')} END",
            "textId": f"CASE WHEN {_IN_RANGE} AND typeof(textId) = 'integer' THEN textId END",
        },
        computed={
            "jsonText": "(SELECT json FROM kept_mark JOIN kept_stack USING (stack) WHERE kept_mark.id = source.rowid)"
        },
        without=("jsonTextId", *(f"{kind}Value" for kind in ("uint64", "int64", "double", "uint32", "int32", "float"))),
    ),
    "PROCESSES": Rule("globalPid IN (SELECT id FROM kept_process)", texts={"name": _clean("name")}),
    "ThreadNames": Rule(
        f"{_OF_THREAD} AND nameId IN (SELECT id FROM {{StringIds}} WHERE {_is('thread', 'value')})", strings=("nameId",)
    ),
    "PROFILER_OVERHEAD": Rule(_OF_THREAD, without=("nameId",)),
    "DIAGNOSTIC_EVENT": Rule(_is("message", "text"), texts={"text": "text"}),
    "TARGET_INFO_GPU": Rule(texts={"name": _clean("name")}, without=("luid",)),
    "TARGET_INFO_CUDA_DEVICE": Rule(f"pid {_OF_PID}"),
    "TARGET_INFO_CUDA_CONTEXT_INFO": Rule(f"processId {_OF_PID}"),
    "TARGET_INFO_CUDA_STREAM": Rule(f"processId {_OF_PID}"),
    "TARGET_INFO_SESSION_START_TIME": Rule(_is("time", "utcTime"), texts={"utcTime": "utcTime"}),
    "TARGET_INFO_SYSTEM_ENV": Rule(_is("system", "name || '=' || value"), texts=_PAIR),
    "ANALYSIS_DETAILS": Rule(),
    "META_DATA_CAPTURE": Rule(_is("option", "name || '=' || value"), texts=_PAIR),
    "META_DATA_EXPORT": Rule(_is("export", "name || '=' || value"), texts=_PAIR),
    capture_info.TABLE: Rule(
        "name = 'capture' AND note(CAST(value AS BLOB)) NOT NULL",
        texts={"name": "name", "value": "note(CAST(value AS BLOB))"},
    ),
}

_OPTIONS = "COLLECT|CUDA_|LINUX_PERF_OPTIONS|OS_RUNTIME_OPTIONS|PYTHON_BACKTRACE_SAMPLING_OPTIONS|SHOW|TRACE|USE_"

#: Texts that say nothing about whose machine it was, whole, by the kind that the rules name.
USUAL: dict[str, re.Pattern[str]] = {
    kind: re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    for kind, patterns in {
        "thread": (
            r"python[\d.]{0,5}",
            r"pt_(?:autograd|nccl_watchdg|nccl_heartbt|tcpstore_uv|elastic|main_thread|data_pin)(?:_\d+)?",
            r"cuda[\da-f-]{0,11}|cuda-EvtHandlr|CUPTI worker thread|torchrun|jemalloc_bg_thd",
            r"\[NSys\]|\[NSys Comms\]|NSys PySampling|\*\d+#CommsProcesso",
        ),
        "message": (
            r"Not all [A-Za-z ]{2,40} events might have been collected\.",
            r"No [A-Za-z ]{2,40} events collected\. Does the process use [A-Za-z ]{2,40}\?",
            r"Number of [A-Za-z ]{2,40} (?:collected|produced): \t?\d+(?:, CUPTI buffers: \d+)?\.",
            r"Number of CUPTI events produced: \t?\d+, CUPTI buffers: \d+ of \d+\. Some CUPTI events might be missing",
            r"Profiling has (?:started|stopped)\.",
            r"Profiling started due to cudaProfilerStart API invoked in the application\.",
        ),
        "time": (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?",),
        "system": (r"(?:NvDriverVersion|CudaDriverVersion)=[\d.]{1,20}", r"CpuArchitecture=(?:x86_64|aarch64|arm64)"),
        "option": (
            r"CAPTURE_EVENT_TYPE=(?:Cuda|NvtxEvents|OSRuntime|Graphics)",
            rf"(?:PROCESS_\d+:)?(?:{_OPTIONS})[A-Z_]*(?::[A-Z_]+)?=(?:true|false|\d{{1,12}}|Graph|Node|ProcessTree)",
            r"(?:RUN_DURATION|START_DELAY)_MS=\d{1,12}",
        ),
        "export": (
            r"EXPORT_PRODUCT_NAME=NVIDIA Nsight Systems",
            r"EXPORT_(?:PRODUCT_VERSION|PRODUCT_DATE|SCHEMA_VERSION|SCHEMA_VERSION_(?:MAJOR|MINOR|MICRO))=[\d.]{1,20}",
            r"EXPORT_(?:PARAM|CONFIG)_[A-Z_]+=(?:true|false|\d{1,20})",
        ),
    }.items()
}


def _usual(kind: str, text: bytes | None) -> bool:
    return text is not None and USUAL[kind].fullmatch(text.decode("utf-8", "replace")) is not None


# --- texts that are kept ---------------------------------------------------------------------------------------------

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASS(?!IVE)|KEY|CRED|AUTH|COOKIE|DSN|WEBHOOK", re.IGNORECASE)
_PATH = re.compile(r"(?:/[\w.@-]+)+/?")
#: What well-known services' keys look like.
_KEY = re.compile(
    r"\b(?:[spr]k-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|AKIA[0-9A-Z]{16}|"
    r"xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,})"
)
_USER_NAMES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "EXPORT_USER")
_HOST_NAMES = ("HOSTNAME", "HOST", "EXPORT_HOST", "DEVICE_DISPLAY_NAME", "SLURMD_NODENAME")
_COMMON = {
    "root",
    "user",
    "users",
    "host",
    "home",
    "localhost",
    "nobody",
    "python",
    "torch",
    "workspace",
    "data",
    "opt",
}
_HOME = re.compile(r"(?<![\w.~/-])((?:/[\w.-]+){0,2}/(?:home|Users|users))/[^/\s:;,'\"<>|]+")
_LIBRARY = re.compile(r"/(?:site-packages|dist-packages|lib/python\d[\d.]*)/")


@dataclass(frozen=True)
class Private:
    """What the recorded environment gives away: secrets by value, names of users and of hosts."""

    secrets: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, variables: Iterable[tuple[str, str]]) -> Private:
        """Sort (name, value) pairs; short values would hide half of the copy."""
        secrets, users, hosts = set(), set(), set()
        for name, value in variables:
            if name in _USER_NAMES and len(value) > 2 and value.lower() not in _COMMON:
                users.add(value)
            elif name in _HOST_NAMES and len(value) > 2 and value.lower() not in _COMMON:
                hosts.add(value)
            elif len(value) > 7 and _SECRET_NAME.search(name) and not _PATH.fullmatch(value):
                secrets.add(value)
        return cls(frozenset(secrets), frozenset(users), frozenset(hosts))


@dataclass(frozen=True)
class Cleaner:
    """Rewrites texts that are kept: secrets, mapped paths, home folders, names of users and hosts.

    paths: (old, new) beginnings of paths, tried in order.
    """

    private: Private
    paths: Sequence[tuple[str, str]] = ()

    @cached_property
    def _renamed(self) -> dict[str, str]:
        """New by old paths, the first of equals; also as HTML-escaped, which is how Python frames are stored."""
        renamed: dict[str, str] = {}
        for old, new in self.paths:
            renamed.setdefault(old, new)
            renamed.setdefault(escape(old, quote=False), escape(new, quote=False))
        return renamed

    @cached_property
    def _mapped(self) -> re.Pattern[str]:
        olds = "|".join(re.escape(old) for old in self._renamed)
        return re.compile(rf"(?<![\w.~/-])(?:{olds})(?=/|$|[^\w./~-])")

    def text(self, value: object) -> str | None:
        """A text of any kind; None stays None."""
        text = self.string(value)
        return None if text is None else self._names(_KEY.sub(REMOVED, text))

    def string(self, value: object) -> str | None:
        """A value of StringIds: a path, or a name of code in which no word is anybody's."""
        if value is None:
            return None
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        if "\0" in text:
            return REMOVED
        for secret in self.private.secrets:
            text = text.replace(secret, REMOVED)
        if self.paths:
            text = self._mapped.sub(lambda found: self._renamed[found[0]], text)
        text = _HOME.sub(r"\1/user", text)
        return self._names(_KEY.sub(REMOVED, text)) if text.startswith("/") else text

    def _names(self, text: str) -> str:
        library = _LIBRARY.search(text)
        head, tail = (text[: library.start()], text[library.start() :]) if library else (text, "")
        for names, word in ((self.private.users, "user"), (self.private.hosts, "host")):
            for name in names:
                head = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", word, head)
        return head + tail

    def note(self, value: object) -> str | None:
        """The launcher's note on the capture; None if it is not one."""
        try:
            info = msgspec.json.decode(value if isinstance(value, bytes) else b"", type=capture_info.CaptureInfo)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            return None
        texts = {name: self.text(getattr(info, name)) for name in ("nsys_version", "range", "started_utc")}
        clean = msgspec.structs.replace(
            info,
            tool_version=self.text(info.tool_version) or "",
            flags=[self.text(flag) or "" for flag in _without_variables(info.flags)],
            warnings=[(slug, self.text(text) or "") for slug, text in info.warnings],
            sources={
                self.text(file) or "": capture_info.SourceFile(
                    sha256=source.sha256, lines={at: self.string(line) or "" for at, line in source.lines.items()}
                )
                for file, source in info.sources.items()
            },
            **texts,
        )
        return msgspec.json.encode(clean).decode()


def _without_variables(flags: Sequence[str]) -> list[str]:
    """Options of nsys without those that set environment variables, in whichever of their spellings."""
    return [
        flag
        for before, flag in zip(["", *flags], flags, strict=False)
        if before not in _SET_VARIABLE and not flag.startswith(_SET_VARIABLE) and "=" not in flag.partition("=")[2]
    ]


_SET_VARIABLE = ("-e", "--env-var")


def _variables(text: str) -> Iterator[tuple[str, str]]:
    """NAME=VALUE pairs of an environment, one or many, however they are separated."""
    for part in re.split(r"[\0\n]", text):
        name, found, value = part.partition("=")
        if found:
            yield name.rpartition(":")[2].strip(), value.strip()


# --- the copy --------------------------------------------------------------------------------------------------------


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
    _check_target(source, target, force=force)
    with sqlite_file(source) as readable, _new_file(target) as work:
        with closing(Database(readable, source)) as db:
            check_export(db, source)
            if db.rows("PRAGMA encoding") != [("UTF-8",)]:
                raise InputError("not-a-trace", f"{source} is not in UTF-8, so nsys did not write it.")
            cleaner = Cleaner(Private.of(_recorded(db)), paths)
            with _one_sentence(source, target), closing(_attached(readable, work)) as connection:
                removed, kept, folders = _Copy(db, connection, cleaner).run()
        _refuse_leaks(work, cleaner.private)
        _put_in_place(work, target, force=force)
    return Scrubbed(source, target, target.stat().st_size, removed, kept, folders)


def _path_pair(old: str, new: str) -> tuple[str, str]:
    if not old.rstrip("/") or not new or not (old + new).isprintable():
        raise UsageError("path-map", "A path map needs a folder and what to call it.", "Write --map-path OLD=NEW.")
    return old.rstrip("/"), new.rstrip("/")


def _check_target(source: Path, target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise OutputError("output-is-a-folder", f"{target} is a folder.", "Name a file in it.")
    if not target.parent.is_dir():
        raise OutputError("no-such-folder", f"The folder {target.parent} does not exist.", f"mkdir -p {target.parent}")
    if target.exists() and not target.is_file():
        raise OutputError("unwritable", f"{target} is not a file, and the copy is a database.", "Name a file.")
    if target.exists() and source.exists() and target.samefile(source):
        raise OutputError("scrub-in-place", f"{target} is the input, which is never changed.", "Name another file.")
    if target.exists() and not force:
        raise OutputError("output-exists", f"{target} exists already.", "Choose another name or add --force.")


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A new private file beside the target, removed afterwards if it is still there."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise OutputError(
            "unwritable", f"{target} cannot be written: {error.strerror}.", "Name another folder."
        ) from None
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
        _check_target(work, target, force=force)
        work.replace(target)
    except OSError as error:
        raise OutputError(
            "unwritable", f"{target} cannot be written: {error.strerror}.", "Name another folder."
        ) from None


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
            raise OutputError("unwritable", f"{target} cannot be written: {error}.") from None
        raise InputError(
            "damaged-trace", f"{source} is damaged: {error}.", "Copy it again, or export the report again."
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


def _recorded(db: Database) -> Iterator[tuple[str, str]]:
    """Every variable and option that the export holds, wherever it is."""
    for table in ("META_DATA_CAPTURE", "META_DATA_EXPORT", "TARGET_INFO_SYSTEM_ENV"):
        if db.has(table, "name", "value"):
            for name, value in db.rows(f"SELECT name, value FROM {db.table(table)} WHERE value IS NOT NULL"):
                yield str(name).rpartition(":")[2].upper(), str(value)
                yield from _variables(str(value))
    for (block,) in db.rows(f"SELECT value FROM {db.table('StringIds')} WHERE instr(CAST(value AS BLOB), x'00')"):
        yield from _variables(str(block))


def _attached(readable: Path, work: Path) -> sqlite3.Connection:
    """The new database, with the export as ``src``, which cannot change."""
    connection = sqlite3.connect(work, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.execute("ATTACH ? AS src", (f"file:{quote(str(readable.resolve()))}?mode=ro&immutable=1",))
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
            ("usual", 2, _usual),
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
        for table, where in ((_RUNTIME, "1"), ("NVTX_EVENTS", nvtx)):
            if self._db.has(table, "globalTid", *(["eventType"] if table == "NVTX_EVENTS" else [])):
                query = f"SELECT DISTINCT globalTid FROM {self._source(table)} WHERE typeof(globalTid) = 'integer'"
                self._sql.execute(f"INSERT OR IGNORE INTO kept_thread {query} AND ({where})")
        self._sql.execute("INSERT OR IGNORE INTO kept_process SELECT id & ~0xFFFFFF FROM kept_thread")
        for table in _OPS:
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
        declared = self._sql.execute(f"PRAGMA src.table_info({name})").fetchall()
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
            "kernel names": (_OPS[0], "SELECT count(DISTINCT shortName) FROM main.{}"),
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
            library = _LIBRARY.search(str(text))
            end = library.end() - 1 if library else str(text).rfind("/")
            folders[unescape(str(text)[: max(end, 0)]) or "."] += 1
        return tuple(folders.most_common())


def _plain(name: str) -> str:
    return name if re.fullmatch(r"[\w.]{1,80}", name, re.ASCII) else "an odd name"
