"""Texts that give somebody away, and what to write instead: secrets, names of users and hosts, home folders, paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import msgspec

from nsys_sync.trace import capture_info

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nsys_sync.trace.database import Database

REMOVED = "[removed]"

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
#: Where the part of a path begins that an installation chose.
LIBRARY = re.compile(r"/(?:site-packages|dist-packages|lib/python\d[\d.]*)/")


@dataclass(frozen=True)
class Private:
    """What the recorded environment gives away: secrets by value, names of users and of hosts."""

    secrets: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, variables: Iterable[tuple[str, str]]) -> Private:
        """Sort (name, value) pairs; short values would hide half of the copy."""
        secrets: set[str] = set()
        users: set[str] = set()
        hosts: set[str] = set()
        for name, value in variables:
            if name in _USER_NAMES and len(value) > 2 and value.lower() not in _COMMON:
                users.add(value)
            elif name in _HOST_NAMES and len(value) > 2 and value.lower() not in _COMMON:
                hosts.add(value)
            elif len(value) > 7 and _SECRET_NAME.search(name) and not _PATH.fullmatch(value):
                secrets.add(value)
        # The longest first, so that none is left in pieces by another.
        return cls(*(tuple(sorted(found, key=lambda text: (-len(text), text))) for found in (secrets, users, hosts)))


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
        library = LIBRARY.search(text)
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


def recorded_variables(db: Database) -> Iterator[tuple[str, str]]:
    """Every variable and option that the export holds, wherever it is."""
    for table in ("META_DATA_CAPTURE", "META_DATA_EXPORT", "TARGET_INFO_SYSTEM_ENV"):
        if db.has(table, "name", "value"):
            for name, value in db.rows(f"SELECT name, value FROM {db.table(table)} WHERE value IS NOT NULL"):
                yield str(name).rpartition(":")[2].upper(), str(value)
                yield from _variables(str(value))
    for (block,) in db.rows(f"SELECT value FROM {db.table('StringIds')} WHERE instr(CAST(value AS BLOB), x'00')"):
        yield from _variables(str(block))
