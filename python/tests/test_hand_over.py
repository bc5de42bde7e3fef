"""How SGD uses its momentum in compressed steps: the law, and that nothing else of the optimizer changes."""

import copy
import math
import pickle
import random
import warnings

import pytest
import torch
from ranks import SHAPES, Fed, ddp, flat, run, run_each

import gravac
from gravac import _hand_over

# Compresses a step exactly if little is lost by that, so that gradients choose between dense and sparse.
MIXED = dict(policy="scadles", interval=1, delta=0.3, factor=20, exchange="all-gather")
STATIC = dict(policy="static", factor=10)


def gradients_of(rank, step, peaked):
    """In a peaked one, few entries have nearly all of the norm."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    noise = [torch.randn(shape, generator=generator) for shape in SHAPES]
    if not peaked:
        return [torch.sign(n) for n in noise]
    return [n * (100 * (torch.rand(n.shape, generator=generator) < 0.02) + 0.01) for n in noise]


class Trained:
    """A fed model under the hook or an aggregator, with an SGD whose groups have different momenta."""

    def __init__(self, kind, sgd, options, given=True):
        torch.manual_seed(0)
        model = Fed()
        with torch.no_grad():
            for p in model.parameters():
                p.uniform_(-1, 1)
        self.kind, self.parameters = kind, list(model.parameters())
        groups = [{"params": self.parameters[:3]}, {"params": self.parameters[3:], "momentum": 0.7}]
        self.optimizer = torch.optim.SGD(groups, **{"lr": 0.01, "momentum": 0.9, **sgd})
        if given:
            options = dict(options, optimizer=self.optimizer)
        if kind == "hook":
            self.model = ddp(model)
            self.state = gravac.GravacState(model, **options)
            self.model.register_comm_hook(self.state, gravac.gravac_hook)
        else:
            self.model = model
            self.state = gravac.Aggregator(model, **options)

    def backward(self, gradients, passes=1):
        self.optimizer.zero_grad()
        for number in range(passes):
            if self.kind == "hook" and number < passes - 1:
                with self.model.no_sync():
                    self.model(gradients).backward()
            else:
                self.model(gradients).backward()
        if self.kind == "aggregator":
            self.state.aggregate()

    def buffers(self):
        return [self.optimizer.state[p].get("momentum_buffer") for p in self.parameters]


class Reference:
    """What the buffers and the weights should be, in double."""

    def __init__(self, parameters, sgd):
        self.buffers = [torch.zeros(p.shape, dtype=torch.float64) for p in parameters]
        self.momenta = [0.9] * 3 + [0.7] * (len(parameters) - 3)
        self.decay, self.nesterov = sgd.get("weight_decay", 0), sgd.get("nesterov", False)
        self.good = self.since_dense = 0  # steps so far, and compressed ones

    def step(self, parameters, report, fixed):
        """Returns the weights after the step."""
        after = []
        self.good += 1
        factor = report["factor"]
        for i, p in enumerate(parameters):
            m = self.momenta[i]
            share = report["momentum_share"]
            assert 1 - 0.22 * math.log10(factor) * self.since_dense / 100 <= share + 1e-6  # more while steps overshoot
            used = m if factor == 1 else m * share if fixed is None else min(m, fixed)
            scale = (1 - m**self.good - used * (1 - m ** (self.good - 1))) / (1 - m)
            g = scale * (p.grad.double() + self.decay * p.detach().double())
            self.buffers[i] = used * self.buffers[i] + g
            update = g + used * self.buffers[i] if self.nesterov else self.buffers[i]
            after.append(p.detach().double() - 0.01 * update)
        self.since_dense = self.since_dense + 1 if factor > 1 else 0
        return after


def close(found, expected):
    largest = max(float(e.abs().max()) for e in expected)
    return all(float((f.double() - e).abs().max()) <= 1e-6 * largest for f, e in zip(found, expected))


def follow_the_law(rank, kind, sgd, more):
    trained = Trained(kind, sgd, {**MIXED, **more})
    reference = Reference(trained.parameters, sgd)
    drawn = random.Random(str((kind, sorted(sgd.items()), sorted(more.items()))))
    factors = []
    for step in range(24):
        peaked, passes, bad, resumed = (drawn.random() < x for x in (0.6, 0.3, 0.15, 0.15))
        if resumed and step > 3:
            again = Trained(kind, sgd, {**MIXED, **more})
            again.state.load_state_dict(trained.state.state_dict())
            again.model.load_state_dict(trained.model.state_dict())
            again.optimizer.load_state_dict(copy.deepcopy(trained.optimizer.state_dict()))
            trained = again
        gradients = gradients_of(rank, step, peaked)
        if bad and rank == 1:
            gradients[0].view(-1)[3] = math.inf
        trained.backward(gradients, 2 if passes else 1)
        report = trained.state.report()
        assert report["finite"] != bad
        if bad:
            continue  # as a GradScaler does
        factors.append(report["factor"])
        expected = reference.step(trained.parameters, report, more.get("effective_momentum"))
        trained.optimizer.step()
        assert close(trained.buffers(), reference.buffers), step
        assert close(trained.parameters, expected), step
    assert 1 in factors and max(factors) > 15, factors
    return flat(trained.parameters)


@pytest.mark.parametrize("kind", ["hook", "aggregator"])
def test_buffers_hold_what_the_hand_over_says(kind):
    cases = {
        "plain": [kind, {}, {}],
        "decay": [kind, {"weight_decay": 0.01}, {}],
        "nesterov": [kind, {"weight_decay": 0.01, "nesterov": True}, {}],
        "fixed": [kind, {}, {"effective_momentum": 0.3}],
        "none": [kind, {}, {"effective_momentum": 0}],
    }
    for name, ranks in run_each(2, follow_the_law, cases).items():
        assert torch.equal(ranks[0], ranks[1]), name


def trained_weights(rank, sgd, options, given=True):
    trained = Trained("aggregator", sgd, options, given)
    for step in range(8):
        trained.backward(gradients_of(rank, step, step % 3 > 0))
        trained.optimizer.step()
    return flat(trained.parameters)


@pytest.mark.parametrize("sgd", [{}, {"nesterov": True}, {"weight_decay": 0.1, "dampening": 0.5}], ids=str)
def test_with_all_of_its_momentum_nothing_changes(sgd):
    plain, dense = trained_weights(0, sgd, STATIC, given=False), dict(policy="dense")
    bits = dict(compressor="quantise", bits=4)
    assert torch.equal(trained_weights(0, sgd, dict(STATIC, hand_over="as-is")), plain)
    assert torch.equal(trained_weights(0, sgd, dict(STATIC, effective_momentum=0.9)), plain)
    for options in (bits, dense):
        assert torch.equal(trained_weights(0, sgd, options), trained_weights(0, sgd, options, given=False))
    assert not torch.equal(trained_weights(0, sgd, STATIC), plain)


def test_dampening_goes_on_beside_the_hand_over():
    trained = Trained("aggregator", {"dampening": 0.25}, STATIC)
    buffer = torch.zeros(SHAPES[0], dtype=torch.float64)
    for step in range(5):
        trained.backward(gradients_of(0, step, True))
        used = 0.9 * trained.state.report()["momentum_share"]
        scale = (1 - 0.9 ** (step + 1) - used * (1 - 0.9**step)) / (1 - 0.9)
        added = scale * (0.75 if step > 0 else 1)  # in the first step nothing is changed, and torch dampens nothing
        buffer = used * buffer + added * trained.parameters[0].grad.double()
        trained.optimizer.step()
    share = 1 - 0.22 * math.log10(trained.state.report()["factor"])
    assert abs(share - 0.78) < 1e-3  # 10x, up to rounding to whole entries
    assert torch.allclose(trained.buffers()[0].double(), buffer, rtol=1e-2)


def schedulers_of(optimizer):
    once = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=20)
    return [once, torch.optim.lr_scheduler.StepLR(optimizer, 3)]


@pytest.mark.parametrize("order", ["before", "after", "both"])
def test_schedulers_may_be_made_before_and_after(order):
    def weights(given):
        torch.manual_seed(0)
        model = Fed()
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        schedulers = schedulers_of(optimizer) if order != "after" else []
        options = dict(STATIC, optimizer=optimizer) if given else STATIC
        aggregator = gravac.Aggregator(model, **options)
        schedulers += schedulers_of(optimizer) if order != "before" else []
        moments = []
        for step in range(6):
            optimizer.zero_grad()
            model(gradients_of(0, step, True)).backward()
            aggregator.aggregate()
            optimizer.step()
            for scheduler in schedulers:
                scheduler.step()
            moments.append(optimizer.param_groups[0]["momentum"])
        return flat(model.parameters()), moments

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns if step() seems to be called too late, or to be replaced
        handed, moments = weights(True)
        plain, expected = weights(False)
    assert moments == expected and len(set(moments)) > 1  # OneCycleLR changes the momentum
    assert not torch.equal(handed, plain)


def test_outside_of_step_the_optimizer_has_the_users_values_only():
    trained = Trained("aggregator", {"weight_decay": 0.1, "nesterov": True}, STATIC)
    trained.backward(gradients_of(0, 0, True))
    gradients = [p.grad for p in trained.parameters]
    values = [g.clone() for g in gradients]
    before = copy.deepcopy(trained.optimizer.state_dict()["param_groups"])
    trained.optimizer.step()
    assert trained.optimizer.state_dict()["param_groups"] == before
    assert all(p.grad is g for p, g in zip(trained.parameters, gradients))
    assert all(torch.equal(g, v) for g, v in zip(gradients, values))

    def fail():
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        trained.optimizer.step(fail)
    trained.parameters[0].grad.data = torch.zeros(3)  # a shape under which torch's own step fails
    with pytest.raises(RuntimeError):
        trained.optimizer.step()
    assert trained.optimizer.state_dict()["param_groups"] == before


def saved_in_step(optimizer, take_steps):
    """The groups that are saved within steps: by hooks if torch has them, and always by a closure and a state."""
    saved = []
    keep = lambda *_: saved.append(copy.deepcopy(optimizer.state_dict()["param_groups"]))
    inner = optimizer.state[optimizer.param_groups[0]["params"][0]]

    class Buffer(dict):  # of a parameter: torch asks it in the middle of a step
        def get(self, *arguments):
            keep()
            return super().get(*arguments)

    optimizer.state[optimizer.param_groups[0]["params"][0]] = Buffer(inner)
    if hasattr(optimizer, "register_step_post_hook"):
        optimizer.register_step_pre_hook(keep)
        optimizer.register_step_post_hook(keep)
    take_steps()
    return saved


@pytest.mark.parametrize("sgd", [{}, {"nesterov": True, "weight_decay": 0.1}], ids=str)
def test_a_state_saved_in_the_middle_of_a_step_has_the_users_values(sgd):
    def steps(optimizer_given):
        trained = Trained("aggregator", sgd, STATIC, optimizer_given)
        for step in range(4):
            if step > 0:
                trained.optimizer.step()
            trained.backward(gradients_of(0, step, True))
        saved = saved_in_step(trained.optimizer, trained.optimizer.step)
        return saved, trained.optimizer.state_dict()["param_groups"], flat(trained.buffers())

    (saved, after, buffers), (_, expected, plain) = steps(True), steps(False)
    assert after == expected and saved and all(groups == expected for groups in saved)
    assert not torch.equal(buffers, plain)  # the step itself went by the momentum handed over


def test_copies_of_the_optimizer_are_plain():
    trained = Trained("aggregator", {}, STATIC)
    for twin in (copy.deepcopy(trained.optimizer), pickle.loads(pickle.dumps(trained.optimizer))):
        assert not hasattr(twin, _hand_over._SESSION)
        twin.step()


def test_a_closure_aggregates_before_the_momentum_is_chosen():
    def weights(with_closure):
        trained = Trained("aggregator", {}, MIXED)
        for step in range(6):
            def closure(step=step):
                trained.backward(gradients_of(0, step, step % 2 == 0))
                return torch.tensor(float(step))

            if with_closure:
                assert trained.optimizer.step(closure) == step
            else:
                closure()
                trained.optimizer.step()
        return flat(trained.parameters)

    assert torch.equal(weights(True), weights(False))


def test_parameters_without_gradients_are_left_alone():
    trained = Trained("aggregator", {}, STATIC)
    trained.backward(gradients_of(0, 0, True))
    trained.parameters[1].grad = None
    before = trained.parameters[1].clone()
    trained.optimizer.step()
    assert torch.equal(trained.parameters[1], before)
    assert trained.buffers()[1] is None and trained.buffers()[0] is not None


def test_a_group_without_momentum_keeps_no_buffer():
    trained = Trained("aggregator", {"momentum": 0}, STATIC)
    trained.backward(gradients_of(0, 0, True))
    trained.optimizer.step()
    assert trained.buffers()[0] is None and trained.buffers()[4] is not None


def test_the_newest_session_decides():
    trained = Trained("aggregator", {}, STATIC)
    step = trained.optimizer.step
    newer = gravac.Aggregator(trained.parameters, optimizer=trained.optimizer, policy="dense")
    assert trained.optimizer.step == step  # not wrapped once more
    trained.backward(gradients_of(0, 0, True))
    newer.aggregate()
    trained.optimizer.step()
    assert torch.equal(trained.buffers()[0], trained.parameters[0].grad)  # dense: the gradient as it is
    del newer  # without a session the optimizer steps as any other
    trained.optimizer.step()
    assert torch.allclose(trained.buffers()[0], 1.9 * trained.parameters[0].grad)


def test_works_as_an_optimizer():
    model = Fed()
    optimizer = gravac.Optimizer(torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), model, **STATIC)
    p, expected = model.ps[0], 0
    for step in range(2):
        optimizer.zero_grad()
        model(gradients_of(0, step, True)).backward()
        optimizer.step()
        used = 0.9 * optimizer.aggregator.report()["momentum_share"]
        expected = used * expected + (1 if step == 0 else 1.9 - used) * p.grad
    assert torch.allclose(optimizer.state[p]["momentum_buffer"], expected)


OTHERS = ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_optimizers_are_not_changed(name):
    model = Fed()
    optimizer = getattr(torch.optim, name)(model.parameters(), 0.01)
    aggregator = gravac.Aggregator(model, optimizer=optimizer, **STATIC)
    assert not hasattr(optimizer, _hand_over._SESSION)
    model(gradients_of(0, 0, True)).backward()
    aggregator.aggregate()
    known = aggregator.state_dict()["fact/option optimizer"]
    assert known == ("unknown" if name == "RMSprop" else "adam")


def test_a_subclass_of_sgd_is_not_changed():
    class Other(torch.optim.SGD):
        pass

    model = Fed()
    optimizer = Other(model.parameters(), 0.01, momentum=0.9)
    gravac.Aggregator(model, optimizer=optimizer, **STATIC)
    assert not hasattr(optimizer, _hand_over._SESSION)
    with pytest.raises(gravac.Error, match="effective_momentum needs optimizer="):
        gravac.Aggregator(model, optimizer=optimizer, effective_momentum=0.5)
    with pytest.raises(gravac.Error, match="effective_momentum needs optimizer="):
        gravac.Aggregator(model, effective_momentum=0.5)


class Accelerated(torch.optim.Optimizer):
    """As Accelerate wraps an optimizer."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        self.optimizer.step()


class Lightning:
    """As Lightning does."""

    def __init__(self, optimizer):
        self._optimizer = optimizer

    def step(self):
        self._optimizer.step()


@pytest.mark.parametrize("wrap", [Accelerated, Lightning, lambda inner: Lightning(Accelerated(inner))])
def test_a_wrapped_optimizer_is_served(wrap):
    def weights(wrap):
        torch.manual_seed(0)
        model = Fed()
        optimizer = wrap(torch.optim.SGD(model.parameters(), 0.01, momentum=0.9))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            aggregator = gravac.Aggregator(model, optimizer=optimizer, **STATIC)
        for step in range(4):
            aggregator.zero_grad()
            model(gradients_of(0, step, True)).backward()
            aggregator.aggregate()
            optimizer.step()
        return flat(model.parameters())

    assert torch.equal(weights(wrap), weights(lambda inner: inner))


def warned_of(rank, name):
    model = Fed()
    optimizer = Accelerated(getattr(torch.optim, name)(model.parameters(), 0.01))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        gravac.Aggregator(model, optimizer=optimizer, policy="static", factor=8, compressor="quantise")
    return [str(one.message) for one in found if "gravac" in str(one.message)]


def test_rank_0_warns_of_an_optimizer_of_no_known_kind():
    results = run_each(2, warned_of, {"RMSprop": ["RMSprop"], "AdamW": ["AdamW"], "SGD": ["SGD"]})
    (message,), others = results["RMSprop"]
    assert message.startswith("gravac: optimizer RMSprop is none of torch.optim's SGD, Adam, ") and others == []
    assert results["AdamW"] == results["SGD"] == [[], []]


def scaled(fused):
    """Gradients of a scaled loss, one of them with an overflow, under a GradScaler."""
    torch.manual_seed(0)
    model = Fed()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True, fused=fused)
    aggregator = gravac.Aggregator(model, optimizer=optimizer, scaler=scaler, **STATIC)
    for step in range(6):
        aggregator.zero_grad()
        gradients = gradients_of(0, step, True)
        if step == 2:
            gradients[0].view(-1)[0] = math.inf
        scaler.scale(model(gradients)).backward()
        aggregator.aggregate()
        scaler.step(optimizer)
        scaler.update()
    return flat(model.parameters())


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="needs a GradScaler for the CPU")
def test_works_with_a_grad_scaler():
    plain, fused = scaled(None), scaled(True)
    assert torch.isfinite(plain).all() and plain.abs().max() > 0
    assert torch.allclose(plain, fused, rtol=1e-5, atol=1e-6)


def skip_bad_steps(rank):
    """What a GradScaler does: step() is not called after bad numbers."""
    trained = Trained("hook", {}, dict(STATIC, exchange="all-gather"))
    for step in range(5):
        gradients = gradients_of(rank, step, True)
        if step == 2 and rank == 0:
            gradients[0].view(-1)[0] = math.nan
        trained.backward(gradients)
        before = [b.clone() for b in trained.buffers()] if step else []
        if all(torch.isfinite(p.grad).all() for p in trained.parameters):
            trained.optimizer.step()
            assert step != 2
        else:
            assert step == 2 and all(torch.equal(a, b) for a, b in zip(trained.buffers(), before))
    return flat(trained.buffers())


def test_ranks_stay_equal_over_skipped_steps():
    ranks = run(2, skip_bad_steps)
    assert torch.equal(ranks[0], ranks[1])


def kept_in_a_warm_up(rank, kind):
    """The largest entry of each group that is handed out after the rate of one of them rose."""
    options = dict(STATIC, granularity="layer", values="fp32", exchange="all-gather")
    trained = Trained(kind, {}, options)
    for step in range(4):  # DDP cuts its buckets anew after the first
        trained.backward([torch.full(shape, 1.0 if step < 3 else 1e-9) for shape in SHAPES])
        trained.optimizer.step()
        if step == 2:
            state = trained.state.state_dict()
            trained = Trained(kind, {}, options)
            trained.state.load_state_dict(state)
            trained.optimizer.param_groups[1]["lr"] *= 4
    return [max(float(p.grad.max()) for p in group) for group in (trained.parameters[:3], trained.parameters[3:])]


@pytest.mark.parametrize("kind", ["hook", "aggregator"])
def test_what_is_kept_counts_no_more_where_the_learning_rate_rises(kind):
    constant, rising = run(2, kept_in_a_warm_up, kind)[0]
    assert constant == pytest.approx(3)  # of three steps, none of which sent it
    assert rising == pytest.approx(0.75)
