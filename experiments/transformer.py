#!/usr/bin/env python3
"""Trains a small transformer on text, letter by letter, with AdamW and DistributedDataParallel.

    PYTHONPATH=build/python python3 experiments/transformer.py --text FILE --out DIR [--seed 1] [OPTION=VALUE...]

Two worker processes on this machine. OPTION=VALUE are options of gravac.GravacState, such as compressor=quantise bits=4.
Writes DIR/summary.json: the mean loss over the last tenth of the text, which is not trained on, and the bytes sent.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

import gravac

WORKERS, BATCH, WINDOW, WIDTH, LAYERS = 2, 12, 64, 128, 4


class Transformer(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, WIDTH), nn.Embedding(WINDOW, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.last = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters))
        self.register_buffer("mask", torch.full((WINDOW, WINDOW), float("-inf")).triu(1))

    def forward(self, text):
        found = self.letters(text) + self.places.weight
        return self.last(self.layers(found, self.mask))


def windows(text, starts):
    """Pieces of text, and the letters that follow."""
    both = torch.stack([text[start : start + WINDOW + 1] for start in starts.tolist()])
    return both[:, :-1], both[:, 1:]


def loss_of(model, inputs, targets):
    return cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model, text):
    parts = torch.arange(0, len(text) - WINDOW - 1, 4 * WINDOW).split(32)
    return torch.stack([loss_of(model, *windows(text, part)) for part in parts]).mean().item()


def train(rank, store, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORKERS)
    letters, text = torch.unique(torch.frombuffer(bytearray(arguments.text.read_bytes()), dtype=torch.uint8),
                                 return_inverse=True)  # fmt: skip
    training, held_back = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    torch.manual_seed(arguments.seed)
    model = Transformer(len(letters))
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)
    options = {name.replace("-", "_"): value for name, value in (one.split("=", 1) for one in arguments.options)}
    state = gravac.GravacState(optimizer=optimizer, **options)
    wrapped.register_comm_hook(state, gravac.gravac_hook)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, arguments.steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(1000 * arguments.seed + rank)
    sent = dense = 0
    for _ in range(arguments.steps):
        starts = torch.randint(len(training) - WINDOW - 1, (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss_of(wrapped, *windows(training, starts)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        report = state.report()
        sent, dense = sent + report["bytes_sent"], dense + report["dense_bytes"]
    if rank == 0:
        arguments.out.mkdir(parents=True, exist_ok=True)
        metric = {"name": "loss", "value": evaluate(model, held_back)}
        summary = {"metric": metric, "steps": arguments.steps, "bytes_sent": sent, "dense_bytes": dense}
        (arguments.out / "summary.json").write_text(json.dumps(summary) + "\n")
    dist.barrier()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            multiprocessing.Process(target=train, args=(rank, folder + "/store", arguments)) for rank in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    raise SystemExit(any(worker.exitcode != 0 for worker in workers))


if __name__ == "__main__":
    main()
