"""The package that is loaded into the program: what it may never do, and what it finds out about the program."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nsys_sync.capture import target
from nsys_sync.capture.target import Session, imports, ranks, sources
from nsys_sync.capture.target.driver import Driver
from nsys_sync.capture.target.frameworks import Rounds
from nsys_sync.capture.target.nvtx import Nvtx
from nsys_sync.capture.target.range import Capture, Plan

FOLDER = Path(target.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_needs_python_3_8_and_the_standard_library_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "sitecustomize"}


def test_its_folder_on_the_path_holds_one_module() -> None:
    assert [path.name for path in (FOLDER / "inject").iterdir() if path.suffix == ".py"] == ["sitecustomize.py"]


def injected(session: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(FOLDER / "inject"),
        target.MODULES_VARIABLE: "capture",
        target.SESSION_VARIABLE: str(session),
        **variables,
    }
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_module_that_fails_costs_one_line(tmp_path: Path) -> None:
    done = injected(tmp_path, "print('fine')", **{target.MODULES_VARIABLE: "capture,nothing"})
    assert (done.returncode, done.stdout) == (0, "fine\n")
    assert done.stderr.count("\n") == 1
    assert "the module nothing did not start" in done.stderr


@pytest.mark.parametrize("folder", ["/proc/nothing", "/dev/null"])
def test_a_session_that_cannot_be_written_costs_one_line(folder: str) -> None:
    done = injected(Path(folder), "print('fine')")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "fine\n", 1)


def test_a_damaged_plan_costs_one_line(tmp_path: Path, gpu_library: Path) -> None:
    (tmp_path / "capture.json").write_text("{")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent / 'site-packages')!r}); import torch; print('fine')"
    )
    done = injected(tmp_path, code, FAKE_GPU=str(gpu_library))
    assert done.stdout == "fine\n", done.stderr
    assert done.stderr.count("nsys-sync: ") == done.stderr.count("\n") > 0


def test_outside_of_a_session_nothing_happens(tmp_path: Path) -> None:
    done = injected(
        tmp_path, "import sys; print('_nsys_sync_target.capture' in sys.modules)", **{target.SESSION_VARIABLE: ""}
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_sitecustomize_that_fails_fails_as_it_would_without_us(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import not_installed_anywhere\n")
    done = injected(tmp_path, "print('fine')", PYTHONPATH=f"{FOLDER / 'inject'}:{own}")
    assert done.stdout == "fine\n"
    assert "not_installed_anywhere" in done.stderr
    assert list(tmp_path.glob("loaded-*"))


# Import hooks


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module with this text; its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def write(text: str) -> str:
        name = f"hooked_{tmp_path.name}_{len(made)}"
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        made.append(name)
        return name

    return write


def test_hooks_run_once_when_the_module_is_complete(module: Callable[[str], str]) -> None:
    name = module("complete = True\n")
    seen: list[bool] = []
    imports.when_imported(name, lambda: seen.append(sys.modules[name].complete))
    assert seen == []
    importlib.import_module(name)
    loader = sys.modules[name].__spec__.loader  # type: ignore[union-attr]
    assert "exec_module" not in vars(loader)
    importlib.reload(sys.modules[name])
    imports.when_imported(name, lambda: seen.append(True))
    assert seen == [True, True]


def test_a_failing_hook_does_not_fail_the_import(
    module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = module("")
    imports.when_imported(name, lambda: 1 / 0)  # type: ignore[arg-type]
    importlib.import_module(name)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_failing_import_fails_as_it_would_without_us(module: Callable[[str], str]) -> None:
    name = module("raise RuntimeError('broken')\n")
    seen: list[int] = []
    imports.when_imported(name, lambda: seen.append(1))
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module(name)
    imports.when_imported("not_installed_anywhere", lambda: seen.append(2))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("not_installed_anywhere")
    assert seen == []


# What the sources say


@pytest.mark.parametrize(
    ("text", "opens", "other"),
    [
        ("torch.cuda.cudart().cudaProfilerStart()", 1, None),
        ("import torch.cuda.profiler as prof\nprof.start()", 2, None),
        ("from torch.cuda import profiler\nwith profiler.profile(): pass", 2, None),
        ("from cupyx import profiler\nwith profiler.profile(): pass", 2, None),
        ("import ctypes\ngetattr(ctypes.CDLL('libcudart.so'), 'cudaProfilerStart')()", 2, None),
        ("from numba import cuda\nwith cuda.profiling(): pass", 2, None),
        ("import torch\nwith torch.profiler.profile() as p: pass", None, 2),
        ("from torch.profiler import profile\nwith profile() as p: pass", None, 2),
        ("import jax\njax.profiler.start_trace('/tmp')", None, 2),
        ("# call cudaProfilerStart() some day\nx = 'see cudaProfilerStart'", None, None),
        ("from cProfile import Profile\nprofiler = Profile()\nprofiler.start = 1", None, None),
        ("import profiler\nprofiler.start()", None, None),
        ("def broken(:  # cudaProfilerStart", None, None),
    ],
)
def test_calls_to_profilers(tmp_path: Path, text: str, opens: int | None, other: int | None) -> None:
    path = tmp_path / "script.py"
    path.write_text(text)
    assert sources.in_file(str(path)) == (
        f"{path}:{opens}" if opens else None,
        f"{path}:{other}" if other else None,
    )


def test_only_the_programs_own_files_are_read() -> None:
    files = list(sources.own_files())
    assert __file__ in files
    assert not [path for path in files if "site-packages" in path or Path(path).is_relative_to(FOLDER)]
    assert ast.__file__ not in files


# Ranks and rounds


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 4)),
        ({"RANK": "3"}, None),
        ({"RANK": "x", "WORLD_SIZE": "8"}, None),
    ],
)
def test_ranks(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: tuple[int, int] | None) -> None:
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ranks.own_rank() == expected


@pytest.mark.parametrize(
    ("order", "ends"),
    [
        ("aaa", [True, True, True]),
        ("abab", [True, False, True, False]),
        ("aabaab", [True, True, False, True, True, False]),
        ("aabbb", [True, True, False, True, True]),
    ],
)
def test_a_step_ends_when_the_first_optimizer_steps_again(order: str, ends: list[bool]) -> None:
    optimizers = {name: object() for name in order}
    rounds = Rounds()
    assert [rounds.ends_step(optimizers[name]) for name in order] == ends


# Driver and NVTX against the stand-in


@pytest.fixture
def driver(gpu_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Driver, Path]:
    """The stand-in, with its device in use, and its log."""
    import ctypes

    log = tmp_path / "gpu-log"
    monkeypatch.setenv("FAKE_GPU_LOG", str(log))
    ctypes.CDLL(str(gpu_library)).fakeUseDevice()
    found = Driver.loaded()
    assert found is not None
    return found, log


def calls(log: Path) -> list[str]:
    return [line.partition(" ")[2] for line in log.read_text().splitlines()]


def test_the_driver_keeps_the_threads_own_context(driver: tuple[Driver, Path]) -> None:
    found, log = driver
    assert found.devices() == [0]
    found.synchronize()
    assert found.start_profiler()
    assert found.stop_profiler()
    assert calls(log) == [
        *("push", "synchronize", "pop"),
        *("push", "profiler start", "pop"),
        *("push", "profiler stop", "pop"),
    ]


def test_nvtx_reaches_the_profiler_and_does_nothing_without_one(driver: tuple[Driver, Path], gpu_library: Path) -> None:
    _, log = driver
    nvtx = Nvtx(str(gpu_library))
    handle = nvtx.start("région")
    nvtx.mark("point")
    nvtx.end(handle)
    assert calls(log) == ["begin région", "mark point", f"end {handle}"]
    for absent in (Nvtx(""), Nvtx("/no/such/library.so"), Nvtx("libc.so.6")):
        absent.end(absent.start("x"))
        absent.mark("x")


# Time


class Clock:
    """A clock that is set by hand (ns)."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


@pytest.fixture
def make(
    driver: tuple[Driver, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Capture, Clock]]:
    """A capture by this plan, with a clock of its own; the sources hold no profiler calls."""
    monkeypatch.setattr(sources, "profiler_calls", lambda: (None, None))

    def made(**plan: object) -> tuple[Capture, Clock]:
        clock = Clock()
        return Capture(Session(str(tmp_path)), Plan.of(plan), Nvtx(""), lambda: driver[0], clock), clock

    return made


def opened_after(capture: Capture, clock: Clock, limit: float = 100) -> float | None:
    """Seconds until the capture opens by itself; None if it does not."""
    for _ in range(int(limit * 2)):
        capture.tick()
        if capture.state == "leading":
            return clock.now / 1e9
        clock.advance(0.5)
    return None


def test_without_steps_the_capture_opens_by_time(
    make: Callable[..., tuple[Capture, Clock]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    capture, clock = make(mode="auto")
    assert opened_after(capture, clock) == 20
    clock.advance(4.9)
    assert capture.tick()
    clock.advance(0.2)
    assert not capture.tick()
    assert capture.state == "done"


def test_without_pytorch_no_step_is_waited_for(
    make: Callable[..., tuple[Capture, Clock]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert opened_after(*make(mode="auto")) == 5


def test_with_an_optimizer_steps_are_waited_for_longer(
    make: Callable[..., tuple[Capture, Clock]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("nsys_sync.capture.target.range.has_optimizer", lambda: True)
    assert opened_after(*make(mode="auto")) == 60


def test_once_steps_come_time_no_longer_opens(make: Callable[..., tuple[Capture, Clock]]) -> None:
    capture, clock = make(mode="auto")
    capture.boundary("optimizer")
    assert opened_after(capture, clock) is None


def test_steps_asked_for_are_waited_for_without_end(make: Callable[..., tuple[Capture, Clock]]) -> None:
    assert opened_after(*make(mode="steps")) is None


def test_a_range_is_closed_when_no_step_comes(make: Callable[..., tuple[Capture, Clock]]) -> None:
    capture, clock = make(mode="steps", skip=1, steps=10)
    for _ in range(4):
        clock.advance(1)
        capture.boundary("optimizer")
    clock.advance(59)
    assert capture.tick()
    clock.advance(2)
    assert not capture.tick()
    assert capture.state == "done"


def test_slow_steps_are_no_stall(make: Callable[..., tuple[Capture, Clock]]) -> None:
    capture, clock = make(mode="steps", skip=1, steps=10)
    for _ in range(4):
        clock.advance(20)
        capture.boundary("optimizer")
    clock.advance(150)
    assert capture.tick()


def test_a_failure_of_ours_never_reaches_the_program(
    make: Callable[..., tuple[Capture, Clock]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capture, _ = make(mode="steps", skip=1)
    monkeypatch.setattr(capture, "_open", lambda how: 1 / 0)
    for _ in range(3):
        capture.boundary("optimizer")
    assert capsys.readouterr().err.count("\n") == 1


def test_a_driver_that_hangs_does_not_hang_the_program(
    make: Callable[..., tuple[Capture, Clock]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    never = threading.Event()
    capture, _ = make(mode="steps", skip=1, steps=1)
    capture.boundary("optimizer")
    monkeypatch.setattr("nsys_sync.capture.target.range._PATIENT_S", 0.1)
    monkeypatch.setattr(Driver, "synchronize", lambda _: never.wait())
    monkeypatch.setattr(Driver, "stop_profiler", lambda _: never.wait())
    capture.boundary("optimizer")
    capture.finish()
    never.set()
    assert capture.state == "done"
    assert capture.session.marked("closed")
    assert capture.session.marked("stuck")
    assert capsys.readouterr().err.count("nsys-sync: ") == 2


@pytest.mark.parametrize("refuses", [False, True])
def test_a_driver_call_that_fails_costs_one_line(
    make: Callable[..., tuple[Capture, Clock]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refuses: bool,
) -> None:
    """Whether or not the interpreter still starts threads."""
    capture, _ = make(mode="steps", skip=1, steps=1)
    if refuses:
        monkeypatch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("shutdown")))
    monkeypatch.setattr(Driver, "synchronize", lambda _: 1 / 0)
    capture.boundary("optimizer")
    assert capsys.readouterr().err.count("\n") == 1
    assert capture.state == "leading"


def test_threads_may_step_at_the_same_time(make: Callable[..., tuple[Capture, Clock]]) -> None:
    capture, _ = make(mode="steps", skip=50, steps=20)
    threads = [threading.Thread(target=lambda: [capture.boundary("user") for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    capture.finish()
    (told,) = capture.session.reports("capture")
    assert (told["steps_run"], told["steps_captured"]) == (400, 20)
