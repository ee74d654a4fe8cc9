"""What runs inside the profiled program: standard library only, Python 3.8 syntax, and it never breaks the program.

The launcher puts ``inject/`` first in PYTHONPATH; the sitecustomize there loads this package under the name
``_nsys_sync_target`` in every Python that the program starts, whether or not nsys-sync is installed for it, and calls
``start_modules``. MODULES_VARIABLE names the modules of this package to start, SESSION_VARIABLE a private folder
through which they and the launcher speak. A module is started by its ``start(session)``.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself takes longer to import than all that runs here
if TYPE_CHECKING:
    from typing import Any

#: Comma-separated names of the modules to start (``capture``).
MODULES_VARIABLE = "NSYS_SYNC_TARGET"
#: Path of the folder that the launcher made for this run.
SESSION_VARIABLE = "NSYS_SYNC_SESSION"


class Session:
    """The folder through which the launcher and the processes of one run speak.

    Files are JSON: the launcher writes ``NAME.json``, a process writes ``NAME-PID.json``. Markers are empty files.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, name: str) -> str:
        """Path of a file of the session."""
        return os.path.join(self.folder, name)

    def config(self, name: str) -> dict[str, Any]:
        """What the launcher left for the module NAME; empty if nothing."""
        import json

        try:
            with open(self.path(name + ".json"), encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Replace ``NAME.json`` in one step, so that a reader never meets half a file."""
        import json

        target = self.path(name + ".json")
        partial = f"{target}.{os.getpid()}.part"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(values, file)
        os.replace(partial, target)

    def report(self, name: str, values: dict[str, Any]) -> None:
        """Write what this process has to say, as ``NAME-PID.json``."""
        self.write(f"{name}-{os.getpid()}", values)

    def reports(self, name: str) -> list[dict[str, Any]]:
        """What all processes have said under NAME, in order of their pids."""
        found = []
        for entry in sorted(self._entries()):
            stem, extension = os.path.splitext(entry)
            if extension == ".json" and stem.startswith(name + "-") and stem[len(name) + 1 :].isdigit():
                found.append((int(stem[len(name) + 1 :]), self.config(stem)))
        return [values for _, values in sorted(found, key=lambda pair: pair[0])]

    def mark(self, name: str) -> bool:
        """Create the marker; False if it was there already. Of several processes exactly one gets True."""
        try:
            os.close(os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def marked(self, name: str) -> bool:
        """Whether the marker is there."""
        return os.path.exists(self.path(name))

    def count(self, prefix: str) -> int:
        """How many markers begin so."""
        return sum(entry.startswith(prefix) for entry in self._entries())

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []  # somebody has tidied up


def is_ours(error: BaseException) -> bool:
    """Whether an error arose in our own code, or in what that calls, and not in a signal handler of the program."""
    at = error.__traceback__
    if at is None:
        return True
    while at.tb_next is not None:
        at = at.tb_next
    return at.tb_frame.f_code.co_filename.startswith(_OWN_FOLDERS)


#: Of this package, and of the standard library.
_OWN_FOLDERS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, os.path.dirname(os.__file__) + os.sep, "<frozen ")


def complain(text: str) -> None:
    """Say one line on stderr: all that a failure of ours may do to the program."""
    try:
        sys.stderr.write(f"nsys-sync: {' '.join(text.split())} (the program runs on without it)\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def current_session() -> Session | None:
    """The session that this process belongs to, None outside of one."""
    folder = os.environ.get(SESSION_VARIABLE)
    return Session(folder) if folder else None


def start_modules() -> None:
    """Start the modules that the environment names. Whatever goes wrong is one line on stderr."""
    session = current_session()
    if session is None:
        return
    try:
        session.mark(f"loaded-{os.getpid()}")
    except OSError as error:
        complain(f"the session's folder cannot be written: {error}")
        return
    for name in filter(None, os.environ.get(MODULES_VARIABLE, "").split(",")):
        try:
            __import__(f"{__name__}.{name}")
            sys.modules[f"{__name__}.{name}"].start(session)
        except Exception as error:  # noqa: BLE001 - whatever it is, the program must run
            complain(f"the module {name} did not start: {error!r}")
