"""From a path to an SQLite file that can be opened, with one clear sentence for everything that is not one."""

from __future__ import annotations

import hashlib
import lzma
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nsys_sync.errors import InputError
from nsys_sync.paths import check_file, unreadable

SQLITE_MAGIC = b"SQLite format 3\x00"
XZ_MAGIC = b"\xfd7zXZ\x00"
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")


def sha256(path: Path) -> str:
    """Hex digest of the file's bytes. Raises InputError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None


@contextmanager
def sqlite_file(path: Path) -> Iterator[Path]:
    """Yield a path to a plain SQLite file with the content of ``path`` (.sqlite or .sqlite.xz).

    A compressed file is unpacked into a temporary folder that is removed afterwards. Raises InputError.
    """
    head = _head(path)
    if head.startswith(XZ_MAGIC):
        with tempfile.TemporaryDirectory(prefix="nsys-sync-") as folder:
            unpacked = Path(folder, "trace.sqlite")
            try:
                with lzma.open(path) as source, unpacked.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            except (lzma.LZMAError, EOFError):
                raise InputError(
                    "damaged-trace", f"{path} is a damaged or incomplete .xz file.", "Copy it again."
                ) from None
            except OSError as error:
                raise InputError(
                    "no-space",
                    f"{path} cannot be unpacked into {folder}: {error.strerror}.",
                    "Set TMPDIR to a larger disk.",
                ) from None
            _check(unpacked, _head(unpacked), shown=path)
            yield unpacked
    else:
        _check(path, head, shown=path)
        yield path


def _head(path: Path) -> bytes:
    check_file(path)
    try:
        with path.open("rb") as file:
            return file.read(100)
    except OSError as error:
        raise unreadable(path, error) from None


def _check(path: Path, head: bytes, shown: Path) -> None:
    if not head:
        raise InputError(
            "not-a-trace", f"{shown} is empty.", "Export the report again: nsys-sync export REPORT.nsys-rep"
        )
    if not head.startswith(SQLITE_MAGIC):
        raise InputError("not-a-trace", f"{shown} is not an SQLite file.", _hint(shown, head))
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    size = path.stat().st_size
    if len(head) < 100 or size < pages * page:
        raise InputError(
            "damaged-trace",
            f"{shown} is cut off: {size:,} of {pages * page:,} bytes are there.",
            "Copy it again, or export the report again: nsys-sync export REPORT.nsys-rep",
        )


def _hint(path: Path, head: bytes) -> str:
    plain = path.with_suffix("") if path.suffix == ".xz" else path
    if plain.suffix in _REPORT_SUFFIXES:
        unpacking = "" if plain == path else f"xz -dk {shlex.quote(str(path))} && "
        return f"By its name it is a report of Nsight Systems: {unpacking}nsys-sync export {shlex.quote(str(plain))}"
    if head.lstrip()[:1] == b"{":
        return "It looks like JSON: a report saved by nsys-sync is read when its name ends in .json."
    return "Give the .sqlite that nsys-sync export writes."
