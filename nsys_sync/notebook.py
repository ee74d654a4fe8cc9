"""The magic ``%%watch`` of notebooks: run a cell, and list its syncs below its output."""

from __future__ import annotations

import shlex
from typing import Any

from nsys_sync.errors import NsysSyncError
from nsys_sync.watching import watch

_USAGE = "%%watch [--error]: run the cell and list where it waits for the GPU; --error stops it at its first sync"


def load(shell: Any) -> None:
    """Register the magic in an IPython shell."""

    def run(line: str, cell: str | None = None) -> None:
        """Run code and list its syncs."""
        words = shlex.split(line) if cell is not None else []
        if unknown := set(words) - {"--error"}:
            print(f"nsys-sync: %%watch does not know {' '.join(sorted(unknown))}. {_USAGE}")
            return
        with watch(error="--error" in words, name="cell") as seen:
            shell.run_cell(line if cell is None else cell)
        try:
            seen.show()
        except NsysSyncError as error:
            print(f"nsys-sync: {error}")

    run.__doc__ = _USAGE
    shell.register_magic_function(run, "line_cell", "watch")
