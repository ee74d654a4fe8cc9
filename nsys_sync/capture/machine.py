"""What this machine has and allows, asked in ways that cannot hang: every process has its time."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from nsys_sync.capture.injection import injected, session_with

#: Prints what a Python has, as one line of JSON. PyTorch is not imported: that takes seconds, and may start CUDA.
_ASK_PYTHON = """
import json, os, sys
found = {"version": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable, "packages": {}}
try:
    from importlib import metadata, util
    for name in ("torch", "cupy", "jax", "nsys-sync"):
        try:
            found["packages"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if name.startswith("cupy-cuda"):
            found["packages"]["cupy"] = distribution.version
    spec = util.find_spec("torch")
    if spec is not None and spec.origin:
        space = {}
        with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as file:
            exec(file.read(), space)
        found["torch"] = str(space.get("__version__"))
        found["torch_cuda"] = space.get("cuda")
        found["torch_hip"] = space.get("hip")
except Exception as error:
    found["error"] = repr(error)
print("NSYS-SYNC " + json.dumps(found))
"""
#: Starts the CUDA driver and prints what it has, as one line of JSON.
_ASK_DRIVER = """
import ctypes, json
found = {"library": True, "init": None, "version": None, "devices": []}
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    print("NSYS-SYNC " + json.dumps({"library": False, "error": str(error)}))
    raise SystemExit
number = ctypes.c_int()
if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
    found["version"] = number.value
found["init"] = cuda.cuInit(0)
if found["init"] == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    for ordinal in range(number.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0 and cuda.cuDeviceGetName(name, 256, device) == 0:
            found["devices"].append(name.value.decode("utf-8", "replace"))
print("NSYS-SYNC " + json.dumps(found))
"""
_PYTHON_S = 30.0
_DRIVER_S = 60.0
_SMI_S = 30.0
_LAST_S = 1.0
#: perf_event_open by machine.
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "ppc64le": 319}


class Answer(NamedTuple):
    """A command's end: its exit code (None if its time was up) and what it said."""

    code: int | None
    text: str


class PythonFacts(NamedTuple):
    """A Python: versions of what it has. torch_cuda: the CUDA that its PyTorch is built for, None if for none."""

    executable: str
    version: tuple[int, int, int]
    packages: dict[str, str]
    torch: str | None
    torch_cuda: str | None
    torch_hip: str | None


class DriverFacts(NamedTuple):
    """The CUDA driver. answered: whether it did in time; version: the newest CUDA that it serves; init: of cuInit."""

    answered: bool
    library: bool = False
    version: tuple[int, int] | None = None
    init: int | None = None
    devices: tuple[str, ...] = ()


class Card(NamedTuple):
    """A GPU as nvidia-smi lists it."""

    name: str
    driver: str


class Space(NamedTuple):
    """A folder: its free bytes, and whether it can be written."""

    folder: Path
    free: int
    writable: bool


@dataclass(frozen=True)
class Machine:
    """This machine. environment: of the programs that it would run; root: where its files are looked for."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    root: Path = Path("/")

    def python(self, executable: str) -> PythonFacts | None:
        """What a Python has; None if it does not run."""
        answer = self.ask([executable, "-c", _ASK_PYTHON], _PYTHON_S)
        found = _told(answer)
        if found is None:
            return None
        numbers = [int(part) for part in found["version"].split(".")]
        return PythonFacts(
            found["executable"] or executable,
            (numbers[0], numbers[1], numbers[2]),
            found["packages"],
            found.get("torch"),
            found.get("torch_cuda"),
            found.get("torch_hip"),
        )

    def loads_target(self, executable: str) -> bool:
        """Whether a Python that runs under the launcher would load the target package."""
        with session_with("capture", {}) as session:
            environment = injected(session, (), self.environment)
            self.ask([executable, "-c", "pass"], _PYTHON_S, environment)
            return session.count("loaded-") > 0

    @cached_property
    def driver(self) -> DriverFacts:
        """The CUDA driver, started in a process of its own."""
        found = _told(self.ask([sys.executable, "-I", "-c", _ASK_DRIVER], _DRIVER_S))
        if found is None:
            return DriverFacts(answered=False)
        if not found["library"]:
            return DriverFacts(answered=True)
        version = None if found["version"] is None else (found["version"] // 1000, found["version"] % 1000 // 10)
        return DriverFacts(
            answered=True, library=True, version=version, init=found["init"], devices=tuple(found["devices"])
        )

    @cached_property
    def cards(self) -> list[Card]:
        """GPUs that nvidia-smi lists; none where there is no nvidia-smi."""
        program = shutil.which("nvidia-smi", path=self.environment.get("PATH"))
        if program is None:
            return []
        answer = self.ask([program, "--query-gpu=name,driver_version", "--format=csv,noheader"], _SMI_S)
        if answer.code != 0:
            return []
        rows = [line.rpartition(",") for line in answer.text.splitlines()]
        return [Card(name.strip(), driver.strip()) for name, comma, driver in rows if comma]

    @property
    def perf_paranoid(self) -> int | None:
        """The kernel's level of restriction for performance events; None where it does not say."""
        text = self._text("proc/sys/kernel/perf_event_paranoid").strip()
        return int(text) if re.fullmatch(r"-?\d+", text) else None

    @property
    def perf_refusal(self) -> str | None:
        """Why this process may not open a performance event of its own, by the name of the error; None if it may."""
        number = _PERF_EVENT_OPEN.get(platform.machine())
        if number is None or sys.platform != "linux":
            return None
        # perf_event_attr: a software event (1), the task's clock (1), disabled and without the kernel and hypervisor.
        attributes = (ctypes.c_uint32 * 32)(1, 128, 1, 0)
        attributes[10] = 0b1100001
        libc = ctypes.CDLL(None, use_errno=True)
        handle = int(libc.syscall(number, ctypes.byref(attributes), 0, -1, -1, 0))
        if handle >= 0:
            os.close(handle)
            return None
        return errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))

    @property
    def container(self) -> str | None:
        """The kind of container that this is; None if none shows."""
        if (self.root / ".dockerenv").exists():
            return "Docker"
        if (self.root / "run/.containerenv").exists():
            return "Podman"
        if self.environment.get("KUBERNETES_SERVICE_HOST"):
            return "Kubernetes"
        if self.environment.get("APPTAINER_CONTAINER") or self.environment.get("SINGULARITY_CONTAINER"):
            return "Apptainer"
        groups = self._text("proc/1/cgroup")
        found = re.search(r"docker|kubepods|containerd|libpod|lxc", groups)
        return found[0] if found else None

    @property
    def wsl(self) -> bool:
        """Whether this is Linux inside Windows."""
        return "microsoft" in self._text("proc/version").lower()

    @property
    def system(self) -> str:
        """The operating system and its kernel, in short."""
        release = self._text("etc/os-release")
        name = re.search(r'^PRETTY_NAME="?([^"\n]*)', release, flags=re.MULTILINE)
        return f"{name[1] if name else platform.system()}, kernel {platform.release()}, {platform.machine()}"

    def spaces(self) -> list[Space]:
        """The current folder and the one for temporary files."""
        folders = dict.fromkeys((Path.cwd(), Path(self.environment.get("TMPDIR") or tempfile.gettempdir())))
        return [_space(folder) for folder in folders]

    def ask(self, command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None) -> Answer:
        """Run a command; when its time is up it is killed, with all that it has started."""
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(self.environment if environment is None else environment),
                start_new_session=True,
            )
        except OSError as error:
            return Answer(127, str(error.strerror))
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # What hangs in a driver cannot be killed: it is not waited for.
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_LAST_S)
            return Answer(None, "")
        return Answer(process.returncode, out.decode("utf-8", "replace"))

    def _text(self, name: str) -> str:
        try:
            return (self.root / name).read_text("utf-8", "replace")
        except OSError:
            return ""


def _told(answer: Answer) -> dict[str, Any] | None:
    """The line that a question's program prints, among whatever else comes out of it."""
    for line in answer.text.splitlines():
        if line.startswith("NSYS-SYNC "):
            found = json.loads(line.removeprefix("NSYS-SYNC "))
            return found if isinstance(found, dict) else None
    return None


def _space(folder: Path) -> Space:
    try:
        return Space(folder, shutil.disk_usage(folder).free, os.access(folder, os.W_OK | os.X_OK))
    except OSError:
        return Space(folder, 0, writable=False)
