"""Source lines of the program: where a frame's file lies here, and whether it is still what was profiled."""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from nsys_sync.analysis.findings import SourceLine, SourceStatus
from nsys_sync.trace.capture_info import SourceFile

_AROUND = 3
_LARGEST = 5_000_000

#: A line with its neighbours, how far to trust it, and the file or its text as it was kept (None unless it can be
#: trusted as far as is known).
FoundLine = tuple[SourceLine | None, SourceStatus, Path | str | None]


@dataclass
class Sources:
    """Looks up source lines: those in files kept with the capture first, else in files on this machine.

    kept: by path in the trace. maps: (old, new) path prefixes, the first that fits is used.
    """

    kept: Mapping[str, SourceFile] = field(default_factory=dict)
    maps: Sequence[tuple[str, str]] = ()
    _files: dict[str, tuple[Path, str, list[str]] | None] = field(default_factory=dict)

    def here(self, file: str) -> str:
        """The path on this machine of a path in the trace."""
        for old, new in self.maps:
            prefix = old.rstrip("/")
            if file == prefix or file.startswith(prefix + "/"):
                return new.rstrip("/") + file[len(prefix) :]
        return file

    def find(self, file: str | None, line: int | None) -> FoundLine:
        """The line, if it is known here."""
        if not file or not line or line < 1:
            return None, "missing", None
        kept = self.kept.get(file)
        if kept is not None and kept.text is not None and line <= len(lines := _lines(kept.text)):
            return _shown(lines, line, kept.sha256), "captured", kept.text
        loaded = self._load(file)
        if kept is not None and line in kept.lines:
            same = loaded is not None and loaded[1] == kept.sha256
            return _kept(kept, line), "captured", loaded[0] if same and loaded else None
        if loaded is None or line > len(loaded[2]):
            return None, "missing", None
        path, digest, lines = loaded
        shown = _shown(lines, line, digest)
        if kept is not None and kept.sha256 != digest:
            return shown, "changed", None
        return shown, "found_unverified", path

    def _load(self, file: str) -> tuple[Path, str, list[str]] | None:
        if file not in self._files:
            self._files[file] = _read(Path(self.here(file))) if PurePosixPath(file).is_absolute() else None
        return self._files[file]


def decoded(text: str | bytes) -> str:
    """A source file as text, in the encoding that it says it has."""
    if isinstance(text, str):
        return text
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
        return text.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return text.decode("utf-8", errors="replace")


def _shown(lines: list[str], line: int, digest: str) -> SourceLine:
    first, stop = max(line - _AROUND, 1), min(line + _AROUND, len(lines))
    return SourceLine(lines={n: lines[n - 1] for n in range(first, stop + 1)}, sha256=digest)


def _lines(text: str) -> list[str]:
    """Lines as Python counts them: a form feed ends none."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


def _kept(kept: SourceFile, line: int) -> SourceLine:
    near = {n: text for n, text in sorted(kept.lines.items()) if abs(n - line) <= _AROUND}
    return SourceLine(lines=near, sha256=kept.sha256)


def _read(path: Path) -> tuple[Path, str, list[str]] | None:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        data = path.read_bytes()
    except (OSError, ValueError):
        return None
    return path, hashlib.sha256(data).hexdigest(), _lines(decoded(data))
