"""What comes out: dense is plain DDP, everything else is the C++ aggregator, nothing is lost."""

import gravac_in_threads
import pytest
import torch
from ranks import ROWS, SHAPES, SIZES, Fed, ddp, flat, gradients_of, run, run_each

import gravac
from gravac import _engine
from gravac._session import _bytes_of

COMPRESSORS = _engine.compressors()  # by name: what they can do
STEPS = 6


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 36, 40), torch.nn.ReLU(), torch.nn.Linear(40, 10),
    )  # fmt: skip


def train(rank, with_gravac):
    """Weights after a few steps of a real network."""
    model = ddp(network())
    if with_gravac:
        model.register_comm_hook(gravac.GravacState(policy="dense"), gravac.gravac_hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-3)
    torch.manual_seed(rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 3, 8, 8)), torch.randint(0, 10, (8,)))
        loss.backward()
        optimizer.step()
    return flat(model.parameters())


@pytest.mark.parametrize("size", [1, 2, 4])
def test_dense_hook_is_plain_ddp_to_the_bit(size):
    found = run_each(size, train, {"plain": [False], "ours": [True]})
    for plain, ours in zip(found["plain"], found["ours"]):
        assert torch.equal(plain, ours)


def golden(size, options, steps=STEPS):
    """The means that the C++ aggregator gives, with ranks as threads."""
    given = [[bytes(_bytes_of(flat(gradients_of(rank, step)))) for step in range(steps)] for rank in range(size)]
    means = gravac_in_threads.means(SIZES, ROWS, {k: str(v) for k, v in options.items()}, given)
    return [torch.frombuffer(bytearray(mean), dtype=torch.float32) for mean in means]


def feed_hook(rank, options, steps=STEPS):
    model = ddp(Fed())
    state = gravac.GravacState(model.module, **options)
    model.register_comm_hook(state, gravac.gravac_hook)
    means, shapes = [], []
    for step in range(steps):
        model.zero_grad(set_to_none=True)
        model(gradients_of(rank, step)).backward()
        means.append(flat(p.grad for p in model.parameters()))
        shapes.append([list(b) for b in state._shape])
    return means, shapes


def feed_aggregator(rank, options, steps=STEPS):
    model = Fed()
    aggregator = gravac.Aggregator(model, **options)
    means = []
    for step in range(steps):
        model.zero_grad(set_to_none=step % 2 == 0)
        model(gradients_of(rank, step)).backward()
        aggregator.aggregate()
        means.append(flat(p.grad for p in model.parameters()))
    return means


def same(found, expected, name):
    """To the bit; but factors of matrices are sums, which another backend or CPU may add up in another order."""
    if "powersgd" in name:
        return torch.allclose(found, expected, rtol=1e-4, atol=2e-3)
    return torch.equal(found, expected)


@pytest.mark.parametrize("size", [2, 4])
def test_hook_gives_what_the_cpp_aggregator_gives(size):
    cases = {}
    for compressor, facts in COMPRESSORS.items():
        exchange = "shared" if facts["as_sums"] else "all-gather"
        options = dict(policy="static", factor=10, compressor=compressor, exchange=exchange)
        if facts["selects"]:
            options |= dict(granularity="layer", values="fp32")  # runs of int8 values depend on the buckets
        if compressor != "qsgd":  # its roundings are drawn for each bucket
            cases[compressor] = [options]
    for name, results in run_each(size, feed_hook, cases).items():
        expected = golden(size, *cases[name])
        for means, shapes in results:
            for step in range(STEPS):
                assert same(means[step], expected[step], name), (name, step)
            assert len(shapes[-1]) > 1
            assert shapes[0] != shapes[1], "DDP was expected to cut its buckets anew"


@pytest.mark.parametrize("size", [1, 2, 4])
def test_aggregator_gives_what_the_cpp_aggregator_gives(size):
    cases = {}
    for compressor, facts in COMPRESSORS.items():
        options = dict(compressor=compressor, exchange="shared" if facts["as_sums"] else "reduce-scatter")
        cases[f"static, {compressor}"] = [dict(options, policy="static", factor=10)]
        if facts["factor_per_layer"]:
            accordion = dict(options, policy="accordion", factor_min=4, factor_max=40, interval=2)
            cases[f"accordion, {compressor}"] = [accordion]
    for name, results in run_each(size, feed_aggregator, cases).items():
        expected = golden(size, {k.replace("_", "-"): v for k, v in cases[name][0].items()})
        for means in results:
            for step in range(STEPS):
                assert same(means[step], expected[step], name), (name, step)


def sum_halves(rank, options):
    """The means of two buckets, the exchange that was used, and what the comm can add up."""
    state = gravac.GravacState(policy="static", check_every=1, **options)
    model = ddp(Fed())
    model.register_comm_hook(state, gravac.gravac_hook)
    means = []
    for step in range(4):
        model.zero_grad()
        model(gradients_of(rank, step)).backward()
        means.append(flat(p.grad for p in model.parameters()))
    return means, state.report()["exchange"], state._peers.adds_halves(options["compressor"])


@pytest.mark.parametrize("size", [2, 3])
def test_hook_adds_up_halves_where_gloo_can(size):
    cases = {compressor: [dict(compressor=compressor)] for compressor in ("fp16", "bf16")}
    for name, results in run_each(size, sum_halves, cases).items():
        adds = results[0][2]
        assert adds or name == "bf16"  # which Gloo of torch 1.13 does not know
        for means, exchange, _ in results:
            assert (exchange == "shared") == adds
            for step in range(4):
                assert torch.equal(means[step], results[0][0][step])
                expected = sum(flat(gradients_of(rank, step)) for rank in range(size)) / size
                # Rounded to 2^-11 or 2^-8 of numbers below 500, and what was kept of the step before.
                assert torch.allclose(means[step], expected, atol=1 if name == "fp16" else 8), name


def conserve(rank, options, kind):
    """What went in, what came out, what waits."""
    # DDP of torch 1.13 cannot broadcast bf16 over Gloo.
    half = torch.float64 if torch.__version__ < "2" else torch.bfloat16
    dtypes = (torch.float32, half) if kind == "mixed" else (torch.float32,)
    model = ddp(Fed(dtypes), find_unused_parameters=kind == "unused")
    state = gravac.GravacState(model.module, **options)
    model.register_comm_hook(state, gravac.gravac_hook)
    went_in, came_out = torch.zeros(sum(SIZES)), torch.zeros(sum(SIZES))
    factors = set()
    for step in range(12):
        gradients = gradients_of(rank, step)
        if kind == "unused":  # by all in one step, by one rank in another
            if step % 3 == 1:
                gradients[3] = None
            if step % 3 == 2 and rank == 0:
                gradients[0] = None
        model.zero_grad(set_to_none=True)
        if kind == "accumulated":
            with model.no_sync():
                model(gradients_of(rank, 100 + step)).backward()
            went_in += flat(gradients_of(rank, 100 + step))
        model(gradients).backward()
        if kind == "unused" and step % 3 == 1:
            assert model.module.ps[3].grad is None  # as in plain DDP
        # What a parameter of 8 bits receives is rounded to them; what it hands on is not rounded again.
        received = [None if g is None else g.to(p.dtype) for g, p in zip(gradients, model.parameters())]
        went_in += flat(torch.zeros(s) if g is None else g for g, s in zip(received, SHAPES))
        came_out += flat(torch.zeros(s) if p.grad is None else p.grad for p, s in zip(model.parameters(), SHAPES))
        factors.add(state.report()["factor"])
    waits = state.state_dict()["residual"]
    return went_in, came_out, waits, factors


LOSSLESS = {
    "global": dict(policy="static", factor=10),
    "layer": dict(policy="static", factor=4, granularity="layer", values="fp16", compressor="dgc"),
    "gravac": dict(policy="gravac", start_steps=0, factor_min=4, factor_max=40, window=3, epsilon=0.1, gain="error-fed"),
}


@pytest.mark.parametrize("kind", ["plain", "unused", "accumulated", "mixed"])
def test_hook_loses_nothing(kind):
    size = 2
    cases = {name: [options, kind] for name, options in LOSSLESS.items()}
    for name, results in run_each(size, conserve, cases).items():
        went_in = sum(r[0] for r in results)
        left = sum(r[2] for r in results)
        for _, came_out, _, factors in results:
            assert torch.equal(came_out, results[0][1]), name
            assert factors != {1.0}, name
        # Also where bf16 gradients are rounded on their way back: what that loses waits in the residual.
        assert torch.allclose(size * results[0][1] + left, went_in, atol=0.05, rtol=0), name


def plain_mean(rank):
    torch.manual_seed(rank)
    model = torch.nn.Linear(3, 2)
    aggregator = gravac.Aggregator(model, policy="dense")
    start = flat(model.parameters())
    model.weight.grad = torch.full((2, 3), float(rank))  # the bias has no gradient
    report = aggregator.aggregate(samples=8)
    return start, model.weight.grad, model.bias.grad, report["sent"], gravac.report()["step"]


def test_aggregator_sends_rank_0s_weights_first_and_fills_in_missing_gradients():
    results = run(4, plain_mean)
    for start, weight, bias, sent, step in results:
        assert torch.equal(start, results[0][0])
        assert torch.equal(weight, torch.full((2, 3), 1.5))
        assert torch.equal(bias, torch.zeros(2))
        assert (sent, step) == ("dense", 0)
