"""What goes wrong in ordinary training: overflows, unused parameters, gradients in two bytes."""

import types

import pytest
import torch
import torch.distributed as dist
from ranks import SHAPES, Fed, ddp, flat, gradients_of, run, run_each

import gravac

STATIC = dict(policy="static", factor=10, exchange="all-gather")
ENTRIES = sum(torch.Size(shape).numel() for shape in SHAPES)


def hooked(dtypes=(torch.float32,), find_unused=False, **options):
    model = Fed(dtypes)
    wrapped = ddp(model, find_unused_parameters=find_unused)
    state = gravac.GravacState(model, **options)
    wrapped.register_comm_hook(state, gravac.gravac_hook)
    return model, wrapped, state


def overflow(rank, bad, bad_step, options):
    model, wrapped, state = hooked(**options)
    sent = []
    for step in range(12):
        model.zero_grad(set_to_none=True)
        gradients = gradients_of(rank, step)
        if step == bad_step:
            gradients = [torch.full(shape, bad) for shape in SHAPES]
        wrapped(gradients).backward()
        mean = flat(p.grad for p in model.parameters())
        assert state.report()["finite"] == (step != bad_step)
        assert torch.isfinite(mean).all() == (step != bad_step)
        sent.append(state.report()["entries_sent"])
    return sent


def test_after_an_overflow_training_goes_on():
    cases = {
        f"{bad} in step {bad_step}, {granularity}": [bad, bad_step, dict(STATIC, granularity=granularity)]
        for bad in (float("inf"), float("nan"))
        for bad_step in (0, 4)
        for granularity in ("global", "layer")
    }
    for name, results in run_each(2, overflow, cases).items():
        bad_step = cases[name][1]
        for sent in results:
            for step in range(12):
                if step != bad_step:
                    assert 0.03 * ENTRIES < sent[step] < 0.3 * ENTRIES, (name, step)


def unused_on_one(rank, options):
    model, wrapped, state = hooked(find_unused=True, **options)
    total, sent = torch.zeros(ENTRIES), []
    for step in range(14):
        model.zero_grad(set_to_none=True)
        gradients = gradients_of(rank, step)
        if rank == 0 and step % 2 == 1:
            gradients[3] = None  # an expert that this rank does not route to
        if step % 5 == 4:
            gradients[0] = None  # one that nobody does
        wrapped(gradients).backward()
        given = [torch.zeros(shape) if g is None else g for g, shape in zip(gradients, SHAPES)]
        means = [torch.zeros(shape) if p.grad is None else p.grad for p, shape in zip(model.parameters(), SHAPES)]
        total += flat(given) - flat(means)
        sent.append(state.report()["sent"])
    return total - state.state_dict()["residual"], sent


def test_parameters_unused_on_some_ranks_lose_nothing_and_hang_nobody():
    gravac_policy = dict(policy="gravac", epsilon=0.95, gain="error-fed", window=3)
    cases = {"gravac": [gravac_policy], "static": [STATIC], "dense": [dict(policy="dense")]}
    for name, results in run_each(2, unused_on_one, cases).items():
        assert results[0][1] == results[1][1], name
        lost = sum(difference for difference, _ in results)
        assert lost.abs().max() < 0.1, name


def poisoned(rank):
    model, wrapped, state = hooked(**STATIC)
    wrapped(gradients_of(rank, 0)).backward()
    wrong = dict(state.state_dict(), **{"fact/compressor": "dgc"})
    with pytest.raises(gravac.Error, match="compressor is dgc there"):
        state.load_state_dict(wrong)
    wrapped(gradients_of(rank, 1)).backward()
    # The same before the first step, when there is no engine yet to refuse it: once, and never again.
    model, wrapped, state = hooked(**STATIC)
    state.load_state_dict(wrong)
    with pytest.raises(Exception, match="compressor is dgc there"):
        wrapped(gradients_of(rank, 0)).backward()


def test_a_refused_state_is_forgotten():
    run(2, poisoned)


def scaled_resume(rank):
    scaler = types.SimpleNamespace(scale=8.0)
    scaler.get_scale = lambda: scaler.scale

    def step(wrapped, model, number):
        model.zero_grad(set_to_none=True)
        wrapped([scaler.scale * g for g in gradients_of(rank, number)]).backward()
        return flat(p.grad for p in model.parameters()) / scaler.scale

    options = dict(STATIC, granularity="layer", scaler=scaler)
    model, wrapped, state = hooked(**options)
    for number in range(6):
        step(wrapped, model, number)
    saved = state.state_dict()
    scaler.scale = 4.0  # GradScaler.update() comes after the step
    whole = [step(wrapped, model, number) for number in (6, 7, 8)]
    model, wrapped, state = hooked(**options)
    state.load_state_dict(saved)
    again = [step(wrapped, model, number) for number in (6, 7, 8)]
    for one, other in zip(whole, again):
        assert torch.equal(one, other)


def test_a_state_saved_at_another_loss_scale_goes_on_to_the_bit():
    run(2, scaled_resume)


HALVES = [torch.float16, torch.bfloat16]


def halves(rank, kind, dtype):
    options = dict(policy="static", factor=20, granularity="layer")
    if kind == "hook":
        model, wrapped, state = hooked((dtype,), **options)
    else:
        model = wrapped = Fed((dtype,))
        state = gravac.Aggregator(model, **options)
    lost = torch.zeros(ENTRIES, dtype=torch.float64)
    for step in range(30):
        model.zero_grad(set_to_none=True)
        gradients = [torch.full(shape, 8000.0) for shape in SHAPES]
        wrapped(gradients).backward()
        if kind == "aggregator":
            state.aggregate()
        mean = flat(p.grad for p in model.parameters())
        assert torch.isfinite(mean).all(), f"step {step}"
        lost += flat(g.to(dtype) for g in gradients).double() - mean.double()
    return lost - state.state_dict()["residual"].double()


def test_means_of_gradients_in_two_bytes_stay_finite_and_rounding_is_kept():
    cases = {f"{kind}, {dtype}": [kind, dtype] for kind in ("hook", "aggregator") for dtype in HALVES}
    if torch.__version__ < "2":
        del cases["hook, torch.bfloat16"]  # which DDP over Gloo does not carry in torch 1.13
    for name, lost in run_each(2, halves, cases).items():
        assert sum(lost).abs().max() < 1, f"{name}: what rounding took was not kept"


def shared_group(rank):
    group = dist.new_group([0, 1])
    model, wrapped, state = hooked(process_group=group, **STATIC)
    for step in range(4):
        model.zero_grad(set_to_none=True)
        loss = wrapped(gradients_of(rank, step))
        loss.register_hook(lambda g: (dist.all_reduce(torch.ones(3), group=group), g)[1])  # as SyncBatchNorm does
        loss.backward()
    return state.report()["step"]


def test_collectives_of_backward_do_not_mix_with_ours():
    assert run(2, shared_group) == [3, 3]
