"""Data-parallel training on several GPUs; one rank logs. Where the host waits for the GPU the line says so."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(6)]).to(device)
model = DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
batch = torch.randn(2048, 2048, device=device)

for step in range(60):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    value = mean.item()  # sync
    if rank == 0:
        weights = torch.tensor([value] * 64, device=device)  # sync
        torch.cuda.synchronize()  # sync

print(f"rank {rank}: loss {value:.5f}")
dist.destroy_process_group()
