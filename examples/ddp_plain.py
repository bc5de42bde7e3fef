"""Trains a small convolutional net with DistributedDataParallel, on synthetic images or on CIFAR-10.

    torchrun --nproc_per_node 2 examples/ddp_gravac.py [--data-dir DIR]

ddp_plain.py is the same script without GraVAC: `diff` the two to see what to add to your own. The default policy,
progress, compresses only where that saves time, by the times it measures: over a slow network it compresses, and
between processes of one machine it may do either, depending on what else the machine does. The last line printed says
what the last step sent. Debian's torchrun 1.13 fails under Python 3.11 unless it is called with -r 1 -t 1.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, interpolate

CLASSES = 10


def draw(count, seed):
    """Synthetic images of ten classes: a class's pattern, a weaker one of another class, a shift and noise."""
    patterns = interpolate(torch.randn(CLASSES, 3, 8, 8, generator=torch.Generator().manual_seed(0)), (32, 32))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    others = torch.randint(CLASSES, (count,), generator=generator)
    images = patterns[labels] + 0.8 * patterns[others]
    moves = torch.randint(-4, 5, (count, 2), generator=generator).tolist()
    images = torch.stack([image.roll(move, (1, 2)) for image, move in zip(images, moves)])
    return images + 2 * torch.randn(images.shape, generator=generator), labels


def read(files):
    """Reads CIFAR-10's binary files, whose records are one byte for the class and 3 * 32 * 32 for the image."""
    data = b"".join(open(file, "rb").read() for file in files)
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, 3073)
    return (records[:, 1:].reshape(-1, 3, 32, 32).float() - 120) / 64, records[:, 0].long()


def load(directory):
    if directory is None:
        return draw(4096, seed=1), draw(1000, seed=2)
    training = [f"{directory}/data_batch_{i}.bin" for i in range(1, 6)]
    return read(training), read([f"{directory}/test_batch.bin"])


def network():
    def block(channels_in, channels_out):
        return [
            torch.nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1),
            torch.nn.BatchNorm2d(channels_out),
            torch.nn.ReLU(),
        ]

    layers = block(3, 32) + block(32, 64) + block(64, 128)
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(128 * 16, CLASSES))


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    found = torch.cat([model(part).argmax(1) for part in images.split(250)])
    model.train()
    return (found == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", help="folder of data_batch_1.bin ... data_batch_5.bin, test_batch.bin")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--lr", type=float, default=0.02)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    training, test = load(arguments.data_dir)
    data = torch.utils.data.TensorDataset(*training)
    sampler = torch.utils.data.distributed.DistributedSampler(data, size, rank)
    loader = torch.utils.data.DataLoader(data, arguments.batch, sampler=sampler, drop_last=True)

    model = torch.nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), arguments.lr, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs * len(loader))
    start = time.monotonic()
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {time.monotonic() - start:.1f} s")
    if rank == 0:
        print(f"accuracy {100 * accuracy(model.module, *test):.1f} % with {size} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
