"""A model under torch.compile in a loop that reads its loss. Where the host waits for the GPU the line says so."""

import torch

device = torch.device("cuda")
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(2048, 2048), torch.nn.GELU())]
model = torch.compile(torch.nn.Sequential(*layers).to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
batch = torch.randn(2048, 2048, device=device)

best = float("inf")
for step in range(60):
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = min(best, float(loss))  # sync

print(f"best loss {best:.4f}")
