"""When something is wrong: an exception that names who and what, and a line for those who wait."""

import datetime
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import weakref

import pytest
import torch
import torch.distributed as dist
from ranks import LIMIT, Fed, ddp, end, errors, gradients_of, result, run, run_each, start

import gravac
from gravac import _peers

fork = multiprocessing.get_context("fork")


def made(kind, **options):
    """A model, and what exchanges its gradients."""
    model = Fed()
    if kind == "aggregator":
        return model, gravac.Aggregator(model, **options)
    wrapped = ddp(model)
    state = gravac.GravacState(**options)
    wrapped.register_comm_hook(state, gravac.gravac_hook)
    return wrapped, state


def one_step(model, state, gradients):
    model(gradients).backward()
    if isinstance(state, gravac.Aggregator):
        state.aggregate()


# Trains by plain dense steps, whose means are handed out before ranks agree on the step. In the last one that goes
# wrong: rank 1 leaves before, or, in a job of one rank, the agreement itself fails.
LAST_STEP = """
import atexit, datetime, os, sys, threading
import torch, torch.distributed as dist
import gravac
from ranks import Fed, ddp, gradients_of

how, rank, size, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size,
                        timeout=datetime.timedelta(seconds=60))
dist.barrier()
model = ddp(Fed())
state = gravac.GravacState(policy="dense", timeout=1)
model.register_comm_hook(state, gravac.gravac_hook)

means_are_out = threading.Event()

class Failing:
    def __init__(self, engine):
        self.engine = engine

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def finish(self, samples):
        if size > 1 and rank == 1:
            os._exit(7)
        means_are_out.wait()
        if size == 1:
            raise gravac.Error("ranks do not agree")
        return self.engine.finish(samples)

def train():
    for step in range(4):
        if step == 3:
            state.report()  # waits until the step before has ended, on a thread of its own
            state._engine = Failing(state._engine)
        model(gradients_of(rank, step)).backward()
    means_are_out.set()

atexit.register(print, "exit handlers run", flush=True)
if how == "with":
    with state:
        train()
else:
    train()
if how == "close":
    try:
        state.close()
    except gravac.Error as error:
        print("close() raises:", error)
elif how == "drop":
    del model, state
    import gc; gc.collect()
    print("goes on")
elif how == "own code":
    sys.exit(5)
"""


@pytest.mark.parametrize(
    "how, size, code, said",
    [
        ("with", 1, 1, "Error: ranks do not agree"),
        ("close", 1, 0, ""),
        ("drop", 1, 1, "gravac: rank 0: the last step failed: ranks do not agree"),
        ("end", 1, 1, "gravac: rank 0: the last step failed: ranks do not agree"),
        ("own code", 1, 5, "gravac: rank 0: the last step failed: ranks do not agree"),
        ("end", 2, 1, "gravac: rank 0: the last step failed: c10d: rank 1 of 2 does not answer"),
    ],
)
def test_a_last_step_that_fails_is_not_silent(tmp_path, how, size, code, said):
    (tmp_path / "train.py").write_text(LAST_STEP)
    here = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "PYTHONPATH": f"{here}:{os.environ.get('PYTHONPATH', '')}"}
    started = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "train.py"), how, str(rank), str(size), str(tmp_path / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        for rank in range(size)
    ]
    out, error = started[0].communicate(timeout=LIMIT)
    assert (started[0].returncode, said in error) == (code, True), error
    assert "exit handlers run" in out
    assert error.count("the last step failed") == (how in ("drop", "end", "own code"))
    if how == "close":
        assert "close() raises: ranks do not agree" in out
    for other in started[1:]:
        other.communicate(timeout=LIMIT)
        assert other.returncode == 7


def go_on(rank, kind, timeout, under_way, survivors):
    """Steps for ever. Says when a few are done.

    When a rank is missing, nobody leaves before all others have found out: a rank that leaves closes its
    connections, from which its neighbours would learn that something is wrong.
    """
    _peers._WARN_AFTER = 0.5
    # Every step has an all-gather and an all-to-all.
    model, state = made(kind, timeout=timeout, policy="static", factor=10, exchange="reduce-scatter")
    step = 0
    while True:
        try:
            one_step(model, state, gradients_of(rank, step % 5))
        except RuntimeError as error:
            if "does not answer" in str(error):
                survivors.wait(0.5 * LIMIT)
            raise
        step += 1
        if step == 5 and rank == 1:
            under_way.set()


def under_way(size, kind, timeout, store="file"):
    """Processes that have taken a few steps, and a barrier, to be held as long as they live.

    The shared memory of a barrier that nobody here holds is given to the next one.
    """
    began, survivors = fork.Event(), fork.Barrier(size - 1)
    started = start(size, go_on, kind, timeout, began, survivors, store=store)
    assert began.wait(LIMIT)
    return started, survivors


def test_a_lost_rank_is_named():
    # Over TCP, where rank 0 keeps the store that the others would ask. A killed rank is found out long before
    # the timeout: by its neighbours in the ring, whose connections break, and by others (rank 3 of 4), who
    # read in the store that these have failed. A stopped rank is found out by the timeout only.
    cases = [
        (4, "hook", signal.SIGKILL, 1, 10 * LIMIT),
        (3, "aggregator", signal.SIGKILL, 0, 10 * LIMIT),
        (3, "hook", signal.SIGSTOP, 0, 20),
        (3, "aggregator", signal.SIGSTOP, 1, 20),
    ]
    jobs = []
    try:
        for size, kind, how, victim, timeout in cases:
            started, survivors = under_way(size, kind, timeout, store="tcp")
            jobs.append((started, victim, survivors))
            os.kill(started[victim][0].pid, how)
        for started, victim, _ in jobs:
            results = [result(one) for rank, one in enumerate(started) if rank != victim]
            for well, message in results:
                assert not well
                assert f"rank {victim} of {len(started)} does not answer" in message, results
                assert "step" in message
    finally:
        for started, _, _ in jobs:
            end(started)


class Lines:
    """Stands for stderr: keeps what is written, and sets an event when it is about step 3."""

    def __init__(self, written):
        self.text, self.written = "", written

    def write(self, text):
        self.text += text
        if "(step 3)" in text:
            self.written.set()

    def flush(self):
        pass


def late(rank, warned):
    """Rank 1 takes its fourth step only after the others have been warned that it is late."""
    _peers._WARN_AFTER = LIMIT if rank == 1 else 2.0  # rank 1 may have to wait for the others afterwards
    sys.stderr = Lines(warned)
    model, state = made("hook", policy="static", factor=10)
    assert state._peers.timeout == LIMIT, "as the process group has it"
    for step in range(6):
        if step == 3 and rank == 1:
            assert warned.wait(LIMIT)
        one_step(model, state, gradients_of(rank, step))
    return sys.stderr.text, state.report()["step"]


def test_a_late_rank_is_named_once_and_waited_for():
    results = run(3, late, fork.Event())
    assert [step for _, step in results] == [5, 5, 5]
    (line,) = [line for text, _ in results for line in text.splitlines() if "(step 3)" in line]
    assert line.startswith("gravac: waiting for rank 1 since") and line.endswith(f"giving up after {LIMIT:.0f} s")


def agreeing_breaks(rank, then):
    """All means have arrived in dense step 3, and then the ranks cannot agree."""
    model, state = made("hook", policy="dense")
    for step in range(4):
        if step == 3:
            state.report()  # waits until the step before has ended
            state._peers.all_gather = lambda mine, everything: ([1 - rank], False, 0.5, "the line was cut")
        one_step(model, state, gradients_of(rank, step))
    if then == "report":
        state.report()
    one_step(model, state, gradients_of(rank, step))


@pytest.mark.parametrize("then", ["report", "backward"])
def test_what_goes_wrong_after_a_dense_step_comes_out_of_what_follows(then):
    for rank, message in enumerate(errors(2, agreeing_breaks, then)):
        assert f"rank {1 - rank} of 2 does not answer" in message, message
        assert "step 3" in message, message


def hang(rank, kind, waiting):
    """Rank 2 stops between two steps, as one does that waits for its data; rank 0 says when it waits for it."""
    _peers._WARN_AFTER = 0.5
    model, state = made(kind, timeout=10 * LIMIT, policy="static", factor=10)
    watch = state._peers._watch
    for step in range(6):
        if step == 5:
            if rank == 2:
                os.kill(os.getpid(), signal.SIGSTOP)
            state._peers._watch = lambda *arguments: (rank == 0 and waiting.set(), watch(*arguments))
        one_step(model, state, gradients_of(rank, step))


@pytest.mark.parametrize("kind", ["hook", "aggregator"])
def test_ctrl_c_works_while_a_peer_hangs(kind):
    waiting = fork.Event()
    started = start(3, hang, kind, waiting)
    try:
        assert waiting.wait(LIMIT)
        os.kill(started[0][0].pid, signal.SIGINT)
        well, message = result(started[0])
        assert not well and "KeyboardInterrupt" in message, message
    finally:
        end(started)


FAILS_IN_ALL_TO_ALL = """
import os, signal, sys, threading
import torch.distributed as dist
from gravac import _peers

store, rank, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=3)
peers = _peers.Peers(None, 1000.0)
lengths = [100_000] * 3
data, room = memoryview(bytearray(300_000)), memoryview(bytearray(300_000))
assert peers.all_to_all(room, data, lengths, lengths) is None
if rank == 1:
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
if how == "cancelled":
    threading.Timer(1.0, peers.cancel).start()
missing, more, seconds, cause = peers.all_to_all(room, data, lengths, lengths)
print(missing, cause, flush=True)
sys.exit(5)
"""


@pytest.mark.parametrize("how", ["killed", "cancelled"])
def test_a_process_ends_in_its_own_way_after_a_failed_all_to_all(how, tmp_path):
    # Neither does the thread that sends hold up the end of Python, nor does it end the process by a signal. Gloo's
    # timeout is far away.
    arguments = [sys.executable, "-c", FAILS_IN_ALL_TO_ALL, f"file://{tmp_path}/store"]
    ranks = [subprocess.Popen([*arguments, str(r), how], stdout=subprocess.PIPE, text=True) for r in range(3)]
    try:
        for rank in (0, 2):
            text, _ = ranks[rank].communicate(timeout=LIMIT)
            assert text.startswith("[1] " if how == "killed" else "[] it was interrupted"), text
            assert ranks[rank].returncode == 5
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


LENGTHS = {  # of the part that rank a sends to rank b
    "some empty": lambda a, b, last: 0 if (a + b) % 2 else 70_000,
    "one byte": lambda a, b, last: 1,
    "long": lambda a, b, last: 3_000_000,
    "different": lambda a, b, last: 1000 * a + b,
    "to one rank": lambda a, b, last: 500_000 * (b == last),
    "to nobody else": lambda a, b, last: 10 * (a == b),
}


def deliver(rank, size, length):
    def part(a, b):
        return bytes([7 * a + 31 * b]) * length(a, b, size - 1)

    sent = [part(rank, other) for other in range(size)]
    expected = [part(other, rank) for other in range(size)]
    room, source = bytearray(sum(map(len, expected))), bytearray(b"".join(sent))
    peers = _peers.Peers(None, None)
    failure = peers.all_to_all(memoryview(room), memoryview(source), [*map(len, expected)], [*map(len, sent)])
    assert failure is None, failure
    assert bytes(room) == b"".join(expected)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_all_to_all_delivers_parts_of_all_lengths(size):
    run_each(size, deliver, {name: (size, length) for name, length in LENGTHS.items()})


@pytest.mark.parametrize("busy", [False, True])
def test_memory_that_torch_may_still_write_to_is_kept(busy):
    aggregator = gravac.Aggregator(Fed())
    memory = weakref.ref(aggregator._run)
    aggregator._peers.busy = lambda: busy  # as after Ctrl-C
    del aggregator
    gc.collect()
    assert (memory() is not None) == busy


def differ(rank, kind):
    model, state = made(kind, policy="static", factor=10 + rank)
    one_step(model, state, gradients_of(rank, 0))


@pytest.mark.parametrize("kind", ["hook", "aggregator"])
def test_ranks_with_other_options_refuse_each_other(kind):
    for message in errors(2, differ, kind):
        assert "factor" in message and "10" in message and "11" in message, message


def check_differently(rank, kind):
    model, state = made(kind, policy="static", factor=10, check_every=2 * rank)
    for step in range(5):
        one_step(model, state, gradients_of(rank, step))


@pytest.mark.parametrize("kind", ["hook", "aggregator"])
def test_ranks_that_compare_parameters_at_other_steps_refuse_each_other(kind):
    for message in errors(2, check_differently, kind):
        assert "check_every is 0 on rank 0 and 2 on rank 1" in message, message


def sparse(rank):
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    aggregator = gravac.Aggregator(embedding)
    embedding(torch.tensor([1, 2])).sum().backward()
    aggregator.aggregate()


def test_the_aggregator_refuses_sparse_gradients():
    for message in errors(2, sparse):
        assert "Aggregator: the gradient of 'weight' is sparse; make its layer with sparse=False, or" in message


def sharded(rank):
    layer = torch.nn.Linear(8, 8)
    torch.distributed.fsdp.fully_shard(layer, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (2,)))
    gravac.Aggregator(layer)


@pytest.mark.skipif(torch.__version__ < "2.6", reason="no FSDP2")
def test_the_aggregator_refuses_dtensors():
    for message in errors(2, sharded):
        assert "Aggregator: the parameters are DTensors (FSDP2 or" in message and "use DistributedData" in message


def diverged(rank, kind, check_every):
    """The messages of a run in which rank 1 changes a parameter by itself; with the model known and not known."""
    found = []
    for known in (True, False):
        model = Fed()
        if kind == "aggregator":
            wrapped, given = model, model if known else list(model.parameters())
            state = gravac.Aggregator(given, policy="static", factor=10, check_every=check_every)
        else:
            wrapped, given = ddp(model), model if known else None
            state = gravac.GravacState(given, policy="static", factor=10, check_every=check_every)
            wrapped.register_comm_hook(state, gravac.gravac_hook)
        message = ""
        try:
            for step in range(5):
                if step == 3:
                    model.ps[5].data[0] = float("nan")  # on all ranks: equal bits are no difference
                    if rank == 1:
                        model.ps[3].data[7, 7] += 1e-30
                one_step(wrapped, state, gradients_of(rank, step))
                assert check_every == 0 or step < 4, "the difference was not found"
        except RuntimeError as error:
            message = f"step {step}: {error}"
        found.append(message)
    return found


@pytest.mark.parametrize("kind", ["hook", "aggregator"])
def test_parameters_that_differ_are_an_error_on_all_ranks(kind):
    for with_model, without in run(3, diverged, kind, 2):
        expected = "parameters differ: rank 1 has another {} than rank 0 (compared every 2 steps"
        assert with_model.startswith("step 4: ") and expected.format("'ps.3'") in with_model
        # The hook finds the name in DDP; there is nobody to ask about parameters alone.
        name = "'ps.3'" if kind == "hook" else "parameter 3 of shape (25, 41)"
        assert expected.format(name) in without
    assert run(2, diverged, kind, 0) == [["", ""], ["", ""]]


def groups(rank):
    """Ranks 0 and 1 have a group of their own, which claims to be NCCL's."""
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=77))
    if rank == 2:
        return None
    dist.get_backend = lambda *_: "nccl"
    model, state = made("aggregator", process_group=group, policy="dense")
    assert (state._peers.timeout, state._peers.size) == (77, 2)
    assert made("aggregator", process_group=group, timeout=66)[1]._peers.timeout == 66
    one_step(model, state, gradients_of(rank, 0))
    return state.report()["step"]


def test_any_group_gets_a_gloo_twin():
    assert run(3, groups) == [0, 0, None]
