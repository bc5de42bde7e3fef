"""What does check_every cost: comparing 25 million parameters across two processes, once?

    PYTHONPATH=build/python python3 bench/check_every.py
"""

import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing

import gravac


def work(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    model = torch.nn.Sequential(*[torch.nn.Linear(1000, 1000) for _ in range(25)])
    aggregator = gravac.Aggregator(model, policy="dense", check_every=1)
    aggregator._steps = 1  # so that a check is due
    seconds = []
    for _ in range(15):
        dist.barrier()
        began = time.perf_counter()
        aggregator._check_parameters(aggregator._parameters, model)
        seconds.append(time.perf_counter() - began)
    if rank == 0:
        count = sum(p.numel() for p in model.parameters())
        print(f"{count / 1e6:.0f} million parameters: {1e3 * statistics.median(seconds):.1f} ms")
    dist.barrier()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"file://{folder}/store",), 2)
