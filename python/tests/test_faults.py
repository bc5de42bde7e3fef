"""When something is wrong: an exception in time that names who and what."""

import os
import signal
import socket
import time

import pytest
import torch
from ranks import Fed, ddp, gradients_of, result, start

import gravac

TIMEOUT = 3.0


def go_on(rank, kind, ready):
    """Steps for ever; rank 1 says where it is, so that it can be killed."""
    model = Fed()
    if kind == "hook":
        model = ddp(model)
        state = gravac.GravacState(timeout=TIMEOUT, policy="static", factor=10)
        model.register_comm_hook(state, gravac.gravac_hook)
    else:
        state = gravac.Aggregator(model, timeout=TIMEOUT, policy="static", factor=10)
    for step in range(100_000):
        model(gradients_of(rank, step % 5)).backward()
        if kind == "aggregator":
            state.aggregate()
        if step == 5:
            ready.send(os.getpid()) if rank == 1 else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def processes(kind, size=3, store=""):
    import multiprocessing

    receiver, sender = multiprocessing.Pipe(duplex=False)
    started = start(size, go_on, kind, sender, store=store)
    assert receiver.poll(60)
    return started


def end(started):
    for process, _ in started:
        process.kill()
        process.join()


@pytest.mark.parametrize("kind", ["hook", "aggregator"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("victim", [1, 0])
def test_a_lost_rank_is_named_in_time(kind, how, victim):
    # Over TCP, where rank 0 keeps the store that the others would ask.
    started = processes(kind, store=f"tcp://127.0.0.1:{free_port()}")
    os.kill(started[victim][0].pid, how)
    began = time.monotonic()
    try:
        for rank, one in enumerate(started):
            if rank == victim:
                continue
            well, message = result(one, 30)
            assert not well
            assert f"rank {victim} of 3 does not answer" in message, message
            assert "step" in message
        assert time.monotonic() - began < 2 * TIMEOUT + 4
    finally:
        end(started)


def agreeing_breaks(rank):
    """All gradients have arrived in step 3, and then the ranks cannot agree."""
    model = ddp(Fed())
    state = gravac.GravacState(policy="dense")
    model.register_comm_hook(state, gravac.gravac_hook)
    for step in range(4):
        if step == 3:
            state._peers.all_gather = lambda mine, everything: ([1 - rank], 0.5, "the line was cut")
        model(gradients_of(rank, step)).backward()


def test_what_goes_wrong_at_the_very_end_comes_out_of_backward():
    started = start(2, agreeing_breaks)
    for rank, one in enumerate(started):
        well, message = result(one)
        assert not well
        assert f"rank {1 - rank} of 2 does not answer" in message, message


@pytest.mark.parametrize("kind", ["hook", "aggregator"])
def test_ctrl_c_works_while_a_peer_hangs(kind):
    started = processes(kind)
    try:
        os.kill(started[2][0].pid, signal.SIGSTOP)
        time.sleep(0.5)  # until rank 0 waits for it; nothing tells from outside
        os.kill(started[0][0].pid, signal.SIGINT)
        began = time.monotonic()
        well, message = result(started[0], 10)
        assert not well and "KeyboardInterrupt" in message, message
        assert time.monotonic() - began < 2
    finally:
        end(started)


def differ(rank, kind):
    options = dict(policy="static", factor=10 + rank, timeout=TIMEOUT)
    if kind == "aggregator":
        gravac.Aggregator(Fed(), **options)
        return
    model = ddp(Fed())
    model.register_comm_hook(gravac.GravacState(**options), gravac.gravac_hook)
    model(gradients_of(rank, 0)).backward()


@pytest.mark.parametrize("kind", ["hook", "aggregator"])
def test_ranks_with_other_options_refuse_each_other(kind):
    for one in start(2, differ, kind):
        well, message = result(one)
        assert not well
        assert "factor" in message and "10" in message and "11" in message, message


def sparse(rank):
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    aggregator = gravac.Aggregator(embedding)
    embedding(torch.tensor([1, 2])).sum().backward()
    aggregator.aggregate()


def test_sparse_gradients_are_refused_by_name():
    for one in start(2, sparse):
        well, message = result(one)
        assert not well and "sparse" in message and "dense tensor expected" in message, message
