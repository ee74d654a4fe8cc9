"""Writing results: whole or not at all, and never over something without being told to."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from nsys_sync.errors import OutputError


def check_new(path: str | Path, *, force: bool) -> Path:
    """The absolute path, if something may be written there. Raises OutputError."""
    target = Path(path).absolute()
    if target.is_dir():
        raise OutputError("output-is-a-folder", f"{target} is a folder.", "Name a file in it.")
    if not target.parent.is_dir():
        raise OutputError("no-such-folder", f"The folder {target.parent} does not exist.", f"mkdir -p {target.parent}")
    if target.exists() and not force:
        raise OutputError("output-exists", f"{target} exists already.", "Choose another name or add --force.")
    return target


def write_new(path: str | Path, content: bytes, *, force: bool) -> Path:
    """Write a file under a temporary name and move it into place; returns its absolute path. Raises OutputError."""
    target = check_new(path, force=force)
    if target.exists() and not target.is_file():
        return _write_through(target, content)
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(target)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        raise OutputError("unwritable", f"{target} cannot be written: {error.strerror}.") from None
    return target


def _write_through(target: Path, content: bytes) -> Path:
    """Into a device or pipe, which nothing can be moved onto."""
    try:
        target.write_bytes(content)
    except OSError as error:
        raise OutputError("unwritable", f"{target} cannot be written: {error.strerror}.") from None
    return target
