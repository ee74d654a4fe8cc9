"""What happens inside the program: steps counted, the range opened and closed at their boundaries, all of it marked."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import Sandbox

LOOP = """
import torch
torch.cuda.init()
optimizer = torch.optim.Optimizer()
for _ in range({steps}):
    optimizer.step()
"""


def capture_info(folder: Path, name: str = "run") -> dict[str, Any]:
    with sqlite3.connect(folder / f"{name}.sqlite") as connection:
        (text,) = connection.execute("SELECT value FROM NSYS_SYNC_CAPTURE WHERE name = 'capture'").fetchone()
    found: dict[str, Any] = json.loads(text)
    return found


def without_contexts(calls: list[str]) -> list[str]:
    return [call for call in calls if call not in ("push", "pop")]


def test_the_range_holds_the_steps_asked_for(gpu: Sandbox) -> None:
    script = gpu.script(LOOP.format(steps=9))
    done = gpu.run("profile", "--capture", "steps:3:2", "-o", "run", str(script))
    assert done.returncode == 0, done.stderr
    assert without_contexts(gpu.calls()) == [
        "synchronize",
        "profiler start",
        "begin nsys-sync:step 3",
        "end 1",
        "begin nsys-sync:step 4",
        "end 2",
        "mark nsys-sync:close",
        "synchronize",
        "profiler stop",
    ]
    info = capture_info(gpu.folder)
    assert (info["range"], info["steps_run"], info["steps_captured"]) == ("steps:3:2", 9, 2)
    assert info["step_ns_inside"] > 0
    assert info["warnings"] == []


def test_auto_skips_ten_steps_and_captures_twenty(gpu: Sandbox) -> None:
    gpu.run("profile", "-o", "run", str(gpu.script(LOOP.format(steps=40))))
    info = capture_info(gpu.folder)
    assert (info["range"], info["steps_run"], info["steps_captured"]) == ("steps:10:20", 40, 20)
    assert info["step_ns_before"] > 0


def test_what_is_open_at_the_end_is_closed(gpu: Sandbox) -> None:
    gpu.run("profile", "-o", "run", str(gpu.script(LOOP.format(steps=15))))
    assert without_contexts(gpu.calls())[-3:] == ["mark nsys-sync:close", "synchronize", "profiler stop"]
    info = capture_info(gpu.folder)
    assert (info["range"], info["steps_run"], info["steps_captured"]) == ("steps:10:5", 15, 5)
    assert ["few-steps", "5 of 20 steps were captured, then the program ended."] in info["warnings"]


def test_too_few_steps_is_said_with_the_number(gpu: Sandbox) -> None:
    gpu.behaviour["report"] = False
    done = gpu.run("profile", "-o", "run", str(gpu.script(LOOP.format(steps=8))))
    assert done.returncode == 4
    assert "The capture range never started: the program ran 8 steps, and the capture begins after 10." in done.stderr
    assert "--capture steps:2:4" in done.stderr


def test_several_optimizers_make_one_step(gpu: Sandbox) -> None:
    text = """
import torch
torch.cuda.init()
critic, generator = torch.optim.Optimizer(), torch.optim.Optimizer()
for _ in range(6):
    critic.step()
    generator.step()
"""
    gpu.run("profile", "--capture", "steps:2:3", "-o", "run", str(gpu.script(text)))
    assert capture_info(gpu.folder)["steps_run"] == 6
    assert capture_info(gpu.folder)["steps_captured"] == 3


def test_steps_that_the_program_marks_count_in_place_of_the_optimizers(gpu: Sandbox) -> None:
    text = """
import torch, nsys_sync
torch.cuda.init()
optimizer = torch.optim.Optimizer()
for _ in range(8):
    optimizer.step()
    optimizer.step()
    with nsys_sync.region("log"):
        pass
    nsys_sync.step()
"""
    gpu.run("profile", "--capture", "steps:4:2", "-o", "run", str(gpu.script(text)))
    assert capture_info(gpu.folder)["steps_run"] == 8
    assert "begin nsys-sync:region log" in gpu.calls()
    assert [call for call in gpu.calls() if "step" in call] == ["begin nsys-sync:step 4", "begin nsys-sync:step 5"]


def test_the_programs_own_range_is_the_range(gpu: Sandbox) -> None:
    text = """
import torch
torch.cuda.init()
optimizer = torch.optim.Optimizer()
for i in range(30):
    if i in (20, 26):
        torch.cuda.cudart().cudaProfilerStart()
    if i in (24, 28):
        torch.cuda.cudart().cudaProfilerStop()
    optimizer.step()
"""
    gpu.run("profile", "-o", "run", str(gpu.script(text)))
    calls = without_contexts(gpu.calls())
    assert calls.count("profiler start") == 2
    opened = calls.index("profiler start")
    closed = calls.index("profiler stop")
    assert calls[closed - 2 : closed] == ["mark nsys-sync:close", "synchronize"]
    assert [call for call in calls[opened:closed] if call.startswith("begin")] == [
        f"begin nsys-sync:step {number}" for number in (21, 22, 23, 24)
    ]
    info = capture_info(gpu.folder)
    assert (info["range"], info["steps_run"]) == ("script", 30)
    assert ["first-range-only", "The program opened 2 ranges; only the first is captured."] in info["warnings"]


def test_steps_asked_for_go_before_the_programs_own_range(gpu: Sandbox) -> None:
    text = """
import torch
torch.cuda.init()
torch.cuda.cudart().cudaProfilerStart()
optimizer = torch.optim.Optimizer()
for _ in range(9):
    optimizer.step()
torch.cuda.cudart().cudaProfilerStop()
"""
    gpu.run("profile", "--capture", "steps:3:2", "-o", "run", str(gpu.script(text)))
    calls = without_contexts(gpu.calls())
    assert (calls.count("profiler start"), calls.count("profiler stop")) == (1, 1)
    assert calls.index("profiler start") + 1 == calls.index("begin nsys-sync:step 3")


def test_a_range_of_its_own_that_is_never_reached_is_named(gpu: Sandbox) -> None:
    gpu.behaviour["report"] = False
    text = LOOP.format(steps=40) + "\nif 'late' in globals():\n    torch.cuda.cudart().cudaProfilerStart()\n"
    script = gpu.script(text)
    done = gpu.run("profile", "-o", "run", str(script))
    assert done.returncode == 4
    assert f"the program's own call at {script}:9 was never reached" in done.stderr
    assert "profiler start" not in gpu.calls()


def test_capture_by_time(gpu: Sandbox) -> None:
    text = """
import os, time, torch
torch.cuda.init()
until = time.monotonic() + 300
while not os.path.exists(os.environ["NSYS_SYNC_SESSION"] + "/closed") and time.monotonic() < until:
    time.sleep(0.02)
"""
    done = gpu.run("profile", "--capture", "time:0.2:0.5", "-o", "run", str(gpu.script(text)))
    assert done.returncode == 0, done.stderr
    assert without_contexts(gpu.calls()) == [
        "synchronize",
        "profiler start",
        "mark nsys-sync:close",
        "synchronize",
        "profiler stop",
    ]
    assert capture_info(gpu.folder)["range"] == "time:0.2:0.5"


def test_a_driver_that_refuses_costs_one_line(gpu: Sandbox) -> None:
    gpu.behaviour["report"] = False
    text = LOOP.format(steps=40).replace("torch.cuda.init()", "torch.cuda.init(); torch.cuda._driver.fakeRefuse()")
    done = gpu.run("profile", "-o", "run", str(gpu.script(text)))
    assert done.stderr.count("the CUDA driver refused to start the profiler") == 1
    assert "Traceback" not in done.stderr
    assert done.returncode == 4


@pytest.mark.parametrize(("start", "first"), [("spawn", "pass"), ("fork", "pass"), ("fork", "import torch")])
def test_ranks_share_one_range_and_none_is_cut(gpu: Sandbox, start: str, first: str) -> None:
    text = f"""
import multiprocessing, os, time
{first}

def train(rank, together):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), "3"
    import torch
    torch.cuda.init()
    optimizer = torch.optim.Optimizer()
    for _ in range(12):
        together.wait()  # as gradients that are summed make the ranks do
        time.sleep(0.01 * (rank + 1))
        optimizer.step()

if __name__ == "__main__":
    context = multiprocessing.get_context("{start}")
    together = context.Barrier(3)
    ranks = [context.Process(target=train, args=(rank, together)) for rank in range(3)]
    [rank.start() for rank in ranks]
    [rank.join() for rank in ranks]
"""
    done = gpu.run("profile", "--capture", "steps:4:3", "-o", "run", str(gpu.script(text)))
    assert done.returncode == 0, done.stderr
    by_process = [without_contexts(calls) for calls in gpu.calls_by_process().values()]
    assert len(by_process) == 3
    for calls in by_process:
        assert [call for call in calls if call.startswith("begin")] == [f"begin nsys-sync:step {k}" for k in (4, 5, 6)]
        assert calls.count("mark nsys-sync:close") == 1
    calls = without_contexts(gpu.calls())
    assert (calls.count("profiler start"), calls.count("profiler stop")) == (1, 1)
    opened, closed = calls.index("profiler start"), calls.index("profiler stop")
    assert [i for i, call in enumerate(calls) if call.startswith(("begin", "end")) and not opened < i < closed] == []
    ranks = {call for call in calls if "rank" in call}
    assert ranks == {f"mark nsys-sync:rank {rank}/3" for rank in range(3)}
    assert capture_info(gpu.folder)["steps_captured"] == 3
