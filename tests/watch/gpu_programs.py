"""Programs for a GPU and a real PyTorch, each line with the number of syncs that a watch must count there.

``# 3`` is exactly three, ``# 3+`` at least three (how often an operation waits inside differs between versions). Lines
without a mark must not be counted, except in a program that begins with ``# any other line``; ``10+ in all`` there is
the least sum over all lines.
"""

from __future__ import annotations

import re
from typing import Any

PROGRAMS = {
    "operations": """import torch
x = torch.randn(1 << 20, device="cuda")
mask = x > 0
index = torch.arange(8, device="cuda")
scalar = x[0] * 1
host = torch.randn(1 << 20)
pinned = host.pin_memory()
for _ in range(3):
    scalar.item()  # 3
    float(scalar)  # 3
    bool(scalar > 0)  # 3
    if scalar > 0: pass  # 3
    x.cpu()  # 3
    x[:4].tolist()  # 3
    x.nonzero()  # 3
    x[mask]  # 3
    x.masked_select(mask)  # 3
    torch.unique(index)  # 3+
    torch.repeat_interleave(index, index)  # 3+
    torch.equal(x, x + 1)  # 3
    host.cuda()  # 3
    pinned.to("cuda")  # 3
    torch.tensor([1.0, 2.0], device="cuda")  # 3
    host.to("cuda", non_blocking=True)  # 3
    x.copy_(host, non_blocking=True)  # 3
    host.copy_(x, non_blocking=True)  # 3
    pinned.to("cuda", non_blocking=True)
    x.to("cpu", non_blocking=True)
    x.copy_(pinned, non_blocking=True)
    pinned.copy_(x, non_blocking=True)
    torch.cuda.synchronize()  # 3
    torch.cuda.current_stream().synchronize()  # 3
    event = torch.cuda.Event()
    event.record()
    event.synchronize()  # 3
    event.query()
    torch.where(mask, x, 0).sum()
    x.masked_fill_(mask, 1.0)
    torch.ops.aten._local_scalar_dense.default(scalar)  # 3
    torch.ops.aten.nonzero.default(x)  # 3
    torch.ops.aten.nonzero(x)  # 3
""",
    "backward": """import torch
class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        gradient.sum().item()  # 4
        return gradient
x = torch.randn(1000, device="cuda", requires_grad=True)
mask = torch.ones(1000, dtype=torch.bool, device="cuda")
for _ in range(4):
    Reads.apply(x).sum().backward()
selected = x[mask]  # 1
for _ in range(2):
    selected.sum().backward(retain_graph=True)  # 2+
""",
    "filters": """import torch, warnings
x = torch.ones(1, device="cuda")
warnings.filterwarnings("ignore")
for _ in range(3):
    x.item()  # 3
with warnings.catch_warnings(record=True) as own:
    warnings.simplefilter("error")
    x.item()  # 1
warnings.filters = [("error", None, Warning, None, 0)]
x.item()  # 1
warnings.resetwarnings()
x.item()  # 1
assert not own
""",
    "own debug mode": """import torch, warnings
x = torch.ones(1, device="cuda")
assert torch.cuda.get_sync_debug_mode() == 0
torch.cuda.set_sync_debug_mode("error")
try:
    x.item()  # 1
    raise SystemExit("the mode is not obeyed")
except RuntimeError as error:
    assert "called a synchronizing CUDA operation" in str(error)
torch.cuda.set_sync_debug_mode("warn")
with warnings.catch_warnings(record=True) as own:
    warnings.simplefilter("default")
    for _ in range(3):
        x.item()  # 3
    assert len(own) == 1 and own[0].filename == __file__, own
torch.cuda.set_sync_debug_mode("default")
x.item()  # 1
assert torch.cuda.get_sync_debug_mode() == 0
""",
    "threads": """import threading, torch
x = torch.ones(1, device="cuda")
def work():
    for _ in range(50):
        x.item()  # 200
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
    "forked loader": """import torch
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((1 << 18,), float(index))
loader = torch.utils.data.DataLoader(Items(), batch_size=8, num_workers=2, pin_memory=True)
model = torch.nn.Linear(1 << 18, 1, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    loss = model(batch.to("cuda", non_blocking=True)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()  # 8
""",
    "CUDA started in a forked child": """import multiprocessing
import torch
def work():
    torch.ones(1, device="cuda").item()  # 1
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
""",
    "compiled": """# any other line, 10+ in all
import torch
torch._dynamo.config.capture_dynamic_output_shape_ops = True
torch._dynamo.config.capture_scalar_outputs = True
@torch.compile(fullgraph=True)
def chosen(x):
    return torch.nonzero(x) + 1
@torch.compile
def loss_of(model, x):
    return model(x).square().mean()
x = torch.randn(256, 256, device="cuda")
model = torch.nn.Linear(256, 256, device="cuda")
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    loss = loss_of(model, x.to("cuda", non_blocking=True))
    loss.backward()
    optimizer.step()
    loss.item()  # 5
    out = chosen(x)
    optimizer.zero_grad()
""",
    "a captured graph": """import torch
x = torch.ones(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()  # 1
with torch.cuda.graph(graph):  # 1+
    y = x * 2
for _ in range(3):
    graph.replay()
y.sum().item()  # 1
""",
    "guards": """# any other line
import nsys_sync, torch
x = torch.randn(1000, device="cuda", requires_grad=True)
def refused(work):
    try:
        with nsys_sync.forbid_syncs():
            work()
    except nsys_sync.SyncError as error:
        return __file__ in str(error)
class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        gradient.sum().item()
        return gradient
for work in (
    lambda: x[0].item(),
    lambda: x.detach().cpu(),
    torch.cuda.synchronize,
    lambda: torch.ops.aten.nonzero.default(x.detach()),
    lambda: Reads.apply(x).sum().backward(),
    lambda: torch.randn(1 << 20).to("cuda", non_blocking=True),
):
    assert refused(work), work
assert not refused(lambda: (x * 2).sum().backward())
with nsys_sync.forbid_syncs(), nsys_sync.allow_syncs():
    x[0].item()
x.detach().cpu()
""",
}


def wrong_counts(text: str, report: dict[str, Any]) -> list[str]:
    """Where a watch's report differs from the program's marks, a sentence each."""
    found: dict[int, int] = {}
    for site in report["sites"]:
        found[site["line"] or 0] = found.get(site["line"] or 0, 0) + site["calls"]
    wrong = []
    least, total = re.match(r"# any other line, (\d+)\+ in all", text), sum(found.values())
    if least is not None and total < int(least[1]):
        wrong.append(f"{total} in all, not {least[1]}+")
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.search(r"# (\d+)(\+?)$", line)
        seen = found.pop(number, 0)
        if mark is not None and (seen < int(mark[1]) or (seen > int(mark[1]) and not mark[2])):
            wrong.append(f"line {number} counted {seen} times, not {mark[1]}{mark[2]}: {line.strip()}")
        elif mark is None and seen and not text.startswith("# any other line"):
            wrong.append(f"line {number} counted {seen} times: {line.strip()}")
    return wrong
