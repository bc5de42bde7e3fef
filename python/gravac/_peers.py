"""How ranks talk: any process group of torch.distributed, as the engine wants it."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any, Callable, List, Optional, Set, Tuple

import torch
import torch.distributed as dist

from ._engine import Error

# What an operation of the engine returns: nothing, or who is missing, seconds waited and the cause.
Failure = Optional[Tuple[List[int], float, str]]

_LOOK_UP = datetime.timedelta(seconds=0.25)  # how often a wait looks whether it was cancelled
_meetings = 0  # groups made so far; alike on all ranks, since they are made together


def _own_group(given: Optional[Any], timeout: datetime.timedelta) -> Any:
    """A Gloo group with the ranks of `given`; all ranks if that is None."""
    if given is None or dist.get_world_size(given) == dist.get_world_size():
        return dist.new_group(timeout=timeout, backend="gloo")
    try:
        ranks = dist.get_process_group_ranks(given)
        return dist.new_group(ranks, timeout=timeout, backend="gloo", use_local_synchronization=True)
    except (AttributeError, TypeError):
        return given  # torch before 2.1 makes a smaller group only if all processes take part: use it as it is


class Peers:
    """A process group, for one thread at a time. Without torch.distributed: one rank alone.

    It is a group of its own, with the ranks of the one that was given: collectives of the caller's, from
    backward say, run on another thread, so that on a common group their order would not be fixed.
    """

    def __init__(self, group: Optional[Any], timeout: float) -> None:
        if timeout <= 0:
            raise Error(f"timeout {timeout} found, a number of seconds above 0 expected")
        self.timeout = timeout
        self.cancelled = False
        self.group = group
        self.rank, self.size = 0, 1  # until others are found
        self._meeting = 0
        self.meet()

    @property
    def found(self) -> bool:
        """Whether there is a process group."""
        return self._meeting > 0

    def meet(self) -> None:
        """Finds the others as soon as torch.distributed is ready, which may be after this was made."""
        global _meetings
        if self._meeting > 0 or not (dist.is_available() and dist.is_initialized()):
            return
        self.group = _own_group(self.group, datetime.timedelta(seconds=self.timeout))
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        _meetings += 1
        self._meeting = _meetings

    def cancel(self) -> None:
        """Ends a wait that is under way, and all to come."""
        self.cancelled = True

    def all_reduce(self, values: memoryview) -> Failure:
        tensor = torch.frombuffer(values, dtype=torch.float32)
        return self._wait(lambda: dist.all_reduce(tensor, group=self.group, async_op=True))

    def start_all_reduce(self, values: memoryview) -> Callable[[], Failure]:
        """The same without waiting for the end: that is done by what is returned."""
        tensor = torch.frombuffer(values, dtype=torch.float32)
        try:
            work = dist.all_reduce(tensor, group=self.group, async_op=True)
        except (RuntimeError, ValueError):  # so it will again, and say why
            return lambda: self.all_reduce(values)
        return lambda: self._wait(lambda: work)

    def all_gather(self, mine: memoryview, everything: memoryview) -> Failure:
        source = torch.frombuffer(mine, dtype=torch.uint8)
        target = list(torch.frombuffer(everything, dtype=torch.uint8).chunk(self.size))
        return self._wait(lambda: dist.all_gather(target, source, group=self.group, async_op=True))

    def all_to_all(self, output: memoryview, source: memoryview, received: List[int], sent: List[int]) -> Failure:
        def bytes_of(memory: memoryview) -> torch.Tensor:
            if len(memory) == 0:
                return torch.empty(0, dtype=torch.uint8)
            return torch.frombuffer(memory, dtype=torch.uint8)

        return self._wait(
            lambda: dist.all_to_all_single(
                bytes_of(output), bytes_of(source), received, sent, group=self.group, async_op=True
            )
        )

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Rank 0's tensor, everywhere."""
        if self.size > 1:
            dist.broadcast(tensor, self._global_rank_0(), group=self.group)

    def _global_rank_0(self) -> int:
        # Named so since torch 2.0.
        named = getattr(dist, "get_global_rank", None)
        return named(self.group, 0) if named and self.group is not None else 0

    def _wait(self, start: Callable[[], Any]) -> Failure:
        began = time.monotonic()
        try:
            work = start()
            while not work.is_completed() and not self.cancelled:
                try:
                    work.wait(_LOOK_UP)
                except RuntimeError:
                    if time.monotonic() - began > self.timeout + 5:  # the group's own timeout comes first
                        raise
            if self.cancelled:
                raise RuntimeError("it was interrupted")
            work.wait()  # says what went wrong, if anything did
            return None
        except (RuntimeError, ValueError) as error:
            seconds = time.monotonic() - began
            return self._missing(seconds), seconds, str(error).split("\n", 1)[0]

    def _missing(self, waited: float) -> List[int]:
        """Asks who else has noticed that something is wrong: whoever lives, by its own timeout at the latest."""
        if self.cancelled:
            return []
        answered: Set[int] = set()
        patience = max(0.0, self.timeout - waited) + 0.8

        def ask() -> None:
            store = dist.distributed_c10d._get_default_store()
            key = f"gravac/{self._meeting}/alive/"
            try:
                store.add(key + str(self.rank), 1)
                end = time.monotonic() + patience
                while time.monotonic() < end and len(answered) < self.size:
                    for rank in range(self.size):
                        if rank not in answered and store.add(key + str(rank), 0) > 0:
                            answered.add(rank)
                    time.sleep(0.02)
            except RuntimeError:  # the store is gone, with the rank that kept it
                answered.update(range(1, self.size))

        thread = threading.Thread(target=ask, daemon=True)  # a store whose keeper hangs may never answer
        thread.start()
        thread.join(patience + 1)
        if not answered:
            answered.update(range(1, self.size))
        return [rank for rank in range(self.size) if rank not in answered and rank != self.rank]
