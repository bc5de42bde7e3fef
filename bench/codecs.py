#!/usr/bin/env python3
"""What does a step of synchronisation cost with each compressor, beside dense and torch's own hooks?

    PYTHONPATH=build/python python3 bench/codecs.py [--quick]

The gradients: random ones with the shapes of ResNet101, VGG16 and an LSTM of 1500 units, handed to
DistributedDataParallel by a model that computes nothing, so that a step is the exchange alone. The links: loopback as
it is, 1 Gbit/s and 100 Mbit/s (by network namespaces and tc, which needs root). Everything runs under DDP, over Gloo,
with 4 processes of one thread each. Columns:
  ms      a step on the slowest rank, the median of three steps; of one where a dense gradient takes many seconds
  MB      bytes that a rank sends in a step. For torch's hooks: of the exchange they ask for, as a ring sends it
  gain    share of the gradient's energy that survives compression; for torch's hooks it is not known
"""

import argparse
import contextlib
import ctypes
import gc
import json
import math
import os
import statistics
import sys
import time

import ddp
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import gravac

PROCESSES = 4
LINKS = {"as it is": None, "1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit"}


# The shapes of the parameters, in the order of the models.


def resnet101():
    def batch_norm(channels):
        return [(channels,), (channels,)]

    shapes = [(64, 3, 7, 7), *batch_norm(64)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 23), (512, 3)):
        for block in range(blocks):
            shapes += [(width, inside, 1, 1), *batch_norm(width), (width, width, 3, 3), *batch_norm(width)]
            shapes += [(4 * width, width, 1, 1), *batch_norm(4 * width)]
            if block == 0:
                shapes += [(4 * width, inside, 1, 1), *batch_norm(4 * width)]
            inside = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def vgg16():
    shapes, inside = [], 3
    for width in (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512):
        shapes += [(width, inside, 3, 3), (width,)]
        inside = width
    return shapes + [(4096, 25088), (4096,), (4096, 4096), (4096,), (1000, 4096), (1000,)]


def lstm():
    layer = [(6000, 1500), (6000, 1500), (6000,), (6000,)]
    return [(10000, 1500), *layer, *layer, (10000, 1500), (10000,)]


MODELS = {"ResNet101": resnet101, "VGG16": vgg16, "LSTM-1500": lstm}


class Given(torch.autograd.Function):
    """A loss whose gradients are those it is given."""

    @staticmethod
    def forward(context, model, *_):
        context.model = model
        return torch.zeros(())

    @staticmethod
    def backward(context, *_):
        return (None, *context.model.gradients)


class Model(torch.nn.Module):
    def __init__(self, shapes):
        super().__init__()
        generator = torch.Generator().manual_seed(dist.get_rank())
        shared = torch.Generator().manual_seed(100)
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.empty(shape)) for shape in shapes)
        # Scales differ by layer and by row; half of the energy is common to all ranks, half is the rank's own.
        self.gradients = []
        for shape in shapes:
            scales = torch.randn(shape[0], *(1 for _ in shape[1:]), generator=shared).exp()
            common, own = torch.randn(shape, generator=shared), torch.randn(shape, generator=generator)
            self.gradients.append(common.add_(own).mul_(scales * torch.randn((), generator=shared).exp()))

    def forward(self):
        return Given.apply(self, *self.weights)


# What is compared. A way gives a hook for DDP, and after a step the bytes sent and the gain.


class Torch:
    def __init__(self, hook, bytes_of):
        self.hook, self.bytes_of = hook, bytes_of

    def register(self, model):
        if self.hook is not None:
            model.register_comm_hook(None, self.hook)

    def report(self, entries):
        return self.bytes_of(entries) * 2 * (PROCESSES - 1) / PROCESSES, None


def power_sgd(rank):
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)

    def hook(_, bucket):
        # One bucket at a time, since the order of exchanges would not be the same on all ranks: see ddp.py.
        return ddp.completed(powerSGD_hook.powerSGD_hook(state, bucket).wait())

    return Torch(hook, lambda entries: 4 * entries / state.compression_stats()[0])


class Ours:
    def __init__(self, **options):
        self.state = gravac.GravacState(policy=options.pop("policy", "static"), **options)

    def register(self, model):
        model.register_comm_hook(self.state, gravac.gravac_hook)

    def report(self, _):
        report = self.state.report()
        return report["bytes_sent"], report["gain_error_fed_candidate"] if report["factor"] > 1 else 1


WAYS = {
    "plain DDP": lambda: Torch(None, lambda entries: 4 * entries),
    "torch fp16_compress_hook": lambda: Torch(default_hooks.fp16_compress_hook, lambda entries: 2 * entries),
    "torch PowerSGD rank 1": lambda: power_sgd(1),
    "torch PowerSGD rank 4": lambda: power_sgd(4),
    "dense": lambda: Ours(policy="dense"),
    "fp16": lambda: Ours(compressor="fp16"),
    "bf16": lambda: Ours(compressor="bf16"),
    "quantise 8 bits": lambda: Ours(compressor="quantise", bits=8),
    "quantise 4 bits": lambda: Ours(compressor="quantise", bits=4),
    "quantise 2 bits": lambda: Ours(compressor="quantise", bits=2),
    "qsgd 4 bits": lambda: Ours(compressor="qsgd", bits=4),
    "onebit": lambda: Ours(compressor="onebit"),
    "powersgd rank 1": lambda: Ours(compressor="powersgd", rank=1),
    "powersgd rank 4": lambda: Ours(compressor="powersgd", rank=4),
    "topk 10x": lambda: Ours(compressor="topk", factor=10),
    "topk 100x": lambda: Ours(compressor="topk", factor=100),
    "topk 100x, int4 values": lambda: Ours(compressor="topk", factor=100, values="int4"),
    "dgc 100x": lambda: Ours(compressor="dgc", factor=100),
    "redsync 100x": lambda: Ours(compressor="redsync", factor=100),
    "sidco 100x": lambda: Ours(compressor="sidco", factor=100),
    "randomk 100x": lambda: Ours(compressor="randomk", factor=100),
}
# These take many seconds for a step on the slow link, the same in every step: one is enough.
LARGE = ("plain DDP", "torch fp16_compress_hook", "dense", "fp16", "bf16")


class Runner:
    def __init__(self, model, name):
        self.way, self.entries = WAYS[name](), sum(w.numel() for w in model.weights)
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.way.register(self.model)
        self.seconds = []

    def step(self):
        dist.barrier()
        start = time.perf_counter()
        self.model().backward()
        mine = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        self.seconds.append(mine.item())

    def result(self):
        sent, gain = self.way.report(self.entries)
        return {"ms": 1e3 * statistics.median(self.seconds), "MB": sent / 1e6, "gain": gain}


def limit_link(arguments):
    """Rank 0 asks the parent process to limit the link, and all wait."""
    if arguments.work == "as it is":
        return
    if dist.get_rank() == 0:
        print("limit", flush=True)
        sys.stdin.readline()
    dist.barrier()


def work(arguments):
    """One process, for one model."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    name = arguments.models[0]
    model = Model(MODELS[name]())
    for way in arguments.ways:
        runner = Runner(model, way)
        slow = arguments.work == "100 Mbit/s" and way in LARGE
        # Ours choose their routes by how fast the link is, so they warm up on it, the others before it is limited.
        learns = isinstance(runner.way, Ours) and way != "dense"
        if learns:
            limit_link(arguments)
        # DDP makes its buckets anew in the second step; torch's PowerSGD compresses from its third step on. Ours try all
        # routes before they keep to one.
        quick_link = arguments.work != "100 Mbit/s"
        for _ in range(2 if slow else 10 if learns and quick_link else 4):
            runner.step()
        runner.seconds.clear()
        if not learns:
            limit_link(arguments)
        for _ in range(1 if arguments.quick or slow else 3):
            runner.step()
        result = runner.result()
        if first:
            print(json.dumps({"model": name, "way": way, **result}), flush=True)
            if arguments.work != "as it is":
                sys.stdin.readline()
        dist.barrier()
        del runner
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # or else free memory stays with threads that are gone, gigabytes of it
    dist.barrier()
    os._exit(0)  # an orderly exit may hang: every hook has a process group of its own


def measure(where, model, arguments, show):
    """Starts the processes and shows every result as rank 0 prints it."""
    rate = LINKS[where]
    flags = ["--quick"] if arguments.quick else []
    command = [__file__, "--work", where, *flags, "--models", model, "--ways", *arguments.ways]
    with contextlib.nullcontext() if rate is None else ddp.Link(PROCESSES) as link:
        results(ddp.start(PROCESSES, link, command), link, rate, show)


def results(started, link, rate, show):
    leader = started[0]
    try:
        for line in leader.stdout:
            if line == "limit\n":
                link.shape(rate)
            else:
                show(json.loads(line))
                if link:
                    link.unshape()
            if link:
                leader.stdin.write("go\n")
                leader.stdin.flush()
        for process in started:
            if process.wait(60) != 0:
                raise SystemExit("codecs: a process failed")
    finally:
        for process in started:
            process.kill()
            process.wait()


def goals(found):
    """Compares with torch's hooks, on every model and link that was measured."""
    print("\ngoals")
    pairs = [
        ("powersgd rank 1", "torch PowerSGD rank 1", None),
        ("powersgd rank 4", "torch PowerSGD rank 4", None),
        ("topk 100x, int4 values", "torch PowerSGD rank 1", "100 Mbit/s"),
        ("fp16", "torch fp16_compress_hook", None),
    ]
    for mine, theirs, only in pairs:
        for (where, model, way), result in found.items():
            if way != mine or (where, model, theirs) not in found or (only and only != where):
                continue
            ratio = result["ms"] / found[where, model, theirs]["ms"]
            print(f"{'met   ' if ratio <= 1 else 'missed'} {f'{mine} / {theirs}: {model}, {where}':76}{ratio:8.2f}  <= 1")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one step of each")
    parser.add_argument("--links", nargs="*", choices=LINKS, default=list(LINKS), metavar="LINK")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--work", choices=LINKS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work(arguments)

    print(f"torch {torch.__version__}, {os.cpu_count()} cores, {PROCESSES} processes, gravac {gravac.__version__}")
    began, found = time.monotonic(), {}
    for where in arguments.links:
        if LINKS[where] and os.geteuid() != 0:
            print(f"\n{where}: left out, since only root can limit a link")
            continue

        def show(result):
            model = result["model"]
            found[where, model, result["way"]] = result
            plain = found.get((where, model, "plain DDP"), {"ms": math.nan})["ms"]
            gain = f"{result['gain']:.3f}" if result["gain"] is not None else "-"
            print(
                f"{result['way']:28}{result['ms']:10.1f}{result['MB']:10.2f}{gain:>8}{result['ms'] / plain:10.3f}",
                flush=True,
            )

        for model in arguments.models:
            print(f"\n{model}, link {where}\n{'':28}{'ms':>10}{'MB':>10}{'gain':>8}{'of plain':>10}")
            measure(where, model, arguments, show)
    goals(found)
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
