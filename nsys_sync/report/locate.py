"""From the paths of a trace to the files of the project that is checked out here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nsys_sync.errors import UsageError
from nsys_sync.paths import is_file, is_folder

if TYPE_CHECKING:
    from nsys_sync.analysis.findings import Site


@dataclass(frozen=True)
class Project:
    """A folder whose files a pull request shows; root is absolute."""

    root: Path

    @classmethod
    def find(cls, given: Path | None = None) -> Project:
        """The given folder, else the Git working tree around the current folder, else the current folder.

        Raises UsageError when the given one is no folder.
        """
        if given is not None:
            if not is_folder(given):
                raise UsageError("no-such-folder", f"--root {given} is not a folder.", "Name the checkout.")
            return cls(given.resolve())
        here = Path.cwd()
        return cls(next((p for p in (here, *here.parents) if is_folder(p / ".git") or is_file(p / ".git")), here))

    def relative(self, file: str | None) -> str | None:
        """The path of a trace's file below the root, with ``/``; None where the project has no such file.

        The trace may come from a machine that has the project elsewhere: the longest end of the path that is a file
        here is taken.
        """
        return _relative(self.root, file) if file else None

    def place(self, site: Site) -> tuple[str | None, int | None]:
        """Where the project shows a site: its own line, else the line of the innermost caller that the project has."""
        for file, line in [(site.file, site.line), *[(f.file, f.line) for f in site.stack]]:
            found = self.relative(file)
            if found and line:
                return found, line
        return None, None


@lru_cache(maxsize=4096)
def _relative(root: Path, file: str) -> str | None:
    path = PurePosixPath(file.replace("\\", "/"))
    if ".." in path.parts or "\0" in file:
        return None
    if path.is_relative_to(root.as_posix()):
        return str(path.relative_to(root.as_posix()))
    parts = [p for p in path.parts if p != path.anchor]
    tails = (PurePosixPath(*parts[k:]) for k in range(len(parts)))
    return next((str(tail) for tail in tails if is_file(root / tail)), None)
