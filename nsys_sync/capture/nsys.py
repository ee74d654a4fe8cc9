"""The Nsight Systems command line: where it is, which version, which options it knows, what this machine lets it do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from nsys_sync.errors import CaptureError
from nsys_sync.paths import expanded, is_file, is_folder

VARIABLE = "NSYS_SYNC_NSYS"

#: Where installers put it, newest version last within a pattern. Nsight Compute ships a copy whose exporter often
#: lies elsewhere, so it comes after the real ones.
INSTALL_PATTERNS = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/target-linux-*/nsys",
    "/opt/nsight-systems/*/bin/nsys",
    "/usr/local/cuda/bin/nsys",
    "/usr/local/cuda-*/bin/nsys",
    "/usr/local/cuda-*/nsight-systems-*/bin/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
    "/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64/nsys",
    "~/.cache/nsys-sync/nsight-systems-*/bin/nsys",
    "~/nsight-systems-*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
)

_BUILD = re.compile(r"\b\d{4}(?:\.\d+)+")
_VERSION = re.compile(r"\b(\d{4})\.(\d+)(?:\.(\d+))?")
#: A line of the help that begins the description of an option; descriptions are indented further.
_OPTION = re.compile(r"^ {0,2}(?:\([^)]*\) )?(?:(-\w), )?(--[A-Za-z][\w-]*)(?:[\[=<\s]|$)")
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Options:
    """The options of one nsys command, as its --help describes them: text by long name, long name by short one."""

    text: Mapping[str, str]
    long: Mapping[str, str]

    def __contains__(self, name: str) -> bool:
        return name in self.text

    def allows(self, name: str, value: str) -> bool:
        """Whether the help names VALUE among those of the option."""
        return re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", self.text.get(name, "")) is not None

    @classmethod
    def parse(cls, text: str) -> Options:
        """Options out of ``nsys COMMAND --help``."""
        found: dict[str, list[str]] = {}
        long: dict[str, str] = {}
        lines: list[str] = []
        for line in text.expandtabs(2).splitlines():
            option = _OPTION.match(line)
            if option is not None:
                lines = found.setdefault(option[2], [])
                if option[1]:
                    long[option[1]] = option[2]
            lines.append(line)
        return cls({name: "\n".join(part) for name, part in found.items()}, long)

    def name_of(self, argument: str) -> str:
        """The long name of the option that an argument sets: ``--trace`` for ``-t`` and ``--trace=cuda``."""
        name = argument.partition("=")[0]
        return self.long.get(name[:2], name) if not name.startswith("--") else name


@dataclass(frozen=True)
class Nsys:
    """One installed nsys. Its help and version are read when they are first needed."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

    @cached_property
    def version(self) -> tuple[int, int, int]:
        """Year, release and patch; zeros if it will not say."""
        found = _VERSION.search(self.version_text)
        return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)

    @property
    def version_name(self) -> str:
        """The version as people write it: ``2025.3.2``."""
        return ".".join(map(str, self.version))

    @property
    def build(self) -> str:
        """The version as exports record it, build number included: ``2025.3.2.0``."""
        found = _BUILD.search(self.version_text)
        return found[0] if found else self.version_name

    @cached_property
    def version_text(self) -> str:
        """The output of ``nsys --version``. Raises CaptureError if it cannot be run."""
        return self.ask("--version")

    @cached_property
    def profile_options(self) -> Options:
        """Options of ``nsys profile``. Raises CaptureError if there are none: it is some other program."""
        found = Options.parse(self.ask("profile", "--help"))
        if not found.text:
            raise self._broken("it does not list the options of nsys profile")
        return found

    @cached_property
    def export_options(self) -> Options:
        """Options of ``nsys export``."""
        return Options.parse(self.ask("export", "--help"))

    @cached_property
    def sampling_refusal(self) -> str | None:
        """Why this machine does not let nsys sample the CPU, in nsys's own words; None if it does or will not say.

        Without sampling nsys collects no backtraces.
        """
        text = self.ask("status", "--environment", check=False)
        return next((line.strip() for line in text.splitlines() if _refuses(line)), None)

    def ask(self, *arguments: str, check: bool = True) -> str:
        """Output of a short command. Raises CaptureError if it cannot be run, or fails and ``check`` is set."""
        try:
            done = subprocess.run(
                [str(self.path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self.environment,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._broken(str(error)) from None
        text = done.stdout.decode("utf-8", "replace")
        if check and done.returncode != 0:
            raise self._broken(text.strip().splitlines()[-1] if text.strip() else f"exit code {done.returncode}")
        return text

    @cached_property
    def importer(self) -> Path | None:
        """QdstrmImporter of the host part beside this nsys: it turns a .qdstrm into a report; None without one."""
        target = self.path.resolve().parent
        patterns = ("host-linux-*/QdstrmImporter", "linux-desktop-*/QdstrmImporter")
        for folder in (target.parent, target.parent.parent):
            for pattern in patterns:
                found = sorted(folder.glob(pattern))
                if found:
                    return found[-1]
        return None

    def _broken(self, reason: str) -> CaptureError:
        return CaptureError(
            "nsys-broken", f"{self.path} cannot be run: {reason}.", "Name another one with --nsys, or install it again."
        )


def _refuses(line: str) -> bool:
    """Whether a line of the status tells that the process tree cannot be sampled."""
    name, _, state = line.rpartition(":")
    return "process-tree" in name and "Environment" in name and state.strip().lower() not in ("ok", "")


def candidates(explicit: str | None, environment: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    """Places to look at, best first: what a person calls them, and the program there if there is one."""
    if explicit is not None:
        yield f"--nsys {explicit}", _program(explicit, environment)
        return
    named = environment.get(VARIABLE)
    if named:
        yield f"{VARIABLE}={named}", _program(named, environment)
        return
    yield "PATH", _program("nsys", environment)
    home = environment.get("HOME", "/")
    for pattern in INSTALL_PATTERNS:
        yield pattern, _newest(pattern.replace("~", home, 1) if pattern.startswith("~") else pattern)


def find_nsys(explicit: str | None = None, environment: Mapping[str, str] | None = None) -> Nsys:
    """The nsys to use: ``--nsys``, the variable NSYS_SYNC_NSYS, PATH, the usual install folders, in this order.

    Raises CaptureError that names what was looked at.
    """
    environment = dict(os.environ) if environment is None else environment
    looked_at = []
    for place, program in candidates(explicit, environment):
        if program is not None:
            return Nsys(program, environment)
        looked_at.append(place)
    raise CaptureError(
        "nsys-not-found",
        f"Nsight Systems (nsys) was not found; looked at {', '.join(looked_at)}.",
        "Install it (https://developer.nvidia.com/nsight-systems), or name it: --nsys PATH",
    )


def _program(name: str, environment: Mapping[str, str]) -> Path | None:
    """An executable by path, by name on PATH, or inside the folder of an installation."""
    path = expanded(name)
    if is_folder(path):
        inside: Sequence[Path] = [path / "nsys", path / "bin/nsys", *sorted(path.glob("target-linux-*/nsys"))]
        return next((found for found in inside if os.access(found, os.X_OK) and is_file(found)), None)
    found = shutil.which(str(path), path=environment.get("PATH"))
    return Path(found).absolute() if found else None


def _newest(pattern: str) -> Path | None:
    found = [path for path in Path("/").glob(pattern.lstrip("/")) if os.access(path, os.X_OK)]
    return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", str(path))], default=None)
