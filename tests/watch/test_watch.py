"""``nsys-sync watch``: what it finds in programs of all kinds, none of which notices."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, wait_until
from tests.watch.conftest import Workplace, calls_by_line

LOOP = """import torch
def log(x):
    print("loss", x.item())
def step(i):
    x = torch.Tensor("cuda")
    log(x)
    y = x.to("cpu")
    if i % 2:
        torch.cuda.synchronize()
optimizer = torch.optim.Optimizer()
for i in range(5):
    step(i)
    optimizer.step()
"""


def test_every_sync_is_counted_at_its_line_and_step(workplace: Workplace) -> None:
    found = workplace.watch(LOOP)
    assert calls_by_line(found) == {3: 5, 7: 5, 9: 2}
    by_line = {site["line"]: site for site in found["sites"]}
    assert [by_line[line]["calls_per_step"] for line in (3, 7, 9)] == [1.0, 1.0, 0.5]
    assert [frame["function"] for frame in by_line[3]["stack"]] == ["log", "step", "<module>"]
    assert by_line[3]["rule"] == "scalar-logged"
    assert by_line[3]["source"]["lines"]["3"] == '    print("loss", x.item())'
    assert by_line[3]["source_status"] == "captured"
    assert by_line[7]["leaf"]["file"].endswith("torch/_tensor.py")
    assert found["steps"][0]["count"] == 4
    assert found["trace"]["capture"]["steps_run"] == 5


def test_unmeasured_is_null_and_time_is_of_the_calls_that_could_be_timed(workplace: Workplace) -> None:
    workplace.environment["FAKE_WAIT_S"] = "0.02"
    found = workplace.watch(LOOP)
    by_line = {site["line"]: site for site in found["sites"]}
    assert by_line[3]["wait_ns"] is None
    assert by_line[3]["timed_calls"] == 0
    wait = by_line[9]["wait_ns"]
    assert 40e6 <= wait["total"] < 10e9
    assert 20e6 <= wait["median"] <= wait["max"] <= wait["total"]
    assert found["totals"]["wait_ns"] == wait["total"]
    assert found["totals"]["timed_calls"] == 2
    for key in ("idle_ns", "recoverable_ns", "recoverable_all_ns", "host_blocked_ns"):
        assert found["totals"][key] is None
    assert (found["devices"], found["gaps"], found["what_if"]) == (None, None, None)


def test_it_shares_the_keys_of_a_report() -> None:
    from nsys_sync.analysis import findings
    from nsys_sync.analysis.watch import findings as watched

    pairs = [
        (findings.Report, watched.WatchReport),
        (findings.Site, watched.WatchSite),
        (findings.Totals, watched.WatchTotals),
        (findings.TraceInfo, watched.WatchTrace),
        (findings.SiteProcess, watched.WatchProcess),
    ]
    for theirs, ours in pairs:
        assert set(theirs.__struct_encode_fields__) <= set(ours.__struct_encode_fields__), ours


PROGRAMS = {
    "filters": """import torch, warnings
x = torch.Tensor("cuda")
warnings.filterwarnings("ignore")
for _ in range(3):
    x.item()  # 3
with warnings.catch_warnings(record=True) as own:
    warnings.simplefilter("error")
    x.item()  # 1
warnings.filters = [("error", None, Warning, None, 0)]
x.item()  # 1
warnings.resetwarnings()
assert not own and not warnings.filters
""",
    "logged warnings": """import logging, torch, warnings
logging.captureWarnings(True)
warnings.showwarning = None
torch.Tensor("cuda").item()  # 1
""",
    "threads": """import threading, torch
def work():
    for _ in range(100):
        torch.Tensor("cuda").item()  # 400
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
""",
    "own debug mode": """import torch, warnings
x = torch.Tensor("cuda")
assert torch.cuda.get_sync_debug_mode() == 0
torch.cuda.set_sync_debug_mode("error")
assert torch.cuda.get_sync_debug_mode() == 2
try:
    x.item()  # 1
    raise SystemExit("the mode is not obeyed")
except RuntimeError as error:
    assert str(error) == "called a synchronizing CUDA operation"
torch.cuda.set_sync_debug_mode("warn")
with warnings.catch_warnings(record=True) as own:
    warnings.simplefilter("default")
    for _ in range(3):
        x.item()  # 3
    assert [str(w.message)[:37] for w in own] == ["called a synchronizing CUDA operation"], own
    assert own[0].filename == __file__ and own[0].lineno == 15
    warnings.simplefilter("error")
    try:
        x.item()  # 1
        raise SystemExit("the filter is not obeyed")
    except UserWarning:
        pass
torch.cuda.set_sync_debug_mode(0)
x.item()  # 1
try:
    torch.cuda.set_sync_debug_mode(7)
    raise SystemExit("any mode goes")
except RuntimeError:
    pass
""",
    "torch.ops": """import torch
x = torch.Tensor("cuda")
torch._ops.OpOverload()(x, 1, option=[x])  # 1
class Other:
    def __torch_function__(self): ...
torch._ops.OpOverload()(Other())
""",
    "copies called non-blocking": """import torch
pageable, small = torch.Tensor("cpu"), torch.Tensor("cpu", nbytes=64 << 10)
pinned, gpu = torch.Tensor("cpu", pinned=True), torch.Tensor("cuda")
pageable.to("cuda", non_blocking=True)  # 1
pageable.to("cuda", torch.float32, True)  # 1
pageable.cuda(None, True)  # 1
torch.nn.Parameter("cpu").cuda(non_blocking=True)  # 1
gpu.copy_(pageable, non_blocking=True)  # 1
pageable.copy_(gpu, True)  # 1
for tensor in (small, pinned):
    tensor.to("cuda", non_blocking=True)
    tensor.cuda(non_blocking=True)
    gpu.copy_(tensor, non_blocking=True)
pinned.copy_(gpu, non_blocking=True)
gpu.to("cpu", non_blocking=True)
gpu.to("cuda", non_blocking=True)
pageable.to(torch.float32, True)
pageable.to("cuda", copy=True)  # 1
pageable.to("cuda")  # 1
assert torch.Tensor.to.__code__.co_argcount == 5 and pageable.to.__self__ is pageable
""",
    "explicit waits": """import torch
torch.cuda.synchronize()  # 1
torch.cuda.Stream().synchronize()  # 1
torch.cuda.Event().synchronize()  # 1
class Own(torch.cuda.Stream):
    def synchronize(self):
        super().synchronize()  # 1
Own().synchronize()
""",
    "forked children": """import os, torch
torch.Tensor("cuda").item()  # 1
import multiprocessing
def work():
    torch.Tensor("cuda").item()  # 3
    torch.Tensor("cuda").item()  # 3
context = multiprocessing.get_context("fork")
children = [context.Process(target=work) for _ in range(3)]
[child.start() for child in children]
[child.join() for child in children]
assert [child.exitcode for child in children] == [0, 0, 0]
""",
    "spawned children": """import multiprocessing
def work():
    import torch
    torch.Tensor("cuda").item()  # 2
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=work) for _ in range(2)]
    [child.start() for child in children]
    [child.join() for child in children]
    assert [child.exitcode for child in children] == [0, 0]
""",
    "exec'd text": """import torch
code = '''
def hidden(x):
    return x.item()
'''
space = {}
exec(code, space)
space["hidden"](torch.Tensor("cuda"))  # 1
""",
    "a generator": """import torch
def values():
    x = torch.Tensor("cuda")
    while True:
        yield x.item()  # 3
source = values()
assert [next(source) for _ in range(3)] == [0, 0, 0]
""",
    "a fork server's children": """import multiprocessing
def work():
    import torch
    torch.Tensor("cuda").item()  # 2
if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    children = [context.Process(target=work) for _ in range(2)]
    [child.start() for child in children]
    [child.join() for child in children]
    assert [child.exitcode for child in children] == [0, 0]
""",
    "an alarm": """import signal, time, torch
x = torch.Tensor("cuda")
class Alarm(Exception): ...
def ring(number, frame):
    raise Alarm
signal.signal(signal.SIGALRM, ring)
rung = 0
for _ in range(200):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        until = time.monotonic() + 5
        while time.monotonic() < until:
            x.item()
        raise SystemExit("an alarm was lost")
    except Alarm:
        rung += 1
assert rung == 200
import os; os.environ.get("NSYS_SYNC_SESSION") or os._exit(0)
torch.cuda.synchronize()  # 1
""",
    "equal code in two files": """import pathlib, sys, torch
for name in ("one", "two"):
    pathlib.Path(f"{name}.py").write_text("def read(x):\\n    return x.item()\\n")
sys.path.insert(0, ".")
import one, two
for read in (one.read, two.read, two.read):
    read(torch.Tensor("cuda"))
""",
    "backward passes in threads of C++": """import ctypes, torch
text = '''
def _engine_run_backward(create, join, thread):
    create(thread, None, work, None)
    join(thread[0], None)
def compiled_backward(_):
    x.item()
'''
space = {"x": torch.Tensor("cuda")}
exec(compile(text, "/env/site-packages/torch/autograd/graph.py", "exec"), space)
space["work"] = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(space["compiled_backward"])
libc = ctypes.CDLL(None)
libc.pthread_join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
def backward():
    space["_engine_run_backward"](libc.pthread_create, libc.pthread_join, (ctypes.c_ulong * 1)())
def first():
    backward()
for _ in range(2):
    backward()
first()
""",
    "a folder that is gone": """import os, tempfile, torch
os.chdir(tempfile.mkdtemp())
os.rmdir(os.getcwd())
torch.Tensor("cuda").item()  # 1
""",
    "at exit": """import atexit, torch
atexit.register(lambda: torch.Tensor("cuda").item())  # 1
""",
}


#: These wait at other lines too.
UNCOUNTED = ("an alarm", "backward passes in threads of C++")


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_missed_and_nothing_broken(workplace: Workplace, name: str) -> None:
    text = PROGRAMS[name]
    wanted = {
        number: int(line.rpartition("# ")[2])
        for number, line in enumerate(text.splitlines(), 1)
        if line.rpartition("# ")[2].isdigit()
    }
    found = workplace.watch(text)
    counted = calls_by_line({"sites": [site for site in found["sites"] if Path(site["file"]).name == "train.py"]})
    assert {line: calls for line, calls in counted.items() if line in wanted or name not in UNCOUNTED} == wanted
    alone = workplace.python(text)
    assert alone.returncode == 0, alone.stderr


def test_a_pageable_copy_called_non_blocking_is_named(workplace: Workplace) -> None:
    text = """import torch
loader = [torch.Tensor("cpu") for _ in range(3)]
for batch in loader:
    batch = batch.to("cuda", non_blocking=True)
"""
    (site,) = workplace.watch(text)["sites"]
    assert "pinned" in site["title"]
    assert site["apis"] == {"cudaMemcpyAsync": 3}
    assert site["seen_by"] == {"torch.Tensor.to": 3}


def test_steps_at_the_beginning_can_be_left_out(workplace: Workplace) -> None:
    found = workplace.watch(LOOP, "--after-steps", "2")
    assert calls_by_line(found) == {3: 3, 7: 3, 9: 1}
    assert found["watch"]["calls_left_out"] == 5
    assert [site["calls_per_step"] for site in found["sites"]] == [1.0, 1.0, 0.3333]


def test_marked_steps_count_in_place_of_the_optimizers(workplace: Workplace) -> None:
    text = """import nsys_sync, torch
optimizer = torch.optim.Optimizer()
for _ in range(4):
    for _ in range(3):
        torch.Tensor("cuda").item()
        optimizer.step()
    nsys_sync.step()
"""
    found = workplace.watch(text)
    assert found["steps"][0] == {
        "pid": found["steps"][0]["pid"],
        "count": 3,
        "source": "marks",
        "mean_ns": None,
        "median_ns": None,
        "name": "user",
    }
    assert found["sites"][0]["calls_per_step"] == 3.0


def test_too_few_steps_are_an_error(workplace: Workplace) -> None:
    done = workplace.run("watch", "--after-steps", "50", str(workplace.script(LOOP)))
    assert done.returncode == 4
    assert "ended after 5 steps, so --after-steps 50 left everything out" in done.stderr


def test_fail_is_exit_3(workplace: Workplace) -> None:
    done = workplace.run("watch", "--fail", str(workplace.script(LOOP)))
    assert done.returncode == 3
    assert "12 calls waited for the GPU" in done.stderr
    assert "Where the CPU waits for the GPU: 3 sites, 12 calls" in done.stdout


def test_fail_passes_over_allowed_syncs(workplace: Workplace) -> None:
    text = """import nsys_sync, torch
with nsys_sync.allow_syncs():
    torch.Tensor("cuda").item()
"""
    done = workplace.run("watch", "--fail", "--error", "--json", "seen.json", str(workplace.script(text)))
    assert done.returncode == 0, done.stderr
    assert workplace.seen()["sites"][0]["allowed"] == 1
    assert "· allowed" in done.stdout


def test_error_stops_at_the_first_sync(workplace: Workplace) -> None:
    script = workplace.script(LOOP)
    done = workplace.run("watch", "--error", "--json", "seen.json", str(script))
    assert done.returncode == 3
    assert f"nsys_sync.SyncError: {script}:3 in log: a synchronizing PyTorch operation waits for the GPU" in done.stderr
    assert done.stdout.startswith("train.py")
    found = workplace.seen()
    assert calls_by_line(found) == {3: 1}
    assert found["watch"]["stopped_at"].startswith(f"{script}:3 in log")


def test_error_raises_once_and_counts_on_if_the_program_goes_on(workplace: Workplace) -> None:
    text = """import torch
try:
    torch.cuda.synchronize()
except Exception:
    torch.Tensor("cuda").item()
"""
    done = workplace.run("watch", "--error", "--json", "seen.json", str(workplace.script(text)))
    assert done.returncode == 3, done.stderr
    assert calls_by_line(workplace.seen()) == {3: 1, 5: 1}


def test_the_programs_own_failure_is_passed_on(workplace: Workplace) -> None:
    text = "import torch, sys\ntorch.Tensor('cuda').item()\nsys.exit(7)\n"
    done = workplace.run("watch", "--fail", "--json", "seen.json", str(workplace.script(text)))
    assert done.returncode == 7
    assert calls_by_line(workplace.seen()) == {2: 1}
    assert workplace.seen()["trace"]["warnings"][0]["slug"] == "program-failed"


def test_a_program_that_fails_early_is_not_explained_away(workplace: Workplace) -> None:
    done = workplace.run("watch", "-m", "no_such_module")
    assert done.returncode == 1
    assert "ended with exit code 1 before there was anything to see" in done.stderr


NOTHING = {
    "no framework": ("print('hello')", "imported neither PyTorch nor CuPy nor JAX"),
    "no CUDA": ("import torch", "did not use CUDA"),
    "isolated": ("", "No Python of the program loaded the watching module"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_to_see_is_never_a_clean_bill(workplace: Workplace, name: str) -> None:
    text, sentence = NOTHING[name]
    script = workplace.script(text)
    program = [sys.executable, "-I", str(script)] if name == "isolated" else [str(script)]
    done = workplace.run("watch", "--json", "seen.json", *program)
    assert done.returncode == 4
    assert sentence in done.stderr
    assert not (workplace.folder / "seen.json").exists()


def test_json_on_stdout_is_alone_there(workplace: Workplace) -> None:
    done = workplace.run("watch", "--json", "-", str(workplace.script(LOOP)))
    assert json.loads(done.stdout)["totals"]["host_blocking_calls"] == 12
    assert done.stderr.startswith("loss 0\n" * 5)
    assert "Where the CPU waits" in done.stderr


def test_the_program_keeps_its_arguments_input_and_output(workplace: Workplace) -> None:
    text = "import sys, torch\ntorch.Tensor('cuda').item()\nprint(sys.argv[1:], sys.stdin.read())\n"
    script = workplace.script(text)
    process = workplace.start("watch", str(script), "--json", "--error", "-o", "x", stdin=-1)
    out, _ = process.communicate("typed", timeout=PATIENCE_S)
    assert process.returncode == 0
    assert out.splitlines()[0] == "['--json', '--error', '-o', 'x'] typed"


def test_modules_and_launchers_are_watched(workplace: Workplace) -> None:
    workplace.script(LOOP, "package/part.py")
    workplace.script("", "package/__init__.py")
    launcher = workplace.script(
        "import subprocess, sys\nfor rank in '01':\n"
        "    import os; subprocess.run([sys.executable, '-m', 'package.part'], check=True, "
        "env={**os.environ, 'RANK': rank, 'WORLD_SIZE': '2'})\n",
        "launch.py",
    )
    done = workplace.run("watch", "--json", "seen.json", "sh", "-c", shlex.join([sys.executable, str(launcher)]))
    assert done.returncode == 0, done.stderr
    found = workplace.seen()
    assert calls_by_line(found) == {3: 10, 7: 10, 9: 4}
    assert sorted(process["rank"] for process in found["trace"]["processes"]) == [0, 1]
    assert [len(site["by_process"]) for site in found["sites"]] == [2, 2, 2]
    assert found["sites"][0]["calls_per_step"] == 1.0


def test_of_several_ranks_one_prints(workplace: Workplace) -> None:
    script = workplace.script(LOOP)
    workplace.environment |= {"RANK": "1", "WORLD_SIZE": "2"}
    done = workplace.run("watch", "--json", "seen-{rank}.json", str(script))
    assert "Where the CPU waits" not in done.stdout
    assert json.loads((workplace.folder / "seen-1.json").read_text())["totals"]["host_blocking_calls"] == 12


RUNS_ON = """import pathlib, signal, sys, time, torch
def end(number, frame):
    pathlib.Path("got").write_text(str(number))
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
torch.Tensor("cuda").item()
pathlib.Path("runs").touch()
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_program_and_the_report_is_made(workplace: Workplace, number: signal.Signals) -> None:
    process = workplace.start("watch", "--json", "seen.json", str(workplace.script(RUNS_ON)))
    wait_until((workplace.folder / "runs").exists)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 5
    assert (workplace.folder / "got").read_text() == str(int(number))
    assert calls_by_line(workplace.seen()) == {7: 1}


#: A watch that gets a signal at the moment when its program has been started, or has ended.
SIGNALLED = """import os, signal, subprocess, sys
from nsys_sync.capture import watching
from nsys_sync.capture.naming import Program
class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        if sys.argv[1] == "started":
            os.kill(os.getpid(), signal.SIGTERM)
    def poll(self):
        ended = super().poll() is not None
        if ended and sys.argv[1] == "ended":
            os.kill(os.getpid(), signal.SIGTERM)
        return self.returncode
subprocess.Popen = Popen
program = Program([sys.executable, "-c", "import time; time.sleep(600)" if sys.argv[1] == "started" else ""], "it")
print(watching.run(program, watching.Plan(), os.environ, print).exit_code)
"""


@pytest.mark.parametrize(("moment", "code"), [("started", 128 + signal.SIGTERM), ("ended", 0)])
def test_a_signal_at_the_edge_of_the_program_does_not_end_the_watch(
    workplace: Workplace, moment: str, code: int
) -> None:
    done = workplace.python(SIGNALLED, moment)
    assert (done.stdout, done.returncode) == (f"{code}\n", 0), done.stderr


def test_a_pause_of_the_watch_sends_the_program_nothing(workplace: Workplace) -> None:
    text = """import os, signal, time, torch
for number in (signal.SIGSTOP, signal.SIGCONT) * 5:
    os.kill(os.getppid(), number)
    time.sleep(0.1)
torch.Tensor("cuda").item()
"""
    assert calls_by_line(workplace.watch(text)) == {5: 1}


def test_no_thread_of_numpy_is_there_for_a_signal_while_the_program_runs(workplace: Workplace) -> None:
    text = "import os, pathlib\nprint(pathlib.Path('/proc', str(os.getppid()), 'maps').read_text().count('numpy'))\n"
    done = workplace.run("watch", "--json", "seen.json", str(workplace.script(text)))
    assert (done.stdout, done.returncode) == ("0\n", 4), done.stderr


def test_a_killed_program_has_told_what_it_knew(workplace: Workplace) -> None:
    text = "import os, signal, torch\ntorch.Tensor('cuda').item()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    done = workplace.run("watch", "--json", "seen.json", str(workplace.script(text)))
    assert done.returncode == 128 + signal.SIGKILL
    assert calls_by_line(workplace.seen()) == {2: 1}
    assert "no-last-words" in [note["slug"] for note in workplace.seen()["trace"]["warnings"]]


def test_a_broken_watch_does_not_break_the_program(workplace: Workplace) -> None:
    text = """import sys, torch
recorder = sys.modules["_nsys_sync_target.recorder"]
recorder._Stack = None
for _ in range(3):
    torch.Tensor("cuda").item()
    torch.cuda.synchronize()
print("went on")
"""
    done = workplace.run("watch", str(workplace.script(text)))
    assert "went on" in done.stdout
    assert done.stderr.count("syncs are not all counted") == 1
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_does_not_break_the_program(workplace: Workplace) -> None:
    text = """import os, shutil, torch
shutil.rmtree(os.environ["NSYS_SYNC_SESSION"])
torch.Tensor("cuda").item()
print("went on")
"""
    done = workplace.run("watch", str(workplace.script(text)))
    assert "went on" in done.stdout
    assert "Traceback" not in done.stderr
    assert done.returncode == 4


def test_a_watch_inside_a_watch_is_refused(workplace: Workplace) -> None:
    workplace.environment["NSYS_SYNC_SESSION"] = "/somewhere"
    done = workplace.run("watch", str(workplace.script(LOOP)))
    assert done.returncode == 2
    assert "watched by nsys-sync already" in done.stderr


def test_its_json_is_no_report_and_says_so(workplace: Workplace) -> None:
    workplace.watch(LOOP)
    done = workplace.run("report", "seen.json")
    assert done.returncode == 1
    assert "saved by watch" in done.stderr


def test_equal_code_of_two_files_is_told_apart(workplace: Workplace) -> None:
    found = workplace.watch(PROGRAMS["equal code in two files"])
    assert {Path(site["file"]).name: site["calls"] for site in found["sites"]} == {"one.py": 1, "two.py": 2}


def test_work_of_a_backward_pass_belongs_to_who_started_it(workplace: Workplace) -> None:
    found = workplace.watch(PROGRAMS["backward passes in threads of C++"])
    functions = [[frame["function"] for frame in site["stack"]] for site in found["sites"]]
    assert functions[0][:3] == ["compiled_backward", "_engine_run_backward", "backward"]
    assert found["totals"]["host_blocking_calls"] == 3
    (site,) = found["sites"]
    assert Path(site["file"]).name == "train.py"
    assert site["line"] == 15


def test_names_that_are_no_text_are_shown(workplace: Workplace) -> None:
    name = os.fsdecode(b"\xff\xfe/train.py")
    workplace.script(LOOP, name)
    done = workplace.run("watch", "--json", "seen.json", name)
    assert done.returncode == 0, done.stderr
    assert workplace.seen()["totals"]["host_blocking_calls"] == 12


@pytest.mark.parametrize("name", ["PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONSAFEPATH", "PYTHONOPTIMIZE"])
def test_switches_of_python_change_nothing(workplace: Workplace, name: str) -> None:
    workplace.environment[name] = "error" if name == "PYTHONWARNINGS" else "1"
    assert calls_by_line(workplace.watch(LOOP)) == {3: 5, 7: 5, 9: 2}


def test_nothing_of_the_environment_is_in_the_output(workplace: Workplace) -> None:
    workplace.environment["SECRET_TOKEN"] = "hunter2hunter2"
    done = workplace.run("watch", "--json", "-", str(workplace.script(LOOP)))
    assert "hunter2" not in done.stdout + done.stderr


def test_a_script_changed_while_it_ran_is_not_judged_by_its_new_text(workplace: Workplace) -> None:
    text = 'import torch\ntorch.Tensor("cuda").item()\nopen(__file__, "a").write("# more\\n")\n'
    (site,) = workplace.watch(text)["sites"]
    assert site["source_status"] == "changed"


def test_many_stacks_do_not_grow_without_bound(workplace: Workplace) -> None:
    text = """import torch
def down(depth):
    if depth:
        return down(depth - 1)
    torch.Tensor("cuda").item()
for depth in range(400):
    down(depth)
"""
    found = workplace.watch(text)
    assert calls_by_line(found) == {5: 400}
