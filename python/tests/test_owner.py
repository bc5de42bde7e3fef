"""What a state owns: given back by close(), when it is dropped and at exit; and in a forked child never touched."""

import atexit
import gc
import os
import signal
import threading

import pytest
from ranks import LIMIT, Fed, ddp, gradients_of, run, run_each

import gravac

KINDS = ["hook", "aggregator"]
OPTIONS = dict(policy="static", factor=10)


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
    for turn in range(15):
        _, state = trained(kind, rank, log=folder / f"{turn}")
        if how == "closed":
            state.close()
        kept = state if rank == 1 else None
        del _, state
        gc.collect()
        counts.append(owned())
    del kept
    early, late = ([max(one) for one in zip(*part)] for part in (counts[:5], counts[10:]))
    one_state = (6, 6, 20)  # may be on its way out, or not yet
    assert all(now <= then + one for now, then, one in zip(late, early, one_state)), counts


def test_states_made_and_dropped_leave_nothing_behind(tmp_path):
    cases = {f"{kind} {how}": (kind, how, tmp_path / kind / how) for kind in KINDS for how in ("dropped", "closed")}
    run_each(2, soak, cases)


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
            with pytest.raises(gravac.Error, match=f"belongs to process {os.getppid()}; a forked process has to make"):
                trainers[1][1].aggregate()
            trainers.pop()
            gc.collect()
            threading._shutdown()
            atexit._run_exitfuncs()
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
