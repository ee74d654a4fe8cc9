"""Times two kinds of steps, host-bound and GPU-bound, inside a capture range; prints the medians in ms as JSON."""

import json
import statistics
import time

import torch

device = torch.device("cuda")
torch.manual_seed(0)


def timed(step, count):
    for _ in range(15):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(times), 4)


def training(width, depth, rows):
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(depth)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(rows, width, device=device)

    def step():
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    return step


host_bound, gpu_bound = training(64, 60, 64), training(4096, 12, 1536)
for warm in (host_bound, gpu_bound):
    for _ in range(5):
        warm()
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStart()
result = {"host_bound_ms": timed(host_bound, 150), "gpu_bound_ms": timed(gpu_bound, 20)}
torch.cuda.cudart().cudaProfilerStop()
print(json.dumps(result), flush=True)
