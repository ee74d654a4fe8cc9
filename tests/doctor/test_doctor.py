"""``nsys-sync doctor``: what it says about machines of all kinds."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsys_sync.capture import machine as machine_module
from nsys_sync.capture.machine import Answer, Card, DriverFacts, Machine, PythonFacts, Space
from nsys_sync.doctor import Check, Diagnosis, diagnose
from nsys_sync.report import doctor_text
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
FAKE_NSYS = ROOT / "tests/capture/fake_nsys.py"
H200 = DriverFacts(answered=True, library=True, version=(13, 0), init=0, devices=("NVIDIA H200", "NVIDIA H200"))


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """PATH holds an nsys, and nothing else but the system's own programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder / "nsys", f'#!/bin/sh\nexec "{sys.executable}" -I "{FAKE_NSYS}" "$@"\n')
    return {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a machine outside of containers that restricts nothing."""
    folder = tmp_path / "root"
    for name, text in {
        "proc/sys/kernel/perf_event_paranoid": "2\n",
        "proc/version": "Linux version 6.1.0 (gcc)",
        "proc/1/cgroup": "0::/init.scope\n",
        "run/utmp": "",
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


class Told(Machine):
    """A machine whose hardware and Python are told."""

    driver = H200
    cards = [Card("NVIDIA H200", "580.65.06")] * 2
    perf_refusal = None
    facts = PythonFacts("/env/bin/python", (3, 12, 3), {}, "2.11.0+cu130", "13.0", None)

    def python(self, executable: str) -> PythonFacts | None:
        return self.facts

    def loads_target(self, executable: str) -> bool:
        return True


def told(environment: dict[str, str], root: Path, **facts: Any) -> Machine:
    kind: type[Machine] = type("Machine", (Told,), facts)
    return kind(environment, root)


def checks(diagnosis: Diagnosis) -> dict[str, Check]:
    return {check.id: check for check in diagnosis.checks}


def shown(diagnosis: Diagnosis, width: int = 80) -> str:
    out = io.StringIO()
    doctor_text.render(diagnosis, file=out, width=width)
    return out.getvalue()


def test_a_machine_where_all_is_well(environment: dict[str, str], root: Path) -> None:
    diagnosis = diagnose(environment=environment, machine=told(environment, root))
    assert {check.status for check in diagnosis.checks if check.id not in ("importer", "disk")} == {"ok"}
    assert (diagnosis.works, diagnosis.exit_code) == (True, 0)
    found = checks(diagnosis)
    assert found["gpu"].found == "2 × NVIDIA H200, driver 580.65.06 (CUDA 13.0)"
    assert found["pytorch"].found == "2.11.0+cu130, built for CUDA 13.0"
    assert found["nsys"].found.startswith("2025.3.2 at ")
    assert found["records"].found == "Python stacks at syncs, samples of Python, CUDA graphs, the GIL"
    assert "profile works here" in shown(diagnosis)


BAD: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no driver": ({"driver": DriverFacts(answered=True), "cards": []}, "gpu", "fail", "no CUDA driver (libcuda.so.1)"),
    "smi without driver": ({"driver": DriverFacts(answered=True)}, "gpu", "fail", "nvidia-smi lists 2 × NVIDIA H200"),
    "a driver that hangs": ({"driver": DriverFacts(answered=False)}, "gpu", "fail", "does not answer"),
    "hidden GPUs": (
        {"driver": DriverFacts(answered=True, library=True, version=(13, 0), init=100)},
        "gpu",
        "fail",
        "no GPU is visible",
    ),
    "fabric manager": (
        {"driver": DriverFacts(answered=True, library=True, version=(13, 0), init=802)},
        "gpu",
        "fail",
        "the system is not ready",
    ),
    "an odd error": (
        {"driver": DriverFacts(answered=True, library=True, init=46)},
        "gpu",
        "fail",
        "cuInit returned 46",
    ),
    "no Python": ({"facts": None}, "python", "fail", "does not run"),
    "an old Python": ({"facts": PythonFacts("/p", (3, 7, 1), {}, None, None, None)}, "python", "warn", "3.8"),
    "a Python that is closed": (
        {"loads_target": lambda *_: False},
        "python",
        "warn",
        "does not load the module that counts steps",
    ),
    "PyTorch for the CPU": (
        {"facts": PythonFacts("/p", (3, 12, 1), {}, "2.13.0+cpu", None, None)},
        "pytorch",
        "warn",
        "2.13.0+cpu is built without CUDA.",
    ),
    "PyTorch for ROCm": (
        {"facts": PythonFacts("/p", (3, 12, 1), {}, "2.13.0", None, "6.4")},
        "pytorch",
        "warn",
        "ROCm",
    ),
    "PyTorch too new": (
        {"facts": PythonFacts("/p", (3, 12, 1), {"jax": "0.10"}, "2.13.0", "14.1", None)},
        "pytorch",
        "warn",
        "built for CUDA 14.1, the driver serves up to 13.0; also jax 0.10.",
    ),
    "perf": ({"perf_refusal": "EPERM"}, "sampling", "warn", "perf_event_open fails with EPERM"),
    "no space": ({"spaces": lambda _: [Space(Path("/w"), 1 << 20, True)]}, "disk", "fail", "/w is full"),
    "little space": ({"spaces": lambda _: [Space(Path("/w"), 1 << 30, True)]}, "disk", "warn", "1.0 GiB free"),
    "a read-only folder": (
        {"spaces": lambda _: [Space(Path("/w"), 1 << 40, False)]},
        "disk",
        "fail",
        "/w is not writable",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named_with_what_to_do(environment: dict[str, str], root: Path, name: str) -> None:
    facts, which, status, words = BAD[name]
    diagnosis = diagnose(environment=environment, machine=told(environment, root, **facts))
    check = checks(diagnosis)[which]
    assert (check.status, words in check.found) == (status, True), check
    assert check.fix or which == "pytorch"
    assert diagnosis.works == (status != "fail")


def test_without_nsys(environment: dict[str, str], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsys_sync.capture.nsys.INSTALL_PATTERNS", ())
    environment["PATH"] = "/usr/bin:/bin"
    diagnosis = diagnose(environment=environment, machine=told(environment, root))
    check = checks(diagnosis)["nsys"]
    assert (check.status, "was not found" in check.found) == ("fail", True)
    assert check.fix is not None
    assert "--nsys PATH" in check.fix
    assert diagnosis.exit_code == 1
    assert "profile cannot work here: nsys." in shown(diagnosis)


def test_a_broken_nsys(environment: dict[str, str], root: Path, tmp_path: Path) -> None:
    broken = program(tmp_path / "broken", "#!/bin/sh\necho 'cannot open shared object file' >&2\nexit 127\n")
    diagnosis = diagnose(str(broken), environment, told(environment, root))
    check = checks(diagnosis)["nsys"]
    assert (check.status, "cannot open shared object file" in check.found) == ("fail", True)


def test_an_nsys_that_records_less(environment: dict[str, str], root: Path, tmp_path: Path) -> None:
    (tmp_path / "help").write_text("\t-t, --trace=\n\t   Possible values are 'cuda', 'nvtx'.\n\t--sample=\n")
    environment["FAKE_NSYS"] = json.dumps({"help": str(tmp_path / "help")})
    check = checks(diagnose(environment=environment, machine=told(environment, root)))["records"]
    assert check.status == "warn"
    assert "not Python stacks at syncs, samples of Python, CUDA graphs, the GIL" in check.found


def test_a_container_without_rights(environment: dict[str, str], root: Path) -> None:
    (root / ".dockerenv").touch()
    (root / "proc/sys/kernel/perf_event_paranoid").write_text("4\n")
    environment["FAKE_NSYS"] = json.dumps({"sampling": "Fail"})
    diagnosis = diagnose(environment=environment, machine=told(environment, root, perf_refusal="EPERM"))
    check = checks(diagnosis)["sampling"]
    assert check.status == "warn"
    for words in ("perf_event_paranoid is 4", "EPERM", "Fail"):
        assert words in check.found
    assert check.fix is not None
    for words in ("kernel.perf_event_paranoid=2", "--cap-add SYS_ADMIN", "nsys-sync watch"):
        assert words in check.fix
    assert "in a container (Docker)" in checks(diagnosis)["system"].found
    assert diagnosis.works


def test_wsl_and_tools_that_are_attached(environment: dict[str, str], root: Path) -> None:
    (root / "proc/version").write_text("Linux version 5.15.90.1-microsoft-standard-WSL2")
    environment["CUDA_INJECTION64_PATH"] = "/opt/other.so"
    found = checks(diagnose(environment=environment, machine=told(environment, root)))
    assert (found["system"].status, "WSL" in found["system"].found) == ("warn", True)
    assert found["attached"].status == "warn"


@pytest.mark.parametrize("width", [40, 80, 140])
def test_it_is_one_screen(environment: dict[str, str], root: Path, width: int) -> None:
    text = shown(diagnose(environment=environment, machine=told(environment, root)), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert width < 80 or len(text.splitlines()) <= 24


def test_json_has_everything(environment: dict[str, str], root: Path) -> None:
    diagnosis = diagnose(environment=environment, machine=told(environment, root))
    found = json.loads(diagnosis.to_json())
    assert found["works"] is True
    assert {"id", "name", "status", "found", "fix"} == set(found["checks"][0])


def test_hostile_names_do_nothing(environment: dict[str, str], root: Path) -> None:
    driver = DriverFacts(answered=True, library=True, version=(13, 0), init=0, devices=("\x1b[31m[bold]",))
    text = shown(diagnose(environment=environment, machine=told(environment, root, driver=driver, cards=[])))
    assert "\x1b[31m" not in text
    assert "\\x1b[31m[bold]" in text


# --- the machine itself


def test_this_machine_can_be_looked_at(environment: dict[str, str]) -> None:
    environment["PATH"] = os.environ["PATH"]
    command = [sys.executable, "-m", "nsys_sync.cli", "doctor", "--json", "-"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False
    )
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["works"] else 1)
    python = next(check for check in found["checks"] if check["id"] == "python")
    assert python["status"] == "ok", python
    assert "profile" in done.stderr


def test_packages_are_found_without_importing_them(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "torch/version.py").write_text("__version__ = '2.5.1+cu124'\ncuda: str = '12.4'\nhip = None\n")
    environment["PYTHONPATH"] = str(tmp_path)
    facts = Machine(environment).python(sys.executable)
    assert facts is not None
    assert (facts.torch, facts.torch_cuda, facts.torch_hip) == ("2.5.1+cu124", "12.4", None)
    assert facts.version == sys.version_info[:3]


def test_a_python_that_prints_at_its_start_is_understood(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello from site')")
    environment["PYTHONPATH"] = str(tmp_path)
    machine = Machine(environment)
    assert machine.python(sys.executable) is not None
    assert machine.loads_target(sys.executable)


def test_a_closed_python_loads_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    closed = program(tmp_path / "python", f'#!/bin/sh\nexec "{sys.executable}" -I "$@"\n')
    assert not Machine(environment).loads_target(str(closed))


def test_what_hangs_is_killed_with_all_that_it_started(tmp_path: Path, environment: dict[str, str]) -> None:
    child = tmp_path / "child"
    hangs = program(tmp_path / "hangs", f'#!/bin/sh\nsleep 3600 &\necho $! >"{child}"\nwait\n')

    def started() -> str:
        return child.read_text().strip() if child.exists() else ""

    # However slowly it starts, one of these gives it the time for that.
    for seconds in (0.2 * 2**n for n in range(10)):
        assert Machine(environment).ask([str(hangs)], seconds) == Answer(None, "")
        if started():
            break
    wait_until(lambda: not _lives(int(started())))


def test_nothing_that_hangs_is_waited_for(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SMI_S", "_PYTHON_S"):
        monkeypatch.setattr(machine_module, name, 0.2)
    smi = program(tmp_path / "bin/nvidia-smi", "#!/bin/sh\nexec sleep 3600\n")
    assert Machine(environment).cards == []
    assert Machine(environment).python(str(smi)) is None


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_cards_are_read(tmp_path: Path, environment: dict[str, str]) -> None:
    program(tmp_path / "bin/nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 580.65.06'\necho 'A, odd name, 1.2'\n")
    assert Machine(environment).cards == [Card("NVIDIA H200", "580.65.06"), Card("A, odd name", "1.2")]
    program(tmp_path / "bin/nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert Machine(environment).cards == []


CONTAINERS: dict[str, tuple[Callable[[Path], object], dict[str, str], str | None]] = {
    "none": (lambda _: None, {}, None),
    "docker": (lambda root: (root / ".dockerenv").touch(), {}, "Docker"),
    "podman": (lambda root: (root / "run/.containerenv").touch(), {}, "Podman"),
    "kubernetes": (lambda _: None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes"),
    "apptainer": (lambda _: None, {"APPTAINER_CONTAINER": "/x.sif"}, "Apptainer"),
    "cgroup": (lambda root: (root / "proc/1/cgroup").write_text("1:cpu:/docker/0a1b\n"), {}, "docker"),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_are_recognised(root: Path, name: str) -> None:
    make, environment, kind = CONTAINERS[name]
    make(root)
    assert Machine(environment, root).container == kind
