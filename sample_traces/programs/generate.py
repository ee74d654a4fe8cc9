"""Text generation with sampling: no optimizer, so no steps. Where the host waits for the GPU the line says so."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=16000, n_positions=512)).cuda().eval()
prompt = torch.randint(5, 16000, (4, 32), device="cuda")
mask = torch.ones_like(prompt)

tokens = 0
for _ in range(60):
    with torch.no_grad():
        out = model.generate(prompt, attention_mask=mask, max_new_tokens=24, do_sample=True, pad_token_id=0)  # sync
    tokens += len(out[:, 32:].flatten().tolist())  # sync

print(f"{tokens} tokens")
