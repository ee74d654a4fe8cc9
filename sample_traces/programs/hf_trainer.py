"""A Hugging Face Trainer that logs every step. Where the host waits for the GPU the line says so."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    """Random tokens, the same ones for the same index."""

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        tokens = torch.randint(0, 8000, (128,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


arguments = TrainingArguments(
    output_dir="/tmp/hf_trainer",
    max_steps=45,
    per_device_train_batch_size=8,
    bf16=True,
    logging_steps=1,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=384, n_head=6, vocab_size=8000, n_positions=256))
trainer = Trainer(model=model, args=arguments, train_dataset=Tokens())
trainer.train()  # sync
