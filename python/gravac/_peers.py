"""How ranks talk: a Gloo group of our own, as the engine wants it."""

from __future__ import annotations

import datetime
import functools
import queue
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch
import torch.distributed as dist

from ._engine import Error

# What an operation of the engine returns: nothing, or who is missing, whether others may be missing too, seconds
# waited and the cause.
Failure = Optional[Tuple[List[int], bool, float, str]]

_LOOK_UP = datetime.timedelta(seconds=0.25)  # how often a wait looks whether it was cancelled
_DEFAULT_TIMEOUT = 1800.0  # seconds, as torch has it; for groups that do not tell theirs
_WARN_AFTER = 10.0  # seconds of one wait after which late ranks are named; every warning doubles it
_PATIENCE = 5.0  # seconds in which a rank that waits has noticed that another one has given up
_TAG = 0x67726176  # of single messages; another for what never comes
_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def _timeout_of(group: Optional[Any]) -> float:
    """The timeout of a process group, in seconds; of the default group if that is None."""
    whole = group if group is not None else dist.distributed_c10d._get_default_group()
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    # Since torch 2.0 a group has a backend for each kind of device, before that it is one.
    for find in (lambda: whole._get_backend(cpu), lambda: whole._get_backend(cuda), lambda: whole):
        try:
            return float(find().options._timeout.total_seconds())
        except (AttributeError, RuntimeError):
            continue
    return _DEFAULT_TIMEOUT


def named(ranks: List[int]) -> str:
    """ "rank 3", "ranks 1, 2 and 5"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _meet(store: Any, place: str, rank: int, size: int, timeout: float) -> str:
    """Where this meeting of all ranks has its keys in the store: a name that no meeting had before.

    The store may outlive processes, as torchrun's does when it restarts a job, and then it holds what earlier ones
    have written. So names are made of counters, which only grow: every rank draws a ticket, and rank 0 answers each
    ticket with its own, which is the meeting's number. What was written for an earlier ticket is never read.
    """
    ticket = store.add(f"{place}/ticket/{rank}", 1)
    number = ticket if rank == 0 else 0
    late = list(range(1, size)) if rank == 0 else [0]
    answered: Dict[int, int] = {}  # by rank, the last ticket
    began, pause = time.monotonic(), 0.001
    while True:
        for other in late if rank == 0 else []:
            theirs = store.add(f"{place}/ticket/{other}", 0)
            if theirs > answered.get(other, 0):
                answered[other] = theirs
                store.add(f"{place}/answer/{other}/{theirs}", number)
        if rank == 0:
            late = [other for other in late if store.add(f"{place}/{number}/here/{other}", 0) == 0]
        else:
            number = store.add(f"{place}/answer/{rank}/{ticket}", 0)
            late = [] if number > 0 else [0]
        if not late:
            store.add(f"{place}/{number}/here/{rank}", 1)
            return f"{place}/{number}/"
        if time.monotonic() - began > timeout:
            raise Error(f"{named(late)} of {size} did not connect; rank {rank} waited {timeout:.1f} s")
        time.sleep(pause)
        pause = min(2 * pause, _LOOK_UP.total_seconds())


@functools.lru_cache
def _gloo_adds(dtype: torch.dtype) -> bool:
    """Whether Gloo of this torch can add up a type, which a group of one rank shows without a message."""
    try:
        alone = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, datetime.timedelta(seconds=5))
        alone.allreduce([torch.ones(1, dtype=dtype)]).wait()
    except (AttributeError, RuntimeError):
        return False
    return True


class _Task:
    """Work for a thread, to be waited for as one waits for an operation of torch's."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._ended = threading.Event()
        self._error: Optional[BaseException] = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._error = error
        self._ended.set()

    def is_completed(self) -> bool:
        return self._ended.is_set()

    def ended(self, seconds: float) -> bool:
        """Waits for the end, well or not, for so long at most."""
        return self._ended.wait(seconds)

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> None:
        if not self._ended.wait(None if timeout is None else timeout.total_seconds()):
            raise RuntimeError("not yet")
        if self._error is not None:
            raise RuntimeError(str(self._error))


def _run_tasks(tasks: "queue.SimpleQueue[Optional[_Task]]") -> None:
    while True:
        task = tasks.get()
        if task is None:
            return
        task.run()
        del task  # and with it the memory of its messages


class Peers:
    """A process group, for one thread at a time. Without torch.distributed: one rank alone.

    It is a Gloo group of its own, with the ranks of the one that was given: collectives of the caller's, from
    backward say, run on another thread, so that on a common group their order would not be fixed. Torch does not
    know it, so close() gives its connections and threads back, whatever other ranks do at that time.
    """

    def __init__(self, group: Optional[Any], timeout: Optional[float]) -> None:
        if timeout is not None and timeout <= 0:
            raise Error(f"timeout must be > 0 s, got {timeout} s")
        self.timeout = timeout or _DEFAULT_TIMEOUT
        self.cancelled = False
        self.given = group
        self.group: Any = None
        self.rank, self.size = 0, 1  # until others are found
        self.step = 0  # for messages; the engine sets it
        self._timeout_given = timeout is not None
        self._place = ""  # where this group's keys are in the store
        self._keeper: Optional[int] = 0  # the rank here that is global rank 0, whose process keeps the store
        self._under_way: List[Any] = []  # operations that were started and may not have ended
        self._operations = 0  # started so far; equal on all ranks
        self._told = 0  # the operation that the store says this rank has waited in
        self._telling = threading.Lock()
        self._others_failed = False
        self._warn_after = _WARN_AFTER
        self._store: Any = None
        self._tasks: Optional[queue.SimpleQueue[Optional[_Task]]] = None  # for a thread that sends these
        self._sending: Optional[_Task] = None
        self.meet()

    @property
    def found(self) -> bool:
        """Whether there is a process group."""
        return self._place != ""

    def meet(self) -> None:
        """Finds the others as soon as torch.distributed is ready, which may be after this was made."""
        if self.found or not (dist.is_available() and dist.is_initialized()):
            return
        if not self._timeout_given:
            self.timeout = _timeout_of(self.given)
        whole = self.given if self.given is not None else dist.distributed_c10d._get_default_group()
        ranks = dist.get_process_group_ranks(whole)
        rank, size = dist.get_rank(self.given), len(ranks)
        self._store = dist.distributed_c10d._get_default_store()
        place = _meet(self._store, f"gravac/{','.join(map(str, ranks))}", rank, size, self.timeout)
        names = dist.PrefixStore(place, self._store)
        self.group = dist.ProcessGroupGloo(names, rank, size, datetime.timedelta(seconds=self.timeout))
        self.group.barrier().wait()  # a rank that closes its group at once would break the connecting of others
        self.rank, self.size, self._place = rank, size, place
        self._keeper = ranks.index(0) if 0 in ranks else None

    def close(self) -> None:
        """Gives connections and threads back. REQUIRES: not busy()."""
        self.cancel()
        self.group = self._store = None

    def cancel(self) -> None:
        """Ends a wait that is under way, and all to come."""
        self.cancelled = True
        if self._tasks is not None:
            self._tasks.put(None)

    def busy(self) -> bool:
        """Whether an operation is under way, also one that nobody waits for any more."""
        self._under_way = [work for work in self._under_way if not work.is_completed()]
        return len(self._under_way) > 0

    def adds_halves(self, kind: str) -> bool:
        """Whether all_reduce() can add up "fp16" or "bf16"."""
        return self.found and _gloo_adds(_TYPES[kind])

    def all_reduce(self, values: memoryview, kind: str) -> Failure:
        tensor = torch.frombuffer(values, dtype=_TYPES[kind])
        return self._wait(lambda: self.group.allreduce([tensor]))

    def start_all_reduce(self, values: memoryview, kind: str) -> Callable[[], Failure]:
        """The same without waiting for the end: that is done by what is returned."""
        tensor = torch.frombuffer(values, dtype=_TYPES[kind])
        try:
            work, number = self._start(lambda: self.group.allreduce([tensor]))
        except (RuntimeError, ValueError):  # so it will again, and say why
            return lambda: self.all_reduce(values, kind)
        return lambda: self._end(work, number, time.monotonic())

    # The next two hand torch copies: their memory may be given back as soon as nobody waits any more.

    def all_gather(self, mine: memoryview, everything: memoryview) -> Failure:
        source = torch.frombuffer(mine, dtype=torch.uint8).clone()
        received = torch.empty(len(everything), dtype=torch.uint8)
        target = list(received.chunk(self.size))
        failure = self._wait(lambda: self.group.allgather([target], [source]))
        if failure is None:
            torch.frombuffer(everything, dtype=torch.uint8).copy_(received)
        return failure

    def all_to_all(self, output: memoryview, source: memoryview, received: List[int], sent: List[int]) -> Failure:
        given = torch.frombuffer(source, dtype=torch.uint8).clone() if len(source) else torch.empty(0).byte()
        found = torch.empty(len(output), dtype=torch.uint8)
        failure = self._wait(lambda: self._start_rounds(list(found.split(received)), list(given.split(sent))))
        if failure is None and len(output):
            torch.frombuffer(output, dtype=torch.uint8).copy_(found)
        return failure

    def _start_rounds(self, into: List[torch.Tensor], parts: List[torch.Tensor]) -> _Task:
        """Starts an all-to-all that sends to one rank after the other.

        Gloo's own sends to all at once, and several senders then compete for each receiver's link, of which a third is
        lost. The rounds need a thread, because torch offers no way to ask whether a single message has arrived.
        """
        if self.cancelled:
            raise RuntimeError("it was interrupted")
        if self._tasks is None:
            self._tasks = queue.SimpleQueue()
            threading.Thread(target=_run_tasks, args=(self._tasks,), name="gravac-send", daemon=True).start()
        rank, size, group = self.rank, self.size, self.group

        def rounds() -> None:
            into[rank].copy_(parts[rank])
            # In round r, to rank + r and from rank - r. All receivers say at the start that they are ready.
            sources = [(rank - r) % size for r in range(1, size)]
            arriving = {s: group.recv([into[s]], s, _TAG) for s in sources if into[s].numel() > 0}
            for source in sources:
                target = (2 * rank - source) % size
                if parts[target].numel() > 0:
                    group.send([parts[target]], target, _TAG).wait()
                # "Sent" means that the kernel has it. Waiting for what arrives keeps ranks in step.
                if source in arriving:
                    arriving[source].wait()

        self._sending = _Task(rounds)
        self._tasks.put(self._sending)
        return self._sending

    def _end_rounds(self) -> None:
        """After a failure: wakes the thread that sends, if it waits for a message that may never come.

        A thread that still waits when Python ends, and wakes then, would end the process by a signal. To wake it, this
        waits for a message until that times out: Gloo gives up all operations of a group in which one has taken too
        long.
        """
        if self._sending is None or self._sending.is_completed():
            return
        try:
            nobody = (self.rank + 1) % self.size
            never = self.group.recv([torch.empty(1, dtype=torch.uint8)], nobody, _TAG + 1)
            never.wait(datetime.timedelta(milliseconds=1))
        except (RuntimeError, ValueError):
            pass
        self._sending.ended(_PATIENCE)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Rank 0's tensor, everywhere. As bytes in main memory, since Gloo does not know all types and devices."""
        if self.size == 1 or tensor.numel() == 0:
            return
        copy = tensor.detach().cpu().contiguous().view(-1)
        data = copy.view(torch.uint8)
        failure = self._wait(lambda: self.group.broadcast(data, 0))
        if failure is not None:
            missing, more, seconds, cause = failure
            who = f"{named(missing)} of {self.size} missing{', perhaps others too' * more}" if missing else cause
            raise Error(f"broadcast: {who}; rank {self.rank} waited {seconds:.1f} s")
        if copy.data_ptr() != tensor.data_ptr():
            tensor.copy_(copy.view(tensor.shape))

    def _start(self, start: Callable[[], Any]) -> Tuple[Any, int]:
        self.busy()  # forgets what has ended
        work = start()
        self._under_way.append(work)
        self._operations += 1
        return work, self._operations

    def _wait(self, start: Callable[[], Any]) -> Failure:
        began = time.monotonic()
        try:
            work, number = self._start(start)
        except (RuntimeError, ValueError) as error:
            return self._failure(error, began)
        return self._end(work, number, began)

    def _end(self, work: Any, number: int, began: float) -> Failure:
        """Waits for the end of an operation."""
        over = threading.Event()
        watch: Optional[threading.Thread] = None
        try:
            while not (work.is_completed() or self.cancelled or self._others_failed):
                try:
                    work.wait(_LOOK_UP)
                except RuntimeError:
                    waited = time.monotonic() - began
                    if waited > self.timeout + 5:  # the group's own timeout comes first
                        raise
                    if watch is None and waited >= 0.1 * self._warn_after:
                        # A store whose keeper hangs may never answer: not on this thread.
                        watch = threading.Thread(target=self._watch, args=(number, began, over), daemon=True)
                        watch.start()
            if self.cancelled:
                raise RuntimeError("it was interrupted")
            if not work.is_completed():
                raise RuntimeError("another rank has given up")
            work.wait()  # says what went wrong, if anything did
            return None
        except (RuntimeError, ValueError) as error:
            return self._failure(error, began)
        finally:
            over.set()
            if watch is not None:
                watch.join(1.0)  # as in _end_rounds(): no thread should be in torch when Python ends

    def _watch(self, number: int, began: float, over: threading.Event) -> None:
        """In a long wait: says that this rank has come, looks whether another has given up, names who is late."""
        store = self._store
        warn_after = self._warn_after
        warned = False
        try:
            with self._telling:
                store.add(f"{self._place}in/{self.rank}", number - self._told)  # which makes it `number`
                self._told = number
            while not over.wait(min(1.0, 0.5 * warn_after)):
                if store.add(self._place + "failed", 0) > 0:
                    self._others_failed = True
                    return
                if not warned and time.monotonic() - began >= warn_after:
                    warned = True
                    self._warn(store, number, time.monotonic() - began)
        except RuntimeError:  # the store is gone, with the rank that kept it: the operation will fail, too
            pass

    def _warn(self, store: Any, number: int, waited: float) -> None:
        """Names the ranks that have not come, unless another rank does."""
        others = (rank for rank in range(self.size) if rank != self.rank)
        late = [rank for rank in others if store.add(f"{self._place}in/{rank}", 0) < number]
        if not late:
            return  # all have come: the link is slow
        self._warn_after *= 2  # on all ranks that wait: a rank that is late in every step is not worth a line each
        if store.add(f"{self._place}warned/{number}", 1) == 1:
            print(
                f"gravac: waiting for {named(late)} since {waited:.0f} s (step {self.step});"
                f" giving up after {self.timeout:.0f} s",
                file=sys.stderr,
                flush=True,
            )

    def _failure(self, error: BaseException, began: float) -> Failure:
        seconds = time.monotonic() - began
        missing, more = self._missing(seconds)
        self._end_rounds()
        return missing, more, seconds, str(error).split("\n", 1)[0]

    def _missing(self, waited: float) -> Tuple[List[int], bool]:
        """A roll call among the ranks that have noticed the failure. Returns those that do not answer.

        And whether there may be more of them: where the store is out of reach, only its keeper is known to be missing.

        Ranks that wait notice soon: their connections break, or they read in the store that another rank has
        failed. A rank that still computes may take longer, at most as long as its own timeout; it is waited
        for, but not for half an hour, since one rank will never answer.
        """
        if self.cancelled:
            return [], False
        answered: Set[int] = set()
        patience = min(max(0.0, self.timeout - waited), _PATIENCE) + _PATIENCE

        def ask() -> None:
            store = self._store
            key = self._place + "alive/"
            try:
                store.add(self._place + "failed", 1)
                store.add(key + str(self.rank), 1)
                end = time.monotonic() + patience
                while time.monotonic() < end and len(answered) < self.size:
                    for rank in range(self.size):
                        if rank not in answered and store.add(key + str(rank), 0) > 0:
                            answered.add(rank)
                    time.sleep(0.02)
            except RuntimeError:  # the store is gone, with the rank that kept it
                if self._keeper not in answered:  # if it has answered, it left after its own roll call
                    answered.clear()

        thread = threading.Thread(target=ask, daemon=True)  # a store whose keeper hangs may never answer
        thread.start()
        thread.join(patience + 1)
        if not answered:
            return ([self._keeper], self.size > 2) if self._keeper not in (None, self.rank) else ([], False)
        return [rank for rank in range(self.size) if rank not in answered and rank != self.rank], False
