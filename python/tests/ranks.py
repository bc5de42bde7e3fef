"""Real processes for tests, and a model whose gradients are given."""

from __future__ import annotations

import ctypes
import datetime
import io
import multiprocessing
import os
import signal
import tempfile
import traceback
import warnings
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

try:
    import torch._dynamo  # noqa: F401  DDP of torch 2 loads it: once here, not in every process
except ImportError:
    pass

_fork = multiprocessing.get_context("fork")  # torch is loaded already, and this process computes nothing
_stores = tempfile.TemporaryDirectory(prefix="gravac-test-")  # removed when the tests end
_started = 0
LIMIT = 120.0  # seconds: generous, for what takes a second on a quiet machine
SHAPES = [(40, 30), (40,), (1,), (25, 41), (), (7,)]
SIZES = [torch.Size(shape).numel() for shape in SHAPES]
ROWS = [shape[0] if len(shape) > 1 else 1 for shape in SHAPES]


class Fed(torch.nn.Module):
    """Parameters whose gradients are exactly what forward is fed; None: not used."""

    def __init__(self, dtypes=(torch.float32,)):
        super().__init__()
        self.ps = torch.nn.ParameterList(
            torch.nn.Parameter(torch.zeros(shape, dtype=dtypes[i % len(dtypes)])) for i, shape in enumerate(SHAPES)
        )

    def forward(self, gradients):
        return sum((p * g.to(p.dtype)).sum().float() for p, g in zip(self.ps, gradients) if g is not None)


def ddp(model: torch.nn.Module, **options: Any) -> torch.nn.Module:
    """With buckets of 4 kB, so that there are several."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4096
    return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.004, **options)


def gradients_of(rank: int, step: int) -> List[torch.Tensor]:
    """Whole numbers, so that sums are exact in any order."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    small = [torch.randint(-10, 11, shape, generator=generator) for shape in SHAPES]
    large = [torch.randint(0, 16, shape, generator=generator) == 0 for shape in SHAPES]
    return [(s * torch.where(b, 50, 1)).float() for s, b in zip(small, large)]


def flat(tensors) -> torch.Tensor:
    return torch.cat([t.detach().float().reshape(-1) for t in tensors])


def _join(rank: int, size: int, store: str, port: Any) -> None:
    """Makes the process group over a file, or over TCP, where rank 0 keeps the store that the others ask."""
    limit = datetime.timedelta(seconds=LIMIT)
    if store == "tcp":
        if rank == 0:
            kept = dist.TCPStore("127.0.0.1", 0, size, True, limit, wait_for_workers=False)
            for _ in range(size - 1):
                port.put(kept.port)
        else:
            kept = dist.TCPStore("127.0.0.1", port.get(), size, False, limit, wait_for_workers=False)
        dist.init_process_group("gloo", store=kept, rank=rank, world_size=size, timeout=limit)
    else:
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=limit)
    dist.barrier()  # who leaves early must not be missed by who is still connecting


def _child(
    function: Callable, rank: int, size: int, store: Optional[str], port: Any, arguments: tuple, pipe: Any
) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: do not outlive tests that are killed
    try:
        torch.set_num_threads(1)
        if store is not None:
            _join(rank, size, store, port)
        value = io.BytesIO()
        torch.save(function(rank, *arguments), value)  # tensors by value: this process ends
        pipe.send((True, value.getvalue()))
    except BaseException as error:
        pipe.send((False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
    finally:
        pipe.close()
        os._exit(0)  # a peer may be gone, and then there is no tidy end


def _load(data: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(io.BytesIO(data), weights_only=False)
        except TypeError:  # torch 1.13
            return torch.load(io.BytesIO(data))


def start(size: int, function: Callable, *arguments: Any, store: Optional[str] = "file"):
    """Processes that run function(rank, ...), and a pipe from each.

    They form a group over a "file" or over "tcp", or none if `store` is None.
    """
    global _started
    _started += 1
    if store == "file":
        store = f"file://{_stores.name}/{_started}"
    port = _fork.SimpleQueue()
    started = []
    for rank in range(size):
        receiver, sender = _fork.Pipe(duplex=False)
        process = _fork.Process(target=_child, args=(function, rank, size, store, port, arguments, sender))
        process.start()
        sender.close()
        started.append((process, receiver))
    return started


def result(started, seconds: float = LIMIT):
    """(went well, value or message) of one process."""
    process, pipe = started
    if not pipe.poll(seconds):
        process.kill()
        return False, "no answer"
    try:
        well, value = pipe.recv()
        return well, _load(value) if well else value
    except EOFError:
        return False, "died"


def end(started) -> None:
    for process, _ in started:
        process.kill()
        process.join()


def run(size: int, function: Callable, *arguments: Any, store: Optional[str] = "file") -> list:
    """What function(rank, ...) returned on each rank."""
    started = start(size, function, *arguments, store=store)
    results = [result(one) for one in started]
    end(started)
    failed = [f"rank {rank}: {value}" for rank, (well, value) in enumerate(results) if not well]
    assert not failed, "\n".join(failed)
    return [value for _, value in results]


def _each(rank: int, function: Callable, cases: dict) -> dict:
    found = {}
    for name, arguments in cases.items():
        try:
            found[name] = function(rank, *arguments)
        except BaseException as error:
            raise AssertionError(f"case {name}") from error
    return found


def run_each(size: int, function: Callable, cases: dict) -> dict:
    """By name of the case, what function(rank, *arguments) returned on each rank. One start for all cases."""
    ranks = run(size, _each, function, cases)
    return {name: [found[name] for found in ranks] for name in cases}


def errors(size: int, function: Callable, *arguments: Any) -> List[str]:
    """The messages with which function(rank, ...) failed on each rank."""
    started = start(size, function, *arguments)
    results = [result(one) for one in started]
    end(started)
    assert not any(well for well, _ in results), results
    return [message for _, message in results]
