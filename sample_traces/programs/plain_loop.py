"""A plain PyTorch training loop. Where the host waits for the GPU the line says so."""

import torch

device = torch.device("cuda")
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batches = [torch.randn(4096, 1024) for _ in range(8)]

losses = []
for step in range(60):
    batch = batches[step % 8].to(device)  # sync
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if torch.isfinite(norm):  # sync
        losses.append(loss.item())  # sync

print(f"{len(losses)} steps, loss {losses[0]:.3f} to {losses[-1]:.3f}")
