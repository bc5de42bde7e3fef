"""GraVAC with Lightning: two processes on one machine, on CPU.

    python examples/lightning_gravac.py

A callback registers the hook when training begins, because the optimizer exists from then on. (DDPStrategy takes a
state and a hook, too, but before there is an optimizer, and Lightning ignores them silently on CPU.)
"""

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.nn.functional import cross_entropy

import gravac


class Gravac(lightning.Callback):
    """Registers the hook, and reports the last step's compression."""

    def on_train_start(self, trainer, module):
        self.state = gravac.GravacState(policy="gravac", optimizer=trainer.optimizers[0])
        trainer.model.register_comm_hook(self.state, gravac.gravac_hook)

    def on_train_end(self, trainer, module):
        found = self.state.report()
        if trainer.is_global_zero:
            print("last step: factor {factor:.3g}, {bytes_sent} of {dense_bytes} bytes sent".format(**found))


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))

    def training_step(self, batch, _):
        return cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, _):
        right = (self.layers(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)


def draw(count, seed):
    """Synthetic data of ten classes: the centre of a class plus noise."""
    centres = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    data = centres[labels] + 2 * torch.randn(count, 64, generator=generator)
    return torch.utils.data.TensorDataset(data, labels)


def main():
    lightning.seed_everything(0)
    torch.set_num_threads(1)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="gloo"), callbacks=[Gravac()],
        max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    training = torch.utils.data.DataLoader(draw(4096, seed=1), 32, shuffle=True)
    test = torch.utils.data.DataLoader(draw(1000, seed=2), 250)
    trainer.fit(Net(), training, test)
    if trainer.is_global_zero:
        print(f"accuracy {100 * trainer.callback_metrics['accuracy']:.1f} %")


if __name__ == "__main__":
    main()
