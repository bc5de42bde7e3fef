"""What a state owns: given back by close(), when it is dropped and at exit; and in a forked child never touched."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import LIMIT, Fed, ddp, end, gradients_of, result, run, run_each, start

import gravac
from gravac import _peers, _session

KINDS = ["hook", "aggregator"]
OPTIONS = dict(policy="static", factor=10)
fork = multiprocessing.get_context("fork")


def made(kind, **options):
    """A model that is ready for gradients, and what exchanges them."""
    model = Fed()
    if kind == "aggregator":
        return model, gravac.Aggregator(model, **OPTIONS, **options)
    wrapped, state = ddp(model), gravac.GravacState(**OPTIONS, **options)
    wrapped.register_comm_hook(state, gravac.gravac_hook)
    return wrapped, state


def trained(kind, rank, steps=3, **options):
    model, state = made(kind, **options)
    for step in range(steps):
        model(gradients_of(rank, step)).backward()
        if kind == "aggregator":
            state.aggregate()
    return model, state


def owned():
    """Descriptors, threads and MB of this process."""
    with open("/proc/self/statm") as file:
        megabytes = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), megabytes


def soak(rank, kind, how, folder):
    """Ranks drop their states at different times: rank 1 keeps each until it has the next."""
    gc.freeze()  # makes gc.collect() quick
    kept, counts = None, []
    for turn in range(12):
        _, state = trained(kind, rank, log=folder / f"{turn}")
        if how == "closed":
            state.close()
        kept = state if rank == 1 else None
        del _, state
        gc.collect()
        counts.append(owned())
    del kept
    gc.collect()
    early = [max(one) for one in zip(*counts[:4])]
    early[2] += 20  # MB: of a state more or less

    def left():
        return [now for now, then in zip(owned(), early) if now > then]

    deadline = time.monotonic() + LIMIT / 2
    while left() and time.monotonic() < deadline:  # threads of the last ones may be on their way out
        threading.Event().wait(0.05)
    assert not left(), (counts, owned())


def test_states_made_and_dropped_leave_nothing_behind(tmp_path):
    cases = {f"{kind} {how}": (kind, how, tmp_path / kind / how) for kind in KINDS for how in ("dropped", "closed")}
    run_each(2, soak, cases)


def closed_at_once(rank):
    for _ in range(50):
        _peers.Peers(None, None).close()


def test_a_group_closed_at_once_does_not_hinder_ranks_that_still_connect():
    run(2, closed_at_once)


def closed(rank, kind):
    model, state = trained(kind, rank)
    with state:
        report = state.report()
    state.close()  # once more does nothing
    assert state.report() == report
    message = "(GravacState|Aggregator): it was closed; make a new one"
    uses = [state.state_dict, state.pause, state.learning_rate_dropped]
    uses += [lambda: state.log_loss(1.0), lambda: state.load_state_dict({})]
    for use in uses:
        with pytest.raises(gravac.Error, match=message):
            use()
    with pytest.raises(RuntimeError, match=message):
        model(gradients_of(rank, 0)).backward()
        state.aggregate()  # under DDP the line above has failed


def test_a_state_that_was_closed_refuses_every_use():
    run_each(2, closed, {kind: [kind] for kind in KINDS})


def forked(rank):
    """A child drops one state and ends with two more, as a script ends; the parent goes on. Returns how it ended."""
    trainers = [trained(kind, rank) for kind in (*KINDS, "aggregator")]
    child = os.fork()
    if child == 0:
        signal.alarm(int(LIMIT / 4))  # ends the child if it hangs
        try:
            with pytest.raises(gravac.Error, match=f"belongs to process {os.getppid()}; a forked process has"):
                trainers[1][1].aggregate()
            trainers.pop()
            gc.collect()
            threading._shutdown()  # what Python does when it ends, but only our exit handler
            _session._release_all()
            os._exit(5)
        finally:
            os._exit(6)
    _, status = os.waitpid(child, 0)
    for model, state in trainers:
        model(gradients_of(rank, 0)).backward()
        if isinstance(state, gravac.Aggregator):
            state.aggregate()
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_ends_and_the_parent_goes_on():
    assert run(2, forked) == [5, 5]


def restarted(rank, path, attempt, warned):
    """One attempt of a job under a store that outlives it: rank 1 is late first, and then gone."""
    store = dist.FileStore(path, 2)
    dist.init_process_group("gloo", store=dist.PrefixStore(f"{attempt}", store), rank=rank, world_size=2)
    dist.distributed_c10d._get_default_store = lambda: store  # the same names in all attempts, as under torchrun
    _peers._WARN_AFTER, _peers._PATIENCE = 0.1, 0.1
    model, state = made("aggregator")
    if rank == 0:
        state._peers._warn = lambda *_: warned.set()
    for step in range(3):
        if rank == 1 and step == 1:
            assert warned.wait(LIMIT), "rank 0 has given up"
        if rank == 1 and step == 2:
            os._exit(0)
        model(gradients_of(rank, step)).backward()
        state.aggregate()


def test_a_restarted_job_knows_nothing_of_earlier_attempts(tmp_path):
    for attempt in range(5):
        started = start(2, restarted, str(tmp_path / "store"), attempt, fork.Event(), store=None)
        try:
            well, message = result(started[0])
            assert not well and "rank 1 of 2 does not answer" in message and "(step 2" in message, (attempt, message)
        finally:
            end(started)


TORCHRUN = """
import os, sys, threading
import torch, torch.distributed as dist, gravac
from gravac import _peers, _session

torch.set_num_threads(1)
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
store = dist.TCPStore(*address, is_master=False)
if rank == 0:  # torch 2.13 itself does not start again if it finds its old addresses
    for key in store.list_keys():
        if key.startswith("default_pg/0//cpu//"):
            store.delete_key(key)
    store.set(f"cleared {attempt}", "")
store.wait([f"cleared {attempt}"])
dist.init_process_group("gloo")
_peers._WARN_AFTER = _peers._PATIENCE = 0.2
aggregator = gravac.Aggregator(torch.nn.Linear(50, 50))
if rank == 0:
    aggregator._peers._warn = lambda *_: store.set(f"waits {attempt}", "")
for step in range(4):
    if rank == 1 and step == 1 and attempt > 0:
        store.wait([f"waits {attempt}"])  # late, but alive
    if rank == 1 and step == 2 and attempt < 2:
        os._exit(3)
    aggregator.aggregate()
print(f"rank {rank} ends attempt {attempt}", flush=True)
"""


@pytest.mark.skipif(torch.__version__ < "2.13", reason="Debian's torchrun 1.13 fails under Python 3.11")
def test_a_job_restarted_by_torchrun_waits_for_late_ranks(tmp_path):
    (tmp_path / "job.py").write_text(TORCHRUN)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*torchrun, "--max_restarts", "2", "--monitor_interval", "0.1", str(tmp_path / "job.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT)
    for rank in range(2):
        assert f"rank {rank} ends attempt 2" in done.stdout, done.stderr
