"""What is run, and what the files of a run are called."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nsys_sync.errors import OutputError, UsageError
from nsys_sync.paths import expanded, is_file, is_folder, unwritable

#: Endings of the files of one run; all of them share a base name.
SUFFIXES = (".nsys-rep", ".sqlite", ".html", ".json")
#: Installations that hold a tool of their own and not the user's packages.
_ISOLATED = re.compile(r"/(pipx/venvs|uv/tools)/")
_UNSAFE = re.compile(r"[^\w.+-]+")
_FIELD = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class Program:
    """What to run: its command line, and the short name of the script in it."""

    command: list[str]
    name: str

    @property
    def shown(self) -> str:
        """The command line, as a shell takes it."""
        return shlex.join(self.command)


def find_program(words: Sequence[str], environment: Mapping[str, str]) -> Program:
    """From ``train.py …`` or ``-m pkg.mod …`` (run by the Python in use) or any other command line.

    Raises UsageError if there is nothing to run or it cannot be found.
    """
    if not words or not words[0] or words == ["-m"]:
        raise UsageError("no-program", "There is no program to run.", "Name a script, -m MODULE or a command.")
    first = words[0]
    if first == "-m":
        return Program([find_python(environment), *words], words[1])
    path = expanded(first)
    # A name that begins like an option is one to Python, and to a shell.
    name = f"./{path}" if str(path).startswith("-") else str(path)
    if path.suffix in (".py", ".pyw"):
        if not is_file(path):
            raise UsageError("missing-program", f"{first} does not exist.", "Check the path.")
        return Program([find_python(environment), name, *words[1:]], path.stem)
    if shutil.which(name, path=environment.get("PATH")) is None:
        raise UsageError(
            "missing-program", f"{first} is neither a Python script nor a program on PATH.", "Check the path."
        )
    scripts = [Path(word).stem for word in words[1:] if word.endswith(".py")]
    return Program([name, *words[1:]], scripts[0] if scripts else path.name)


def find_python(environment: Mapping[str, str]) -> str:
    """The Python to run a script with: of the active environment, else the one that nsys-sync is installed in.

    Where nsys-sync has an environment of its own (pipx, uv tool) that is not meant, but the python on PATH.
    """
    active = environment.get("VIRTUAL_ENV") or environment.get("CONDA_PREFIX")
    if active and (python := Path(active, "bin/python")).exists():
        return str(python)
    if _ISOLATED.search(f"{sys.prefix}/"):
        for name in ("python", "python3"):
            found = shutil.which(name, path=environment.get("PATH"))
            if found is not None:
                return found
    return sys.executable


def own_rank(environment: Mapping[str, str]) -> int | None:
    """This process's rank under torchrun, mpirun or srun; None if it was started alone."""
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    return None


def output_base(template: str | None, program: Program, environment: Mapping[str, str], *, force: bool) -> Path:
    """Absolute path of the run's files without their endings.

    A template's {script}, {time}, {rank}, {host}, {pid} are filled in. Without one the name is new for each run.
    Raises OutputError if a file is there already and ``force`` is not set, UsageError for an unknown field.
    """
    rank = own_rank(environment)
    fields = {
        "script": _UNSAFE.sub("-", program.name).strip("-.") or "program",
        "time": datetime.now().astimezone().strftime("%Y%m%d-%H%M%S"),
        "rank": "0" if rank is None else str(rank),
        "host": socket.gethostname().partition(".")[0],
        "pid": str(os.getpid()),
    }
    if template is None:
        base = Path("{script}-{time}".format(**fields) + ("" if rank is None else f"-rank{rank}")).absolute()
        with _looking_at(base):
            return _unused(base)
    for name in _FIELD.findall(template):
        if name not in fields:
            known = ", ".join(f"{{{field}}}" for field in fields)
            raise UsageError("bad-output-name", f"-o {template}: {{{name}}} is unknown.", f"Known are {known}.")
    text = _FIELD.sub(lambda found: fields[found[1]], template)
    suffix = next((suffix for suffix in SUFFIXES if text.endswith(suffix)), "")
    base = expanded(text.removesuffix(suffix)).absolute()
    if not base.name or text.endswith("/") or is_folder(base):
        raise UsageError(
            "bad-output-name", f"-o {shlex.quote(template)} names no file.", f"For example: -o {_inside(template)}"
        )
    with _looking_at(base):
        if not force:
            _refuse_existing(base)
    return base


@contextmanager
def _looking_at(base: Path) -> Iterator[None]:
    """Around questions about a run's files: what the system will not answer, as for too long a name, is an error."""
    try:
        yield
    except OSError as error:
        raise unwritable(base, error) from None


def _inside(folder: str) -> str:
    return shlex.quote(folder.rstrip("/") + "/run" if folder else "run")


def make_folder(base: Path) -> None:
    """Make the folder of a run's files. Raises OutputError if that cannot be, or if it is not writable."""
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(base.parent, error) from None
    if not os.access(base.parent, os.W_OK | os.X_OK):
        raise OutputError("unwritable", f"The folder {base.parent} is not writable.", "Name another one with -o.")


def with_suffix(base: Path, suffix: str) -> Path:
    """The file of a run with this ending; dots in the base name stay."""
    return base.with_name(base.name + suffix)


def _refuse_existing(base: Path) -> None:
    there = [path for suffix in SUFFIXES if (path := with_suffix(base, suffix)).exists()]
    if there:
        raise OutputError("output-exists", f"{there[0]} exists already.", "Choose another -o, or replace it: --force")


def _unused(base: Path) -> Path:
    candidate, number = base, 1
    while any(with_suffix(candidate, suffix).exists() for suffix in SUFFIXES):
        number += 1
        candidate = base.with_name(f"{base.name}-{number}")
    return candidate
