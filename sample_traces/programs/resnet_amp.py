"""ResNet-50 with mixed precision and a GradScaler. Where the host waits for the GPU the line says so."""

import torch
import torchvision

device = torch.device("cuda")
model = torchvision.models.resnet50().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")
images = [torch.randn(64, 3, 224, 224) for _ in range(4)]
labels = [torch.randint(0, 1000, (64,)) for _ in range(4)]

right = seen = 0
for step in range(45):
    x = images[step % 4].cuda()  # sync
    y = labels[step % 4].cuda()  # sync
    x = x.to(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # sync
    scaler.update()
    right += (out.argmax(1) == y).sum().item()  # sync
    seen += len(y)

print(f"accuracy {right / seen:.3f}, loss {loss.item():.3f}")
