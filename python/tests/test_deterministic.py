"""deterministic=True: equal seeds end with equal bits, however busy the machine is."""

import threading

import pytest
import torch
from ranks import ddp, flat, run

import gravac

STEPS = 40
CASES = {
    "progress": dict(start_steps=5, link="100mbit,1ms"),
    "progress, no link": dict(start_steps=5),
    "gravac": dict(policy="gravac", window=5, factor_max=200, start_steps=4, epsilon=0.3),
    "static": dict(policy="static", factor=20),
}


def train(rank, cases, busy):
    """Weights after training with each of the options, and the factors of the steps, while other threads compute."""
    over = threading.Event()

    def keep_busy():
        while not over.is_set():
            sum(range(10000))

    threads = [threading.Thread(target=keep_busy) for _ in range(busy * (1 + rank))]
    for thread in threads:
        thread.start()
    found = {}
    for name, options in cases.items():
        torch.manual_seed(0)
        layers = [torch.nn.Linear(40, 200), torch.nn.ReLU(), torch.nn.Linear(200, 40)]
        model = ddp(torch.nn.Sequential(*layers))
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        state = gravac.GravacState(optimizer=optimizer, deterministic=True, **options)
        model.register_comm_hook(state, gravac.gravac_hook)
        torch.manual_seed(rank)
        orders = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(8, 40)).pow(2).mean().backward()
            optimizer.step()
            orders.append((state.report()["exchange"], state.report()["factor"]))
        found[name] = flat(model.parameters()), orders
        state.close()
    over.set()
    for thread in threads:
        thread.join()
    return found


def test_two_runs_end_with_equal_bits():
    quiet, loud = run(2, train, CASES, 0), run(2, train, CASES, 1)
    for name in CASES:
        for rank in range(2):
            assert quiet[rank][name][1] == loud[rank][name][1], name
            assert torch.equal(quiet[rank][name][0], loud[rank][name][0]), name
            assert torch.equal(quiet[rank][name][0], quiet[0][name][0]), name
    assert len(set(quiet[0]["progress"][1])) > 1  # there was something to choose


def test_a_link_is_refused_where_times_are_measured():
    with pytest.raises(gravac.Error, match="link is for deterministic runs"):
        gravac.GravacState(link="1gbit,50us")
