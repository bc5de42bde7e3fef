#!/usr/bin/env python3
"""What does one added line do for a plain PyTorch script on a slow network?

    PYTHONPATH=build/python python3 bench/user.py [--steps 150] [--seeds 1 2] [--decay]

The scripts: DistributedDataParallel with 4 processes, the model of bench/ddp.py (25.2 million parameters) on points around
80 centres in 10 classes, with SGD with momentum in one script and AdamW in the other. Each is trained as it is and with

    model.register_comm_hook(gravac.GravacState(optimizer=optimizer), gravac.gravac_hook)

added, everything else left at its defaults, over links of 100 Mbit/s (network namespaces and tc, which needs root). Plain DDP
is trained over links as they are, which gives the same losses, and timed for two steps over the slow ones. The learning rate is
constant, or with --decay falls along a cosine in all runs. Columns:
  loss   on held-out points after the last step: the mean over seeds, and in brackets the lowest and the highest
  ms     a step on rank 0, the median of the second half of the steps
  first  the longest of the first five steps, in which the policy measures the link
  of plain DDP   how many times shorter a step is
"""

import argparse
import json
import os
import statistics
import sys
import time

import ddp
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gravac

PROCESSES, CENTRES, NOISE = 4, 80, 3.0
OPTIMIZERS = {
    "SGD": (lambda parameters: torch.optim.SGD(parameters, lr=0.005, momentum=0.9), 20),
    "AdamW": (lambda parameters: torch.optim.AdamW(parameters, lr=1e-4), 5),
}  # each with how many times faster its steps are to become


class Points:
    """Points around centres; a class has several."""

    def __init__(self):
        self.centres = torch.randn(CENTRES, ddp.WIDTH, generator=torch.Generator().manual_seed(5))

    def draw(self, count, generator):
        which = torch.randint(CENTRES, (count,), generator=generator)
        points = self.centres[which] + NOISE * torch.randn(count, ddp.WIDTH, generator=generator)
        return points / (1 + NOISE**2) ** 0.5, which % 10


def wait_for_parent(word):
    """Rank 0 tells the parent process something and waits for its answer; the others wait for rank 0."""
    dist.barrier()
    if dist.get_rank() == 0:
        print(word, flush=True)
        sys.stdin.readline()
    dist.barrier()


def work(arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    network = ddp.network(seed=arguments.seeds[0])
    for layer in network[::2]:
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    model = DistributedDataParallel(network)
    optimizer = OPTIMIZERS[arguments.optimizer][0](model.parameters())
    state = None
    if arguments.hook:
        state = gravac.GravacState(optimizer=optimizer)
        model.register_comm_hook(state, gravac.gravac_hook)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps) if arguments.decay else None
    points, seconds = Points(), []
    generator = torch.Generator().manual_seed(1000 * arguments.seeds[0] + dist.get_rank())
    wait_for_parent("ready")
    for _ in range(arguments.steps):
        inputs, labels = points.draw(ddp.BATCH, generator)
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if decay:
            decay.step()
        seconds.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        inputs, labels = points.draw(2048, torch.Generator().manual_seed(7))
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model.module(inputs), labels).item()
        report = state.report() if state else {"factor": 1, "bytes_sent": None}
        found = {"loss": loss, "seconds": seconds, "factor": report["factor"], "bytes": report["bytes_sent"]}
        print(json.dumps(found), flush=True)
    sys.stdin.read()  # until the parent process ends all ranks: one that leaves first would make the others complain


def train(link, optimizer, seed, steps, hook, slow, decay):
    """Trains once and returns what rank 0 has found."""
    flags = ["--work", "--optimizer", optimizer, "--seeds", str(seed), "--steps", str(steps)]
    flags += ["--hook"] * hook + ["--decay"] * decay
    started = ddp.start(PROCESSES, link, [__file__, *flags])
    leader = started[0]
    try:
        if leader.stdout.readline() != "ready\n":
            raise SystemExit("user: rank 0 ended before training began")
        if slow:
            link.shape()
        leader.stdin.write("go\n")
        leader.stdin.flush()
        line = leader.stdout.readline()
        if not line:
            raise SystemExit("user: rank 0 ended without printing its results")
        return json.loads(line)
    finally:
        for process in started:
            process.kill()
            process.wait()
        if slow:
            link.unshape()


def losses(runs):
    found = [run["loss"] for run in runs]
    return f"{statistics.mean(found):.4f} ({min(found):.4f} to {max(found):.4f})"


def compare(link, optimizer, arguments):
    least = OPTIMIZERS[optimizer][1]
    decay = arguments.decay
    plain = [train(link, optimizer, seed, arguments.steps, False, False, decay) for seed in arguments.seeds]
    timed = train(link, optimizer, arguments.seeds[0], 3, False, True, decay)
    ours = [train(link, optimizer, seed, arguments.steps, True, True, decay) for seed in arguments.seeds]
    plain_step = statistics.median(timed["seconds"][1:])
    step = statistics.median([s for run in ours for s in run["seconds"][arguments.steps // 2 :]])
    first = max(ours[0]["seconds"][:5])
    print(f"{optimizer:8}{'plain DDP':12}{losses(plain):>32}{1e3 * plain_step:10.0f}")
    print(f"{optimizer:8}{'one line':12}{losses(ours):>32}{1e3 * step:10.0f}{1e3 * first:10.0f}"
          f"{plain_step / step:10.1f}x   factor {ours[0]['factor']:.3g}, {ours[0]['bytes'] / 1e6:.2f} MB a step")  # fmt: skip
    met = "met   " if plain_step / step >= least else "missed"
    print(f"{met} plain DDP / with the line, step, {optimizer}: {plain_step / step:.1f} >= {least}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--decay", action="store_true", help="let the learning rate fall to 0 along a cosine")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, help="only this one")
    parser.add_argument("--hook", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work(arguments)
    if os.geteuid() != 0:
        raise SystemExit("user: only root can limit a link")
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, {PROCESSES} processes, 100 Mbit/s, {arguments.steps} steps")
    print(f"{'':20}{'loss':>32}{'ms':>10}{'first':>10}{'of plain DDP':>14}")
    with ddp.Link(PROCESSES) as link:
        for optimizer in [arguments.optimizer] if arguments.optimizer else OPTIMIZERS:
            compare(link, optimizer, arguments)


if __name__ == "__main__":
    main()
