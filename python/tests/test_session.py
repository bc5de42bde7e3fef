"""What is kept and told: state, momentum, the loss scale, options, reports."""

import copy
import datetime
import io
import json
import time
import types

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Fed, ddp, flat, gradients_of, run, run_each

import gravac
from gravac import _engine

KINDS = ["hook", "aggregator"]
STATIC = dict(policy="static", factor=10, exchange="all-gather")


class Fixture:
    """A fed model under the hook or an aggregator, with an optimizer."""

    def __init__(self, kind, optimizer_momentum=0.0, **options):
        torch.manual_seed(0)
        self.kind = kind
        model = Fed()
        self.optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=optimizer_momentum)
        if options.get("memory") == "momentum":
            options["optimizer"] = self.optimizer
        if kind == "hook":
            self.model = ddp(model)
            self.state = gravac.GravacState(model, **options)
            self.model.register_comm_hook(self.state, gravac.gravac_hook)
        else:
            self.model = model
            self.state = gravac.Aggregator(model, **options)
        self.parameters = list(model.parameters())

    def backward(self, gradients):
        self.optimizer.zero_grad(set_to_none=True)
        self.model(gradients).backward()
        if self.kind == "aggregator":
            self.state.aggregate()
        return flat(p.grad for p in self.parameters)

    def step(self, gradients):
        mean = self.backward(gradients)
        self.optimizer.step()
        return mean


def through_file(state):
    """As a checkpoint does it: plain tensors, numbers and text only."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def resume(rank, kind, momentum, options):
    whole = Fixture(kind, momentum, **options)
    for step in range(9):
        whole.step(gradients_of(rank, step))
    first = Fixture(kind, momentum, **options)
    for step in range(4):
        first.step(gradients_of(rank, step))
    second = Fixture(kind, momentum, **options)
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    second.state.load_state_dict(through_file(first.state.state_dict()))
    for step in range(4, 9):
        second.step(gradients_of(rank, step))
    assert torch.equal(flat(second.parameters), flat(whole.parameters))
    ours, theirs = second.state.state_dict(), whole.state.state_dict()
    assert torch.equal(ours["residual"], theirs["residual"])


@pytest.mark.parametrize("kind", KINDS)
def test_goes_on_from_a_state_to_the_bit(kind):
    accordion = dict(policy="accordion", factor_min=4, factor_max=40, interval=3, exchange="all-gather")
    cases = {
        "residual": [kind, 0.9, STATIC],
        "momentum": [kind, 0.9, dict(STATIC, memory="momentum")],
        "randomk": [kind, 0.0, dict(policy="static", factor=10, compressor="randomk")],
        "accordion": [kind, 0.0, accordion],
    }
    run_each(2, resume, cases)


def save_one(rank, kind):
    fixture = Fixture(kind, **STATIC)
    for step in range(3):
        fixture.step(gradients_of(rank, step))
    return fixture.state.state_dict()


def load_all(rank, kind, states):
    """Goes on from the states of another number of ranks: what went in, came out as means, and waits then."""
    fixture = Fixture(kind, **STATIC)
    fixture.state.load_state_dict(states)
    went_in = sum(flat(gradients_of(rank, step)) for step in (3, 4))
    means = sum(fixture.step(gradients_of(rank, step)) for step in (3, 4))
    assert fixture.state.report()["step"] == 4
    return went_in, means, fixture.state.state_dict()["residual"]


def refuse_state(rank, kind, states):
    fixture = Fixture(kind, **STATIC)
    for wrong, expected in (
        (states[1 - rank], f"rank is {1 - rank} there and {rank} here"),
        (dict(states[rank], gravac=7), "expected version 2, got 7"),
        (dict(states[rank], **{"fact/layout": "1"}), "layout is 1 there"),
        (dict(states[rank], **{"fact/compressor": "dgc"}), "compressor is dgc there and topk here"),
        ({k: v for k, v in states[rank].items() if k != "residual"}, "has no 'residual'"),
    ):
        fixture.step(gradients_of(rank, 0))
        before = fixture.state.state_dict()
        with pytest.raises(gravac.Error, match=expected):
            fixture.state.load_state_dict(wrong)
        after = fixture.state.state_dict()
        assert before.keys() == after.keys()
        for name, value in before.items():
            assert torch.equal(value, after[name]) if torch.is_tensor(value) else value == after[name]


@pytest.mark.parametrize("kind", KINDS)
def test_another_number_of_ranks_preserves_what_waits(kind):
    states = run(4, save_one, kind)
    before = sum(state["residual"] for state in states)
    assert (before != 0).sum() > 100
    results = run(2, load_all, kind, states)
    went_in, waits = sum(given for given, _, _ in results), sum(residual for _, _, residual in results)
    assert torch.equal(results[0][1], results[1][1])
    came_out = 2 * results[0][1]  # the mean is over two ranks
    assert torch.allclose(came_out + waits, before + went_in, atol=1e-3, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_refuses_states_of_others(kind):
    run(2, refuse_state, kind, run(2, save_one, kind))


def with_momentum(rank, kind):
    """SGD's own momentum under the momentum memory, and a memory under SGD without: the same updates."""
    under = Fixture(kind, 0.9, memory="momentum", **STATIC)
    plain = Fixture(kind, 0.0, memory="momentum", momentum=0.9, **STATIC)
    for step in range(8):
        under.step(gradients_of(rank, step))
        update = plain.step(gradients_of(rank, step))
        buffers = flat(under.optimizer.state[p]["momentum_buffer"] for p in under.parameters)
        assert torch.allclose(buffers, update, atol=1e-2), step
    assert torch.allclose(flat(under.parameters), flat(plain.parameters), atol=1e-3)
    under.optimizer.param_groups[0]["momentum"] = 0
    with pytest.raises(RuntimeError, match="momentum has changed from 0.9 to 0.0; it may change, but not from 0"):
        under.step(gradients_of(rank, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_momentum_memory_works_under_an_unchanged_sgd(kind):
    run(2, with_momentum, kind)


class Cycled(Fixture):
    """Under OneCycleLR, which changes the momentum in every step."""

    def __init__(self, kind, plain=False, **options):
        super().__init__(kind, 0.9, **({} if plain else dict(memory="momentum")), **options)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.01, total_steps=20, pct_start=0.4)

    def step(self, gradients):
        mean = super().step(gradients)
        self.schedule.step()
        return mean


def under_one_cycle(rank, kind):
    """Dense steps are those of plain SGD; compressed ones go on to the bit from a state in the middle."""
    ours, plain = Cycled(kind, policy="dense"), Cycled(kind, plain=True, policy="dense")
    used = set()
    for step in range(12):
        for one in (ours, plain):
            one.step(gradients_of(rank, step))
        used.add(ours.optimizer.param_groups[0]["momentum"])
        for p, q in zip(ours.parameters, plain.parameters):
            if p.numel() > 7:  # a gradient of a few zeros is taken for that of an unused parameter
                assert torch.allclose(p, q, atol=1e-4), step
    assert len(used) > 8
    whole, first, second = (Cycled(kind, **STATIC) for _ in range(3))
    for step in range(14):
        whole.step(gradients_of(rank, step))
    for step in range(6):
        first.step(gradients_of(rank, step))
    # As a script resumes: everything is loaded, and the state is made with the momentum of now.
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    second.schedule.load_state_dict(first.schedule.state_dict())
    second.state.load_state_dict(through_file(first.state.state_dict()))
    for step in range(6, 14):
        second.step(gradients_of(rank, step))
    assert torch.equal(flat(second.parameters), flat(whole.parameters))


@pytest.mark.parametrize("kind", KINDS)
def test_momentum_memory_follows_a_schedule(kind):
    run(2, under_one_cycle, kind)


def test_a_state_may_be_loaded_where_the_momentum_is_another_now():
    state = Fixture("aggregator", 0.9, memory="momentum", **STATIC).state.state_dict()
    Fixture("aggregator", 0.95, memory="momentum", **STATIC).state.load_state_dict(state)
    with pytest.raises(gravac.Error, match="saved with momentum 0.9, and momentum is 0.5 here"):
        Fixture("aggregator", 0.95, memory="momentum", momentum=0.5, **STATIC).state.load_state_dict(state)


def refusal(options):
    with pytest.raises(gravac.Error) as found:
        gravac.Aggregator(Fed(), **options)
    return str(found.value)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(polcy="dense"), "options: no such option 'polcy'; did you mean 'policy'?"),
        (
            dict(policy="magic"),
            "policy: no such policy 'magic'; known: " + ", ".join(_engine.policies()),
        ),
        (dict(compressor="top-k"), "no such compressor 'top-k'"),
        (dict(policy="static", factor=0.5), "factor: must be a finite number >= 1, got 0.5"),
        (dict(policy="gravac", epsilon=1.5), "epsilon must be from 0 to 1, got 1.5"),
        (dict(policy="gravac", factor_min=100, factor_max=10), "100"),
        (dict(timeout=0), "timeout must be > 0 s, got 0 s"),
        (dict(check_every=-1), "check_every must be >= 0, got -1"),
        (dict(check_every="1"), "check_every must be a number of steps, got str"),
        (dict(log_every=0), "log_every must be >= 1, got 0"),
        (dict(timeout=datetime.timedelta(1)), "timeout must be a number of seconds, got timedelta"),
        (dict(samples="8"), "samples must be a number, got str"),
        (dict(scaler=1024.0), "scaler must be a GradScaler, got float"),
        (dict(process_group=[0, 1]), "process_group must be a process group, got list"),
        (dict(optimizer=[1]), "optimizer must be a torch.optim.Optimizer, got list"),
        (dict(weight_decay=0.1), "weight-decay stays with the optimizer"),
        (dict(memory="momentum"), "optimizer= is missing"),
        (dict(exchange="shared"), "shared positions need a compressor"),
    ],
)
def test_refuses_options_as_the_library_does(options, message):
    found = refusal(options)
    assert message in found and "\n" not in found


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda model, sgd: gravac.GravacState(sgd), "GravacState: the first argument must be the model; write opt"),
        (lambda model, sgd: gravac.GravacState([1]), "GravacState: model must be a torch.nn.Module, got list"),
        (lambda model, sgd: gravac.Aggregator(sgd), "Aggregator: the first argument must be the model"),
        (lambda model, sgd: gravac.Aggregator(7), "Aggregator: model must be a torch.nn.Module, got int"),
        (lambda model, sgd: gravac.Aggregator(model.named_parameters()), "got tuple among them"),
        (lambda model, sgd: gravac.Optimizer(model, sgd), "the first argument must be the optimizer, got Fed"),
        (lambda model, sgd: gravac.gravac_hook(sgd, None), "register_comm_hook needs a GravacState, got SGD"),
        (lambda model, sgd: gravac.Aggregator(model).load_state_dict(None), "state must be what state_dict"),
    ],
)
def test_refuses_arguments_of_wrong_types(make, message):
    model = Fed()
    with pytest.raises(gravac.Error, match=message):
        make(model, torch.optim.SGD(model.parameters(), 0.1))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda ps: torch.optim.Adam(ps), "optimizer must be torch.optim.SGD, got Adam"),
        (lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, nesterov=True), "expected plain momentum, got Nesterov's"),
        (lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, dampening=0.1), "dampening must be 0, got 0.1"),
    ],
)
def test_says_when_an_optimizer_does_not_allow_the_momentum_memory(make, message):
    model = Fed()
    with pytest.raises(gravac.Error, match=message):
        gravac.GravacState(model, memory="momentum", optimizer=make(model.parameters()))


def scaled(rank, kind):
    """A scale that changes, and an overflow on one rank: as without scale, apart from the step skipped."""
    scaler = types.SimpleNamespace(scale=4.0)
    scaler.get_scale = lambda: scaler.scale
    plain, amp = Fixture(kind, **STATIC), Fixture(kind, scaler=scaler, **STATIC)
    for step in range(9):
        scaler.scale = [4.0, 4.0, 8.0, 8.0, 8.0, 2.0][step % 6]
        gradients = gradients_of(rank, step)
        if step == 4:
            bad = [g.clone() for g in gradients]
            bad[0][0, 0] = float("inf") if rank == 1 else 0
            mean = amp.backward([scaler.scale * g for g in bad])
            assert not torch.isfinite(mean).all(), "all ranks must see the overflow"
            assert amp.state.report()["bad_steps"] == 1
            continue
        expected = plain.step(gradients)
        found = amp.backward([scaler.scale * g for g in gradients])
        assert torch.isfinite(found).all()
        if step < 4:
            assert torch.equal(found, scaler.scale * expected), step
        elif kind == "aggregator":  # a step taken back rounds what waits
            assert torch.allclose(found, scaler.scale * expected, atol=1), step
        # The hook has sent some buckets before it knew: what they brought waits again.


@pytest.mark.parametrize("kind", KINDS)
def test_follows_the_loss_scale_and_skips_overflows(kind):
    run(2, scaled, kind)


def real_scaler(rank):
    model = Fed()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    aggregator = gravac.Aggregator(model, scaler=scaler, **STATIC)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(4):
        optimizer.zero_grad()
        gradients = gradients_of(rank, step)
        if step == 2 and rank == 0:
            gradients[1][0] = float("nan")
        scaler.scale(model(gradients)).backward()
        aggregator.aggregate()
        before = flat(model.parameters())
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, flat(model.parameters())) == (step == 2)
    assert scaler.get_scale() == 512.0
    return flat(model.parameters())


@pytest.mark.skipif(
    not hasattr(getattr(torch, "amp", None), "GradScaler"), reason="torch 1.13: GradScaler wants CUDA"
)
def test_works_with_the_real_grad_scaler():
    ours, theirs = run(2, real_scaler)
    assert torch.equal(ours, theirs)


class Writer:
    def __init__(self):
        self.tags = {}

    def add_scalar(self, tag, value, step):
        self.tags.setdefault(tag, []).append((step, value))


def log(rank):
    writer, reports = Writer(), []
    fixture = Fixture("hook", log=writer, log_every=2, **STATIC)
    called = Fixture("aggregator", log=reports.append, log_every=1, **STATIC)

    def broken(found):
        raise OSError("disk full")

    stubborn = Fixture("aggregator", log=broken, log_every=1, **STATIC)
    for step in range(4):
        fixture.step(gradients_of(rank, step))
        called.step(gradients_of(rank, step))
        stubborn.step(gradients_of(rank, step))
    assert writer.tags["gravac/factor"] == [(1, 10.0), (3, 10.0)]
    assert [found["step"] for found in reports] == [0, 1, 2, 3]
    assert gravac.report() == stubborn.state.report()
    assert fixture.state.report()["entries"] == sum(SIZES)


def test_logs_to_a_writer_or_a_function_and_survives_a_broken_one():
    run(2, log)


def lines_of(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def log_folder(rank, kind, folder):
    """A run of five steps, and one that goes on from step 3 in the same folder."""
    first = Fixture(kind, log=folder, **STATIC)
    for step in range(5):
        first.state.log_loss(torch.tensor(10.0 - step, requires_grad=True))
        first.step(gradients_of(rank, step))
        first.state.log_evaluation(top1=step / 10, loss=float("nan"))
        if step == 2:
            kept = first.state.state_dict(), copy.deepcopy(first.optimizer.state_dict())
    dist.barrier()
    if rank == 0:
        steps, evaluations = lines_of(folder, "steps.jsonl"), lines_of(folder, "evals.jsonl")
        assert [line["step"] for line in steps] == [0, 1, 2, 3, 4]
        assert [line["loss"] for line in steps] == [10, 9, 8, 7, 6]
        assert {name: steps[-1][name] for name in first.state.report()} == first.state.report()
        seconds = [line["train_seconds"] for line in steps]
        assert seconds == sorted(seconds) and seconds[0] > 0
        assert [(line["step"], line["top1"], line["loss"]) for line in evaluations][:2] == [(1, 0.0, None), (2, 0.1, None)]
        assert evaluations[-1]["bytes_sent"] == sum(line["bytes_sent"] for line in steps)
        assert 'policy = "static"\n' in (folder / "config.toml").read_text()
    dist.barrier()
    second = Fixture(kind, log=str(folder), **STATIC)
    second.state.load_state_dict(kept[0])
    second.step(gradients_of(rank, 3))
    dist.barrier()
    if rank == 0:
        assert [line["step"] for line in lines_of(folder, "steps.jsonl")] == [0, 1, 2, 3]
        assert lines_of(folder, "steps.jsonl")[3]["loss"] is None
        assert lines_of(folder, "steps.jsonl")[3]["train_seconds"] > lines_of(folder, "steps.jsonl")[2]["train_seconds"]
        assert [line["step"] for line in lines_of(folder, "evals.jsonl")] == [1, 2, 3]
    with pytest.raises(gravac.Error, match="expected top1, top5, ppl or loss, got accuracy"):
        second.state.log_evaluation(accuracy=0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_writes_a_folder_for_gravac_report(kind, tmp_path):
    run(2, log_folder, kind, tmp_path / "new" / "run")


def broken_folder(rank, path):
    fixture = Fixture("aggregator", log=path / "file" / "run", **STATIC)
    for step in range(2):
        fixture.step(gradients_of(rank, step))
    assert fixture.state.report()["step"] == 1


def test_trains_on_without_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    run(2, broken_folder, tmp_path)


def wrapped(rank):
    torch.manual_seed(rank)
    model = Fed()
    inner = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    optimizer = gravac.Optimizer(inner, model, **STATIC)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(4):
        optimizer.zero_grad()
        model(gradients_of(rank, step)).backward()
        optimizer.step()
        schedule.step()
    assert inner.param_groups[0]["lr"] == 0.025
    saved = copy.deepcopy(optimizer.state_dict())
    weights = flat(model.parameters())
    optimizer.zero_grad()
    model(gradients_of(rank, 9)).backward()
    optimizer.step()
    after = flat(model.parameters())
    with torch.no_grad():
        for p, w in zip(model.parameters(), weights.split(SIZES)):
            p.copy_(w.view(p.shape))
    optimizer.load_state_dict(saved)
    optimizer.zero_grad()
    model(gradients_of(rank, 9)).backward()
    optimizer.step()
    assert torch.equal(flat(model.parameters()), after)
    with pytest.raises(gravac.Error, match="closure"):
        optimizer.step(lambda: None)
    return after


def test_optimizer_aggregates_before_every_step():
    ours, theirs = run(2, wrapped)
    assert torch.equal(ours, theirs)


def alone():
    model = Fed()
    aggregator = gravac.Aggregator(model, policy="dense")
    model(gradients_of(0, 0)).backward()
    aggregator.aggregate()
    return flat(p.grad for p in model.parameters())


def test_works_alone_without_a_process_group(monkeypatch):
    assert torch.equal(alone(), flat(gradients_of(0, 0)))
    monkeypatch.setenv("WORLD_SIZE", "2")  # under torchrun, and too early
    with pytest.raises(gravac.Error, match="call torch.distributed.init_process_group first"):
        alone()


def test_has_nothing_to_report_before_the_first_step():
    with pytest.raises(gravac.Error, match="no step has been taken yet"):
        gravac.GravacState().report()


def saved_before_the_first_step(rank, kind):
    """A state from before the first step is loaded before it, and after some: both start anew."""
    found = []
    options = dict(STATIC, granularity="layer", values="fp32")  # DDP's buckets, which change, do not matter then
    saved = through_file(Fixture(kind, 0.9, **options).state.state_dict())
    for steps_before in (None, 0, 3):
        fixture = Fixture(kind, 0.9, **options)
        for step in range(steps_before or 0):
            fixture.backward(gradients_of(rank, 10 + step))
        if steps_before is not None:
            fixture.state.load_state_dict(saved)
            again = [saved, saved] if kind == "hook" else fixture.state.state_dict()
            fixture.state.load_state_dict(again)
        found.append([fixture.step(gradients_of(rank, step)) for step in range(3)])
        assert fixture.state.report()["step"] == 2
    expected, *others = map(torch.stack, found)
    assert all(torch.equal(one, expected) for one in others)
    with pytest.raises(gravac.Error, match="state: it was saved with factor 10, and factor is 5 here"):
        Fixture(kind, **dict(options, factor=5)).state.load_state_dict(saved)


def test_a_state_saved_before_the_first_step_can_be_loaded():
    run_each(2, saved_before_the_first_step, {kind: [kind] for kind in KINDS})


SKEWED = [  # an option, its value, its default, and what else is given
    ("factor", 500, "not set", {}),
    ("hand-over", "as-is", "momentum", {}),
    ("feedback", "false", "true", {}),
    ("epsilon", 0.99, "0.7", dict(policy="gravac")),
    ("values", "fp16", "not set", {}),
    ("momentum", 0.5, "0.9", dict(memory="momentum")),
    ("seed", 1, "0", {}),
]


@pytest.mark.parametrize("name, value, default, others", SKEWED)
def test_a_state_saved_with_other_options_is_refused_in_both_directions(name, value, default, others):
    def made(**more):
        return Fixture("aggregator", **{"policy": "static", **others, **more}).state

    given, left_out = made(**{name.replace("-", "_"): value}), made()
    with pytest.raises(gravac.Error, match=f"state: it was saved with {name} {value}, and {name} is {default} here"):
        left_out.load_state_dict(through_file(given.state_dict()))
    with pytest.raises(gravac.Error, match=f"state: it was saved with {name} {default}, and {name} is {value} here"):
        given.load_state_dict(through_file(left_out.state_dict()))


def test_options_that_say_the_default_are_as_good_as_none():
    said = dict(STATIC, epsilon=0.70, factor_max="1000.0", feedback=True, threads=2, start_steps=7)
    for there, here in ((STATIC, said), (said, STATIC)):
        Fixture("aggregator", **here).state.load_state_dict(Fixture("aggregator", **there).state.state_dict())


def test_a_state_of_an_earlier_version_names_only_the_options_given():
    state = Fixture("aggregator", **STATIC).state.state_dict()
    given = ("policy", "factor", "exchange")
    for name in [name for name in state if name.startswith("fact/option ")]:
        if name[len("fact/option ") :] not in given:
            del state[name]
    state["fact/option factor"] = "10.0"
    Fixture("aggregator", **STATIC).state.load_state_dict(state)
    with pytest.raises(gravac.Error, match="saved with feedback true, and feedback is false here"):
        Fixture("aggregator", **STATIC, feedback=False).state.load_state_dict(state)


def state_before_group(rank, store):
    """As frameworks do that make their options first and processes later."""
    state = gravac.GravacState(policy="dense")
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    model = ddp(Fed())
    model.register_comm_hook(state, gravac.gravac_hook)
    model(gradients_of(rank, 0)).backward()
    return flat(p.grad for p in model.parameters())


def test_a_state_made_before_the_group_still_finds_the_others(tmp_path):
    found = run(2, state_before_group, f"file://{tmp_path}/store", store=None)
    expected = (flat(gradients_of(0, 0)) + flat(gradients_of(1, 0))) / 2
    for one in found:
        assert torch.equal(one, expected)


ACCORDION = dict(policy="accordion", factor_min=4, factor_max=100, interval=1, spacing=3, exchange="all-gather")


def dropped(rank, kind):
    """The entries sent in each step of equal gradients; the learning rate drops before the sixth."""
    fixture = Fixture(kind, **ACCORDION)
    sent = []
    for step in range(9):
        if step == 5:
            fixture.state.learning_rate_dropped()
        fixture.step(gradients_of(rank, 0))
        sent.append(fixture.state.report()["entries_sent"])
    return sent


@pytest.mark.parametrize("kind", KINDS)
def test_accordion_compresses_little_after_a_drop_of_the_learning_rate(kind):
    for sent in run(2, dropped, kind):
        low, high = sent[0], sent[4]
        assert low > 10 * high
        assert sent == [low] * 4 + [high] + [low] * 2 + [high] * 2  # until the next comparison


def dropped_before(rank):
    """The same for a state that was loaded before its engine was made, and for an optimizer."""
    first = Fixture("hook", **ACCORDION)
    for _ in range(5):
        first.step(gradients_of(rank, 0))
    second = Fixture("hook", **ACCORDION)
    second.state.load_state_dict(through_file(first.state.state_dict()))
    second.state.learning_rate_dropped()
    second.step(gradients_of(rank, 0))
    sent = [first.state.report()["entries_sent"], second.state.report()["entries_sent"]]

    model = Fed()
    optimizer = gravac.Optimizer(torch.optim.SGD(model.parameters(), 0.01), model, **ACCORDION)
    for step in range(6):
        if step == 5:
            optimizer.learning_rate_dropped()
        model(gradients_of(rank, 0)).backward()
        optimizer.step()
        sent.append(optimizer.aggregator.report()["entries_sent"])
        optimizer.zero_grad()
    return sent


def test_a_drop_is_told_before_the_first_step_and_through_an_optimizer():
    for high, low, *others in run(2, dropped_before):
        assert low > 10 * high
        assert others == [low] * 4 + [high, low]


def paused(rank, kind):
    """The computing seconds of a step after a pause that was told and one that was not, and how long at most."""
    fixture = Fixture(kind, **STATIC)
    fixture.state.pause()  # before the first step there is nothing to tell
    found = []
    for tell in (True, False):
        for step in range(3):
            fixture.step(gradients_of(rank, step))
        time.sleep(0.1)  # an evaluation
        resumed = time.monotonic()
        if tell:
            fixture.state.pause()
        fixture.step(gradients_of(rank, 3))
        found.append((fixture.state.report()["compute_seconds"], time.monotonic() - resumed))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_pause_that_is_told_does_not_count_as_computing(kind):
    (told, since), (untold, _) = run(1, paused, kind)[0]
    assert told <= since
    assert untold >= 0.1


def test_the_engine_is_told_the_first_dimension_of_every_parameter():
    shapes = [(), (5,), (4, 3), (8, 2, 3, 3), (1, 7), (0, 7)]
    described = gravac._session.described([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes], None)
    assert [(size, rows) for _, size, rows, _ in described] == [(1, 1), (5, 1), (12, 4), (144, 8), (7, 1), (0, 0)]


def test_refuses_a_state_of_parameters_of_another_shape():
    state = gravac.Aggregator(torch.nn.Linear(3, 4, bias=False)).state_dict()
    gravac.Aggregator(torch.nn.Linear(3, 4, bias=False)).load_state_dict(state)
    other = gravac.Aggregator(torch.nn.Linear(4, 3, bias=False))  # as many entries, and the same name
    with pytest.raises(gravac.Error, match="layout is"):
        other.load_state_dict(state)
