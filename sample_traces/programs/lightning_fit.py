"""A Lightning Trainer with a metric in the progress bar. Where the host waits for the GPU the line says so."""

import lightning
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment


class Classifier(lightning.LightningModule):
    """Two layers on random digits."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
        self.right = 0

    def training_step(self, batch, index):
        images, labels = batch
        logits = self.net(images)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        self.right += int((logits.argmax(1) == labels).sum())  # sync
        if loss.isnan():  # sync
            raise SystemExit("the loss is not a number")
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


digits = torch.utils.data.TensorDataset(torch.randn(8192, 784), torch.randint(0, 10, (8192,)))
loader = torch.utils.data.DataLoader(digits, batch_size=128)
trainer = lightning.Trainer(
    max_steps=50,
    accelerator="gpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_model_summary=False,
    plugins=[LightningEnvironment()],  # where mpi4py is installed, Lightning would start MPI
)
trainer.fit(Classifier(), loader)  # sync
