"""What scripts do with DDP: its options, several models, accumulation, collectives of their own, torch.compile."""

import contextlib
import threading

import pytest
import torch
import torch.distributed as dist
from ranks import LIMIT, SIZES, Fed, ddp, flat, gradients_of, run

import gravac

STATIC = dict(policy="static", factor=10, granularity="layer", exchange="all-gather")


class Agree(torch.autograd.Function):
    """Does nothing, but with a collective on the default group in forward and in backward, as SyncBatchNorm."""

    @staticmethod
    def forward(context, value):
        total = value.clone()
        dist.all_reduce(total)
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        ranks = torch.ones(())
        dist.all_reduce(ranks)
        return gradient * ranks / dist.get_world_size()


class Talking(Fed):
    def forward(self, gradients):
        return sum(Agree.apply((p * g).sum()) for p, g in zip(self.ps, gradients))


def hooked(model, options, **ddp_options):
    wrapped = ddp(model, **ddp_options)
    state = gravac.GravacState(model, **options) if options is not None else None
    if state is not None:
        wrapped.register_comm_hook(state, gravac.gravac_hook)
    return wrapped, state


def trained(rank, options, make=Fed, accumulate=False, **ddp_options):
    """What went in, what came out in every step, and what waits."""
    model = make()
    wrapped, state = hooked(model, options, **ddp_options)
    went_in, came_out = torch.zeros(sum(SIZES)), []
    for step in range(6):
        model.zero_grad(set_to_none=step % 2 == 0)
        for turn in range(3 if accumulate else 1):
            gradients = gradients_of(rank, 100 * turn + step)
            with wrapped.no_sync() if accumulate and turn < 2 else contextlib.nullcontext():
                wrapped(gradients).backward()
            went_in += flat(gradients)
        came_out.append(flat(p.grad for p in model.parameters()))
    waits = state.state_dict()["residual"] if state is not None else None
    return went_in, torch.stack(came_out), waits


VARIANTS = {
    "static_graph": dict(static_graph=True),
    "bucket_view": dict(gradient_as_bucket_view=True),
    "accumulated": dict(accumulate=True),
    "accumulated in views": dict(accumulate=True, gradient_as_bucket_view=True),
    "collectives in backward": dict(make=Talking),
    "all": dict(make=Talking, accumulate=True, gradient_as_bucket_view=True, find_unused_parameters=True),
}


def variants(rank):
    found = {}
    for name, variant in VARIANTS.items():
        _, plain, _ = trained(rank, None, **variant)
        _, dense, _ = trained(rank, dict(policy="dense"), **variant)
        assert torch.equal(plain, dense), name
        found[name] = trained(rank, STATIC, **variant)
    return found


def test_options_of_ddp_change_nothing_and_lose_nothing():
    ours, theirs = run(2, variants)
    for name in VARIANTS:
        assert torch.equal(ours[name][1], theirs[name][1]), name
        came_out = 2 * ours[name][1].sum(0)
        waits = ours[name][2] + theirs[name][2]
        assert waits.abs().max() > 0
        assert torch.allclose(came_out + waits, ours[name][0] + theirs[name][0], atol=0.05, rtol=0), name


def two_models(rank):
    """Two models in turns give what each gives alone."""
    settings = [STATIC, dict(STATIC, factor=4, compressor="dgc")]
    alone = [trained(rank, options)[1] for options in settings]
    models = [Fed(), Fed()]
    wrapped = [hooked(model, options)[0] for model, options in zip(models, settings)]
    for step in range(6):
        losses = [one(gradients_of(rank, step)) for one in wrapped]
        for number, (model, loss) in enumerate(zip(models, losses)):
            model.zero_grad(set_to_none=step % 2 == 0)
            loss.backward()
            assert torch.equal(flat(p.grad for p in model.parameters()), alone[number][step]), (number, step)


def test_two_models_in_one_process_do_not_disturb_each_other():
    run(2, two_models)


def compiled(rank):
    """Weights after a few steps, and how many steps the hook took: eager and compiled."""
    found = []
    for compile in (lambda model: model, lambda model: torch.compile(model, backend="aot_eager")):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(30, 40), torch.nn.ReLU(), torch.nn.Linear(40, 40), torch.nn.Linear(40, 10)]
        wrapped, state = hooked(torch.nn.Sequential(*layers), dict(policy="dense"))
        model = compile(wrapped)
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
        torch.manual_seed(rank)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 30)).square().mean().backward()
            optimizer.step()
        found.append((flat(wrapped.parameters()), state.report()["step"], len(state._shape)))
    return found


needs_compile = pytest.mark.skipif(torch.__version__ < "2.6", reason="torch.compile: tested from torch 2.6 on")


@needs_compile
def test_torch_compile_gives_what_eager_gives():
    results = run(2, compiled)
    for (eager, *_), (weights, steps, buckets) in results:
        assert steps == 3 and buckets > 1
        assert torch.allclose(eager, weights, atol=1e-5)
        assert torch.equal(weights, results[0][1][0])


def python_reducer(rank):
    torch._dynamo.config.optimize_ddp = "python_reducer"
    wrapped, _ = hooked(Fed(), STATIC)
    with pytest.raises(RuntimeError, match='hook: .*optimize_ddp is "python_reducer"'):
        wrapped(gradients_of(rank, 0)).backward()


@needs_compile
def test_the_python_reducer_is_refused():
    run(2, python_reducer)


def handed_out_early(rank):
    """Holds the agreement on a dense step back until backward has returned."""
    model = Fed()
    wrapped, state = hooked(model, {"policy": "dense"})
    for step in range(4):
        wrapped(gradients_of(rank, step)).backward()
    assert state.report()["step"] == 3
    returned, gather = threading.Event(), state._peers.all_gather

    def held(*arguments):
        assert returned.wait(LIMIT)
        return gather(*arguments)

    state._peers.all_gather = held
    model.zero_grad()
    wrapped(gradients_of(rank, 4)).backward()
    mean = flat(p.grad for p in model.parameters())
    returned.set()
    return mean, state.report()["step"]


def test_backward_of_a_dense_step_does_not_wait_until_ranks_agree():
    expected = flat((a + b) / 2 for a, b in zip(gradients_of(0, 4), gradients_of(1, 4)))
    for mean, step in run(2, handed_out_early):
        assert torch.equal(mean, expected)
        assert step == 4


def uneven(rank, options):
    """Rank 0 runs out of batches: the weights at the end, and how a difference among the others comes out."""
    torch.manual_seed(0)
    model = torch.nn.Linear(20, 20)
    wrapped, _ = hooked(model, options)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    torch.manual_seed(rank)
    with wrapped.join():
        for step in range(4 + 5 * rank):
            optimizer.zero_grad()
            wrapped(torch.randn(4, 20)).square().mean().backward()
            optimizer.step()
    return flat(model.parameters())


def uneven_and_broken(rank):
    model = torch.nn.Linear(20, 20)
    wrapped, _ = hooked(model, dict(STATIC, check_every=3))
    message = ""
    with contextlib.suppress(RuntimeError), wrapped.join():
        for step in range(4 + 5 * (rank > 0)):
            if rank == 2 and step == 5:
                model.weight.data[0, 0] = 7
            try:
                wrapped(torch.randn(4, 20)).square().mean().backward()
            except RuntimeError as error:
                message = f"step {step}: {error}"
                raise
    return message


def test_ranks_that_run_out_of_batches_are_not_compared():
    plain = run(3, uneven, None)
    for options in (dict(policy="dense", check_every=2), dict(STATIC, check_every=2)):
        found = run(3, uneven, options)
        assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
        assert options["policy"] != "dense" or torch.allclose(found[0], plain[0], atol=1e-6)
    _, *others = run(3, uneven_and_broken)
    for message in others:
        assert "step 6: " in message and "parameters differ: rank 2 has another 'weight' than rank 1" in message


class Words(torch.nn.Module):
    """Two layers with sparse gradients among dense ones."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Embedding(50, 8, sparse=True)
        self.second = torch.nn.Linear(8, 30)
        self.third = torch.nn.EmbeddingBag(20, 8, sparse=True, mode="sum")
        self.last = torch.nn.Linear(38, 4)

    def forward(self, words):
        return self.last(torch.cat([self.second(self.first(words)), self.third(words[:, None] % 20)], 1))


def sparse(rank, options, make):
    """The gradients of five steps: of sparse layers, and of dense ones."""
    torch.manual_seed(0)
    model = make()
    wrapped, state = hooked(model, options)
    torch.manual_seed(rank)
    layers = [layer for layer in model.modules() if getattr(layer, "sparse", False)]
    others = [p for p in model.parameters() if all(p is not layer.weight for layer in layers)]
    steps = []
    for _ in range(5):
        model.zero_grad()
        wrapped(torch.randint(0, 50, (6,))).square().sum().backward()
        assert all(layer.weight.grad.is_sparse for layer in layers)
        found = flat(layer.weight.grad.to_dense() for layer in layers)
        steps.append((found, flat(p.grad for p in others) if others else torch.zeros(1)))
    if state is not None and others:
        assert state.report()["step"] == 4 and "third.weight" not in str(state.state_dict().keys())
    return steps


def sparse_gradients(rank):
    only = lambda: torch.nn.Embedding(50, 8, sparse=True)
    for make in (Words, only):
        plain = sparse(rank, None, make)
        for options in (dict(policy="dense", check_every=2), dict(STATIC, check_every=2), dict()):
            for step, (ours, theirs) in enumerate(zip(sparse(rank, options, make), plain)):
                assert torch.allclose(ours[0], theirs[0], atol=1e-6), (options, step)
                assert options.get("policy") != "dense" or torch.allclose(ours[1], theirs[1], atol=1e-5), step


def test_sparse_gradients_are_summed_as_under_plain_ddp():
    run(2, sparse_gradients)


def sparse_and_lost(rank):
    """In dense step 3, and in a compressed one, ranks cannot agree: an error then, or after the dense one later."""
    messages = []
    for options in (dict(policy="dense"), STATIC):
        wrapped, state = hooked(Words(), options)
        with contextlib.suppress(RuntimeError):
            for step in range(5):
                if step == 3:
                    state.report()
                    state._peers.all_gather = lambda *_: ([1 - rank], False, 0.5, "the line was cut")
                try:
                    wrapped(torch.randint(0, 50, (6,))).sum().backward()
                except RuntimeError as error:
                    messages.append(str(error))
                    raise
    return messages


def test_errors_come_out_of_steps_with_sparse_gradients():
    for rank, messages in enumerate(run(2, sparse_and_lost)):
        assert len(messages) == 2
        for message in messages:
            assert f"rank {1 - rank} of 2 does not answer" in message and "(step 3, " in message, messages
