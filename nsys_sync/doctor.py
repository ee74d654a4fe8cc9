"""What works on this machine, and what to do about what does not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from nsys_sync.analysis.findings import TOOL, Document, Plain
from nsys_sync.capture.machine import DriverFacts, Machine, PythonFacts, Space
from nsys_sync.capture.naming import find_python
from nsys_sync.capture.nsys import Nsys, find_nsys
from nsys_sync.errors import CaptureError, ExitCode

#: fail: ``profile`` cannot work here; warn: it works with less, or may not; info: nothing to do.
Status = Literal["ok", "info", "warn", "fail"]

_LITTLE_SPACE = 2 << 30
_NO_SPACE = 64 << 20
_OLDEST_PYTHON = (3, 8)
#: What cuInit says, for the causes that a person can do something about.
_CUDA_ERRORS = {
    3: ("it could not be initialised", "Look at dmesg; reboot if the driver was updated."),
    100: ("no GPU is visible", "Check CUDA_VISIBLE_DEVICES; start a container with --gpus all."),
    101: ("no usable GPU is visible", "Check CUDA_VISIBLE_DEVICES and MIG."),
    802: ("the system is not ready", "Start nvidia-fabricmanager (NVSwitch machines)."),
    803: (
        "the library and the kernel module differ",
        "Reboot after the driver's update; remove stray libcuda.so files.",
    ),
    804: ("forward compatibility is not supported here", "Use the libcuda of the installed driver."),
    999: ("an unknown error", "Look at dmesg; nvidia-smi must work first."),
}
#: Set where a tool is attached to CUDA already; nsys then records nothing, as CUDA serves only one.
_INJECTION = "CUDA_INJECTION64_PATH"


class Check(Plain, frozen=True, kw_only=True):
    """One thing looked at: what was found, and what to do (null where there is nothing to)."""

    id: str
    name: str
    status: Status
    found: str
    fix: str | None = None


class Diagnosis(Document, frozen=True, kw_only=True):
    """All checks. works: whether ``profile`` can work here."""

    works: bool
    checks: list[Check]

    @property
    def exit_code(self) -> int:
        """1 if ``profile`` cannot work here."""
        return ExitCode.OK if self.works else ExitCode.ERROR


def diagnose(
    nsys: str | None = None, environment: Mapping[str, str] | None = None, machine: Machine | None = None
) -> Diagnosis:
    """Look at everything that ``profile`` and ``watch`` need. nsys: ``--nsys``."""
    environment = dict(os.environ) if environment is None else environment
    machine = Machine(environment) if machine is None else machine
    checks = list(_Doctor(machine, environment, nsys).checks())
    return Diagnosis(
        format=1,
        tool=TOOL,
        works=all(check.status != "fail" for check in checks),
        checks=checks,
    )


@dataclass(frozen=True)
class _Doctor:
    machine: Machine
    environment: Mapping[str, str]
    nsys: str | None

    def checks(self) -> Iterator[Check]:
        executable = find_python(self.environment)
        python = self.machine.python(executable)
        yield self._python(executable, python)
        if python is not None:
            yield self._pytorch(python)
        yield self._gpu()
        try:
            found = find_nsys(self.nsys, self.environment)
            yield self._nsys(found)
            yield self._records(found)
            yield _importer(found)
            yield self._sampling(found.sampling_refusal)
        except CaptureError as error:
            yield Check(id="nsys", name="nsys", status="fail", found=error.message, fix=error.hint or None)
            yield self._sampling(None)
        yield from self._attached()
        yield self._system()
        yield from map(_disk, self.machine.spaces())

    def _python(self, executable: str, facts: PythonFacts | None) -> Check:
        def check(status: Status, found: str, fix: str | None = None) -> Check:
            return Check(id="python", name="Python", status=status, found=found, fix=fix)

        if facts is None:
            return check("fail", f"{executable} does not run.", "Activate the environment that your program runs in.")
        version = ".".join(map(str, facts.version))
        found = f"{version} at {facts.executable} runs your scripts"
        if facts.version < _OLDEST_PYTHON:
            return check(
                "warn",
                f"{found}; steps are counted and syncs watched from 3.8 on.",
                "Use a newer one, or --capture all.",
            )
        if not self.machine.loads_target(executable):
            return check(
                "warn",
                f"{found}, but it does not load the module that counts steps and watches syncs.",
                "Run it without -I, -E and -S (look at wrappers and aliases), or: nsys-sync profile --capture all",
            )
        return check("ok", found)

    def _pytorch(self, python: PythonFacts) -> Check:
        def check(status: Status, found: str, fix: str | None = None) -> Check:
            return Check(id="pytorch", name="PyTorch", status=status, found=found, fix=fix)

        others = " and ".join(f"{name} {python.packages[name]}" for name in ("cupy", "jax") if name in python.packages)
        if python.torch is None:
            return check("info", f"not in this Python{f', which has {others}' if others else ''}")
        also = f"; also {others}" if others else ""
        if python.torch_hip:
            return check("warn", f"{python.torch} is built for ROCm: Nsight Systems records NVIDIA GPUs only.")
        if python.torch_cuda is None:
            return check(
                "warn",
                f"{python.torch} is built without CUDA{also}.",
                "Install a build for CUDA: https://pytorch.org/get-started/locally/",
            )
        served = self.machine.driver.version
        wanted = tuple(int(part) for part in python.torch_cuda.split(".")[:2])
        if served is not None and wanted[0] > served[0]:
            return check(
                "warn",
                f"{python.torch} is built for CUDA {python.torch_cuda}, the driver serves up to "
                f"{served[0]}.{served[1]}{also}.",
                "Update the driver, or install a build for an older CUDA.",
            )
        return check("ok", f"{python.torch}, built for CUDA {python.torch_cuda}{also}")

    def _gpu(self) -> Check:
        def check(status: Status, found: str, fix: str | None = None) -> Check:
            return Check(id="gpu", name="GPU", status=status, found=found, fix=fix)

        driver, cards = self.machine.driver, self.machine.cards
        if not driver.answered:
            return check("fail", "the CUDA driver does not answer.", "Look at nvidia-smi and dmesg.")
        if not driver.library:
            seen = f"nvidia-smi lists {_counted([card.name for card in cards])}, but " if cards else ""
            return check(
                "fail",
                f"{seen}there is no CUDA driver (libcuda.so.1).",
                "Profile on the machine with the GPU; start a container with --gpus all. A trace made there can be "
                "read anywhere: nsys-sync report TRACE",
            )
        if driver.init != 0 or not driver.devices:
            why, fix = _CUDA_ERRORS.get(driver.init or 100, (f"cuInit returned {driver.init}", "Look at dmesg."))
            return check("fail", f"the CUDA driver does not start: {why}.", fix)
        return check("ok", f"{_counted(driver.devices)}, {_driver_name(driver, cards[0].driver if cards else None)}")

    def _nsys(self, nsys: Nsys) -> Check:
        return Check(id="nsys", name="nsys", status="ok", found=f"{nsys.version_name} at {nsys.path}")

    def _records(self, nsys: Nsys) -> Check:
        known, exports = nsys.profile_options, nsys.export_options
        can = {
            "Python stacks at syncs": "--python-backtrace" in known and "--cudabacktrace" in known,
            "samples of Python": "--python-sampling" in known,
            "CUDA graphs": "--cuda-graph-trace" in known,
            "the GIL": known.allows("--trace", "python-gil"),
        }
        exported = "--include-json" in exports or "--include-blobs" in exports
        yes = [name for name, known_here in can.items() if known_here]
        no = [name for name, known_here in can.items() if not known_here]
        found = f"{', '.join(yes)}" + (f"; not {', '.join(no)}" if no else "")
        if not can["Python stacks at syncs"]:
            fix = "Install a newer Nsight Systems (from 2023.3 on): https://developer.nvidia.com/nsight-systems"
            return Check(id="records", name="it records", status="warn", found=found, fix=fix)
        if not exported:
            found += "; its SQLite export leaves Python frames out (they are read from its JSON export)"
        return Check(id="records", name="it records", status="ok", found=found)

    def _sampling(self, refusal: str | None) -> Check:
        level, own = self.machine.perf_paranoid, self.machine.perf_refusal
        if refusal is None and own is None and (level is None or level <= 2):
            allowed = "allowed" if level is None else f"allowed (perf_event_paranoid is {level})"
            return Check(id="sampling", name="CPU sampling", status="ok", found=allowed)
        said = [refusal] if refusal else []
        said += [f"perf_event_paranoid is {level}"] if level is not None and level > 2 else []
        said += [f"perf_event_open fails with {own}"] if own is not None else []
        fixes = ["as root: sysctl kernel.perf_event_paranoid=2"] if level is None or level > 2 else []
        if self.machine.container is not None:
            fixes.append(
                "start the container with --cap-add SYS_ADMIN, or a seccomp profile that allows perf_event_open"
            )
        return Check(
            id="sampling",
            name="CPU sampling",
            status="warn",
            found=f"not allowed ({'; '.join(said)}): no Python stacks, syncs are named by their API alone.",
            fix=_sentence("; ".join(fixes) or "allow performance events to this user")
            + " Or without it: nsys-sync watch",
        )

    def _attached(self) -> Iterator[Check]:
        if self.environment.get(_INJECTION):
            yield Check(
                id="attached",
                name="other tools",
                status="warn",
                found=f"{_INJECTION} is set: a tool is attached to CUDA already, and CUDA serves only one.",
                fix=f"Unset it for the run: env -u {_INJECTION} nsys-sync profile …",
            )

    def _system(self) -> Check:
        container = self.machine.container
        found = self.machine.system + (f"; in a container ({container})" if container else "")
        if self.machine.wsl:
            return Check(
                id="system",
                name="system",
                status="warn",
                found=f"{found}; WSL: CUDA calls are recorded, CPU samples may not be.",
                fix="Where Python stacks are missing: nsys-sync watch, or profile on Linux itself.",
            )
        return Check(id="system", name="system", status="ok", found=found)


def _importer(nsys: Nsys) -> Check:
    if nsys.importer is not None:
        return Check(id="importer", name="its host part", status="ok", found=f"beside it ({nsys.importer.parent.name})")
    return Check(
        id="importer",
        name="its host part",
        status="warn",
        found="not beside it: it may leave a .qdstrm in place of a report.",
        fix="Install the full package, or convert with QdstrmImporter where that is.",
    )


def _disk(space: Space) -> Check:
    found = f"{space.folder}: {space.free / (1 << 30):,.1f} GiB free"
    if not space.writable or space.free < _NO_SPACE:
        why = "not writable" if not space.writable else "full"
        fix = "Write elsewhere (-o PATH), and move nsys's drafts with TMPDIR."
        return Check(id="disk", name="disk", status="fail", found=f"{space.folder} is {why}.", fix=fix)
    if space.free < _LITTLE_SPACE:
        fix = "Make room, write elsewhere with -o, or move nsys's drafts with TMPDIR."
        return Check(id="disk", name="disk", status="warn", found=f"{found}; a capture may need more.", fix=fix)
    return Check(id="disk", name="disk", status="ok", found=found)


def _counted(names: list[str] | tuple[str, ...]) -> str:
    kinds = {name: names.count(name) for name in names}
    return ", ".join(name if number == 1 else f"{number} × {name}" for name, number in kinds.items())


def _driver_name(driver: DriverFacts, number: str | None) -> str:
    served = "" if driver.version is None else f" (CUDA {driver.version[0]}.{driver.version[1]})"
    return f"driver {number}{served}" if number else f"a driver{served}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
