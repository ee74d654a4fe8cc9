"""Gets the target package loaded by every Python below a program, with a folder to speak with it through."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nsys_sync.capture.target import MODULES_VARIABLE, SESSION_VARIABLE, Session
from nsys_sync.errors import OutputError

_INJECTED = Path(__file__).parent / "target" / "inject"


@contextmanager
def session_with(name: str, config: dict[str, object]) -> Iterator[Session]:
    """A private folder with what the target's module NAME is to do in it; gone when the block ends.

    Raises OutputError if there is no place for temporary files.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="nsys-sync-", ignore_cleanup_errors=True)
        session = Session(folder.name)
        session.write(name, config)
    except OSError as error:
        raise OutputError(
            "unwritable", f"There is no place for temporary files: {error.strerror}.", "Name a folder with TMPDIR."
        ) from None
    with folder:
        yield session


def injected(session: Session, modules: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, with what makes its Pythons load the target package and start these modules of it."""
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        "PYTHONPATH": f"{_INJECTED}{os.pathsep}{path}" if path else str(_INJECTED),
        MODULES_VARIABLE: ",".join(modules),
        SESSION_VARIABLE: session.folder,
    }
