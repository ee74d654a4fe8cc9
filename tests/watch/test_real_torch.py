"""A real PyTorch, without a GPU: that nothing of it changes while it is watched, and that its warnings are heard.

Its C++ code warns of other things too; one of those warnings stands in for the one about syncs.
"""

from __future__ import annotations

import importlib.util

import pytest

from tests.watch.conftest import ROOT, Workplace

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

BEGIN = """import sys, warnings
from nsys_sync.capture.target import recorder, syncs
syncs._CALLED = ("torch.searchsorted(): input value tensor is non-contiguous",)
counts = recorder.Recorder()
counts.start()
import torch
torch.set_warn_always(True)
sorted_, values = torch.arange(10.0), torch.rand(4, 6).t()
warnings.filterwarnings("error", message="torch.searchsorted")
def calls():
    return sum(stack["calls"] for stack in counts.values()["stacks"])
"""

PROGRAMS = {
    "all ways to call an operator": """
torch.searchsorted(sorted_, values)
torch.ops.aten.searchsorted(sorted_, values)
torch.ops.aten.searchsorted.Tensor(sorted_, values)
assert calls() == 3, calls()
assert {s["frames"].__len__() for s in counts.values()["stacks"]} == {1}
""",
    "the backward pass": """
class Warns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        torch.searchsorted(sorted_, values)
        return gradient
x = torch.ones(3, requires_grad=True)
Warns.apply(x).sum().backward()
assert calls() == 1
""",
    "methods are themselves": """
assert torch.Tensor.to is torch._C.TensorBase.to
assert torch.Tensor.copy_ is torch._C.TensorBase.copy_
assert {torch.Tensor.to} == {torch._C.TensorBase.to}
class Sub(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})
sub = torch.ones(2).as_subclass(Sub)
assert type(sub.to(torch.float64, non_blocking=True)) is Sub and Sub.seen[-1] is torch.Tensor.to
assert type(torch.ops.aten.add.Tensor(sub, sub)) is Sub
assert type(torch.ops.aten.cat([sub, sub])) is Sub
assert isinstance(torch.nn.Linear(2, 2).to(torch.float64).weight, torch.nn.Parameter)
assert torch.ones(2).to.__self__.shape == (2,)
counts.stop()
assert "to" not in vars(torch.Tensor) and "__call__" in vars(torch._ops.OpOverload)
assert torch._ops.OpOverload.__call__.__module__ == "torch._ops"
""",
    "compiled eager": """
@torch.compile(backend="eager", fullgraph=True)
def compiled(a, v):
    moved = v.to(torch.float64, non_blocking=True).cpu()
    target = torch.empty_like(moved)
    target.copy_(moved, non_blocking=True)
    return torch.searchsorted(a, v) + target
expected = torch.searchsorted(sorted_, values.contiguous()) + values.double()
before = calls()
for _ in range(3):
    assert torch.equal(compiled(sorted_, values), expected)
assert calls() >= before + 3, calls()
""",
    "exported, traced, scripted, transformed": """
class Moves(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.float64).cpu() + 1
x = torch.ones(3)
assert "to(torch.float64)" in torch.fx.symbolic_trace(Moves()).code
assert torch.equal(torch.export.export(Moves(), (x,)).module()(x), x.double() + 1)
assert torch.equal(torch.jit.trace(Moves(), (x,))(x), x.double() + 1)
assert torch.equal(torch.func.vmap(lambda t: t.to(torch.float64))(x[None]), x[None].double())
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    assert torch.empty(3).to("cpu", non_blocking=True).shape == (3,)
""",
    "a forked loader": """
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        torch.searchsorted(sorted_, values)
        return torch.full((2,), float(index))
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Items(), batch_size=4, num_workers=2)
    assert [batch.shape for batch in loader] == [(4, 2), (4, 2)]
    assert calls() == 0
""",
    "optimizer steps": """
model = torch.nn.Linear(3, 3)
first, second = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters())
for _ in range(4):
    torch.searchsorted(sorted_, values)
    model(torch.ones(1, 3)).sum().backward()
    first.step()
    second.step()
found = counts.values()
assert (found["steps"], found["steps_counted"], found["stacks"][0]["in_loop"]) == (4, 3, 3), found
""",
    "a guard": """
counts.stop()
import nsys_sync
try:
    with nsys_sync.forbid_syncs():
        torch.ops.aten.searchsorted(sorted_, values)
    raise SystemExit("not refused")
except nsys_sync.SyncError as error:
    assert __file__ in str(error)
with nsys_sync.forbid_syncs(), nsys_sync.allow_syncs():
    torch.searchsorted(sorted_, values)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_pytorch_is_as_it_was(workplace: Workplace, name: str) -> None:
    workplace.environment["PYTHONPATH"] = str(ROOT)
    done = workplace.python(BEGIN + PROGRAMS[name])
    assert done.returncode == 0, done.stderr
