"""Writing results: whole or not at all, and never over something without being told to."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nsys_sync.errors import OutputError


def check_new(path: str | Path, *, force: bool) -> Path:
    """The absolute path, if something may be written there: a new file, or a device or pipe. Raises OutputError."""
    target = Path(path).absolute()
    if target.is_dir():
        raise OutputError("output-is-a-folder", f"{target} is a folder.", "Name a file in it.")
    if not target.parent.is_dir():
        raise OutputError("no-such-folder", f"The folder {target.parent} does not exist.", f"mkdir -p {target.parent}")
    if target.is_file() and not force:
        raise OutputError("output-exists", f"{target} exists already.", "Choose another name or add --force.")
    return target


def is_same(one: Path, other: Path) -> bool:
    """Whether two names are of one file that is there."""
    try:
        return one.is_file() and one.samefile(other)
    except (OSError, ValueError):
        return False


@contextmanager
def writing(path: str | Path, *, force: bool) -> Iterator[Path]:
    """A temporary file that becomes ``path`` when the block ends, and is gone if it fails.

    What is not a plain file (a device, a pipe) is written through. Raises OutputError.
    """
    target = check_new(path, force=force)
    folder = target.parent if target.is_file() or not target.exists() else None
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=".nsys-sync-")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            if folder is None:
                with temporary.open("rb") as whole, target.open("wb") as through:
                    shutil.copyfileobj(whole, through)
            else:
                temporary.chmod(0o666 & ~_umask())
                temporary.replace(target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        raise OutputError("unwritable", f"{target} cannot be written: {error.strerror or error}.") from None


def write_new(path: str | Path, content: bytes, *, force: bool) -> Path:
    """Write a file whole or not at all; returns its absolute path. Raises OutputError."""
    with writing(path, force=force) as temporary:
        temporary.write_bytes(content)
    return Path(path).absolute()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
