"""``forbid_syncs`` and ``allow_syncs``: what they refuse, and that they leave nothing behind."""

from __future__ import annotations

import pytest

from tests.watch.conftest import Workplace

BEGIN = """import threading, warnings
import nsys_sync, torch
from nsys_sync import SyncError, allow_syncs, forbid_syncs
x = torch.Tensor("cuda")
def refused(work):
    try:
        work()
    except SyncError as error:
        return str(error)
def mode():
    return torch._C._mode
"""

PROGRAMS = {
    "names the place": """
def step():
    x.item()
with forbid_syncs():
    message = refused(step)
assert message == (
    f"{__file__}:14 in step: a synchronizing PyTorch operation waits for the GPU, and syncs are forbidden here"
), message
""",
    "restores": """
warnings.simplefilter("error", FutureWarning)
before, kind, filters = mode(), type(warnings), list(warnings.filters)
try:
    with forbid_syncs():
        assert mode() == 1
        raise KeyError
except KeyError:
    pass
assert (mode(), type(warnings), type(warnings.filters)) == (before, kind, list)
assert warnings.filters == filters
assert "to" not in vars(torch.Tensor) or vars(torch.Tensor)["to"].__class__.__name__ == "function"
x.item()
torch.cuda.synchronize()
""",
    "keeps a mode that was set": """
torch.cuda.set_sync_debug_mode("error")
with forbid_syncs():
    assert torch.cuda.get_sync_debug_mode() == 2
assert mode() == 2
with forbid_syncs():
    torch.cuda.set_sync_debug_mode("warn")
assert mode() == 1
""",
    "nests": """
with forbid_syncs():
    with forbid_syncs():
        assert refused(x.item)
    assert refused(x.item)
    with allow_syncs():
        x.item()
        torch.cuda.synchronize()
        with forbid_syncs():
            assert refused(x.item)
        x.item()
        with allow_syncs():
            x.item()
        x.item()
    assert refused(x.item)
x.item()
assert mode() == 0
""",
    "all threads": """
found = []
def work():
    found.append(refused(x.item))
with forbid_syncs(), allow_syncs():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    x.item()
assert found[0], found
""",
    "explicit waits and copies": """
with forbid_syncs():
    for work in (
        torch.cuda.synchronize,
        torch.cuda.Stream().synchronize,
        torch.cuda.Event().synchronize,
        lambda: x.to("cpu"),
        lambda: torch.Tensor("cpu").to("cuda", non_blocking=True),
    ):
        assert refused(work), work
    torch.Tensor("cpu", pinned=True).to("cuda", non_blocking=True)
""",
    "decorators": """
@forbid_syncs()
def step():
    x.item()
@forbid_syncs()
def accepted():
    with allow_syncs():
        return x.item()
for _ in range(2):
    assert refused(step)
    assert accepted() == 0
assert mode() == 0
""",
    "filters do not hide it": """
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with forbid_syncs():
        warnings.simplefilter("ignore")
        assert refused(x.item)
""",
    "generators that interleave": """
def part(context):
    with context():
        yield
        yield
forbidding = part(forbid_syncs)
next(forbidding)
allowing = part(allow_syncs)
next(allowing)
x.item()
next(allowing)
allowing.close()
assert refused(x.item)
forbidding.close()
x.item()
""",
    "asyncio": """
import asyncio
async def allowed(inside, tried):
    with allow_syncs():
        inside.set()
        await tried.wait()
        x.item()
async def forbidden(inside, tried):
    await inside.wait()
    said = refused(x.item)
    tried.set()
    return said
async def main():
    inside, tried = asyncio.Event(), asyncio.Event()
    with forbid_syncs():
        return await asyncio.gather(allowed(inside, tried), forbidden(inside, tried))
assert asyncio.run(main())[1]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_guard(workplace: Workplace, name: str) -> None:
    done = workplace.python(BEGIN + PROGRAMS[name])
    assert done.returncode == 0, done.stderr


def test_a_guard_before_the_import_of_torch_holds(workplace: Workplace) -> None:
    text = """import nsys_sync
with nsys_sync.forbid_syncs():
    import torch
    try:
        torch.Tensor("cuda").item()
    except nsys_sync.SyncError:
        print("refused")
torch.Tensor("cuda").item()
"""
    done = workplace.python(text)
    assert (done.stdout, done.returncode) == ("refused\n", 0), done.stderr


def test_a_guard_without_torch_does_nothing(workplace: Workplace) -> None:
    done = workplace.python("import nsys_sync\nwith nsys_sync.forbid_syncs():\n    print('fine')\n")
    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stderr


def test_a_guarded_program_can_be_watched(workplace: Workplace) -> None:
    text = """import nsys_sync, torch
x = torch.Tensor("cuda")
x.item()
with nsys_sync.forbid_syncs():
    try:
        x.item()
    except nsys_sync.SyncError:
        print("refused")
x.item()
"""
    found = workplace.watch(text)
    assert {site["line"]: site["calls"] for site in found["sites"]}.keys() >= {3, 9}


def test_a_part_of_a_program_is_watched(workplace: Workplace) -> None:
    text = """import nsys_sync, torch
torch.cuda.synchronize()
with nsys_sync.watch() as seen:
    for _ in range(3):
        torch.Tensor("cuda").item()
torch.cuda.synchronize()
(site,) = seen.report.sites
assert (site.line, site.calls, site.rule) == (5, 3, "value-unused"), site
seen.show()
print(seen)
"""
    done = workplace.python(text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The CPU waited for the GPU 3 times at 1 site.") == 2


def test_watching_a_part_without_cuda_says_so(workplace: Workplace) -> None:
    text = """import nsys_sync
with nsys_sync.watch() as seen:
    pass
print(seen)
seen.report
"""
    done = workplace.python(text)
    assert "imported neither PyTorch nor CuPy nor JAX" in done.stdout
    assert "NothingToAnalyze" in done.stderr
