"""GraVAC with Accelerate, on CPU.

    torchrun --nproc_per_node 2 examples/accelerate_gravac.py
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.functional import cross_entropy

import gravac


def draw(count, seed):
    """Synthetic data of ten classes: the centre of a class plus noise."""
    centres = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    return centres[labels] + 2 * torch.randn(count, 64, generator=generator), labels


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data = torch.utils.data.TensorDataset(*draw(4096, seed=1))
    loader = torch.utils.data.DataLoader(data, 32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    # With more than one process, prepare() returns the model as a DistributedDataParallel, which takes the hook.
    if accelerator.num_processes > 1:
        # Accelerate wraps the optimizer; GraVAC takes the SGD inside.
        state = gravac.GravacState(policy="gravac", optimizer=optimizer.optimizer)
        model.register_comm_hook(state, gravac.gravac_hook)

    for epoch in range(3):
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

    inputs, labels = draw(1000, seed=2)
    with torch.no_grad():
        right = (model(inputs).argmax(1) == labels).float().mean().item()
    accelerator.print(f"accuracy {100 * right:.1f} % with {accelerator.num_processes} ranks")
    if accelerator.num_processes > 1:
        found = gravac.report()
        accelerator.print("last step: factor {factor:.3g}, {bytes_sent} of {dense_bytes} bytes sent".format(**found))
    accelerator.end_training()


if __name__ == "__main__":
    main()
