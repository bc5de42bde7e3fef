"""GraVAC as a communication hook of DistributedDataParallel: buckets leave while backward still runs."""

from typing import Any, List, Optional, Tuple

import torch
import torch.distributed as dist

from . import _engine
from ._engine import Error
from ._session import Option, Session, Stage, State, described, expect_model

# DDP may cut its buckets anew once, between the first step and the second.
_STEPS_TO_SETTLE = 2


def _in_backward() -> bool:
    """Not so on a rank that has run out of batches, for which DDP's join() calls the hook with zeros."""
    try:
        torch.autograd.Variable._execution_engine.queue_callback(lambda: None)  # which is refused elsewhere
    except RuntimeError:
        return False
    return True


# A bucket of this step: its parameters, their gradients, and what DDP waits for.
Arrived = Tuple[List[torch.Tensor], Stage, torch.futures.Future]


class GravacState(Session):
    """What the hook keeps between steps: `ddp.register_comm_hook(GravacState(...), gravac_hook)`.

    Options are those of the C++ library by the same names, with `_` for `-`: policy ("progress"),
    compressor ("topk"), factor, exchange, memory and others; docs/python.md has the table.

    model: names the parameters, in state_dict() and in messages, and fixes their order.
    process_group: whose ranks take part; default: all ranks. A Gloo group of its own is made with them.
    timeout: seconds after which a rank that does not answer is an error; default: as in the process group.
    check_every: steps between comparisons of all parameters across ranks; a difference is an error. 0: never.
    samples: samples of this rank in a step; for reports, and for policy "gravac", which goes by throughput.
    optimizer: the optimizer in use. A torch.optim.SGD uses less of its momentum in compressed steps, unless
        hand_over="as-is"; `memory="momentum"` takes its momentum over. Other optimizers are not changed.
    scaler: the GradScaler in use; unsent gradients are rescaled when its scale changes.
    log: a SummaryWriter, or a function that takes a report; called every `log_every` steps. Or the path of a
        folder, into which rank 0 writes every step, for `gravac report`.
    """

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        *,
        process_group: Optional[Any] = None,
        timeout: Optional[float] = None,
        check_every: int = 1000,
        samples: float = 1,
        optimizer: Optional[torch.optim.Optimizer] = None,
        scaler: Optional[Any] = None,
        log: Optional[Any] = None,
        log_every: int = 10,
        **options: Option,
    ) -> None:
        expect_model("GravacState", model)
        super().__init__(process_group=process_group, timeout=timeout, check_every=check_every, samples=samples,
                         optimizer=optimizer, scaler=scaler, log=log, log_every=log_every,
                         options=options)  # fmt: skip
        self._model = model
        self._number: dict = {}  # of each parameter, by identity; fixed by the first step
        self._sparse: dict = {}  # parameters with sparse gradients, by identity
        self._shape: List[List[int]] = []  # the parameters of each bucket, as the engine has them
        self._arrived: List[Arrived] = []
        self._regrouped: List[List[torch.Tensor]] = []  # gradients in buckets of a copy, if one was needed
        self._early = False  # buckets of this step go to the engine as they come

    def _take(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if not isinstance(bucket, dist.GradBucket):
            raise Error(
                'hook: torch._dynamo.config.optimize_ddp is "python_reducer", under which DDP gives hooks single'
                ' gradients; leave it at its default, "ddp_optimizer"'
            )
        if bucket.index() == 0:
            self._arrived = []
            self._join()
            self._peers.meet()  # some frameworks make the state before torch.distributed is ready
            self._begin_step()
            everything = [*self._parameters, *self._sparse.values()]
            self._check_parameters(everything, self._model, _in_backward)
        is_dense = bucket.buffer().layout == torch.strided
        future = self._take_dense(bucket) if is_dense else self._sum_sparse(bucket)
        if bucket.is_last() and self._arrived:
            self._finish()
            # How a step has ended is known as soon as its last dense bucket is there.
            last = self._arrived[-1][2]
            ended = last if is_dense else torch.futures.collect_all([last, future])
            return ended.then(lambda _: self._good(future))
        return future

    def _sum_sparse(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Sparse gradients, as of nn.Embedding(sparse=True), do without the engine: as under torch's own hook."""
        self._sparse.update((id(p), p) for p in bucket.parameters())
        share = bucket.buffer().div_(self._peers.size)
        work = dist.all_reduce(share, group=self._peers.given, async_op=True)
        return work.get_future().then(lambda ended: ended.value()[0])

    def _take_dense(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        parameters, index = bucket.parameters(), len(self._arrived)
        if index == 0:
            self._early = self._steps >= _STEPS_TO_SETTLE and self._fits(0, parameters)
        stage = Stage(bucket.buffer())
        # A future that knows its GPU makes whoever takes its value wait for the copy back, which is asynchronous.
        device = stage.tensor.device
        future: torch.futures.Future = torch.futures.Future(devices=[device] if device.type == "cuda" else None)
        self._arrived.append((parameters, stage, future))
        if self._early:
            if not self._fits(index, parameters):
                raise Error(f"hook: the parameters of bucket {index} changed in the middle of a step")
            self._engine.ready(index, *stage.address())
        return future

    def _fits(self, index: int, parameters: List[torch.Tensor]) -> bool:
        expected = self._shape[index] if index < len(self._shape) else None
        return [self._number.get(id(p)) for p in parameters] == expected

    def _finish(self) -> None:
        """All buckets are there: nothing of backward is left to hide behind."""
        runs: List[torch.Tensor] = [] if self._early else self._runs()
        for index, run in enumerate(runs):
            self._engine.ready(index, run.data_ptr(), run.numel())
        if self._early and self._engine.means_are_final():
            # A rank that hangs between two steps is waited for here, where Ctrl-C works.
            self._wait_for(self._engine.wait, 0)
            self._end_later(self._end_sums, self._arrived, self.samples)
            return
        if self._early and self._momentum is None and len(self._arrived) > 1:
            # DDP may take the others while the last is still under way: all they wait for is done.
            self._wait_for(self._engine.wait, len(self._arrived) - 2)
            self._hand_out(self._arrived[:-1])
            self._thread.submit(self._end, self._arrived[-1])
            return
        self._end_step(self._wait_for(self._engine.finish, self.samples))
        for group, run in zip(self._regrouped, runs):
            for piece, mean in zip(group, run.split([piece.numel() for piece in group])):
                piece.copy_(mean)
        self._hand_out(self._arrived)

    def _end(self, bucket: Arrived) -> None:
        """Ends the step without anybody waiting for it but DDP, for this bucket."""
        _, stage, future = bucket
        try:
            self._end_step(self._engine.finish(self.samples))
            stage.bring_back()
        except BaseException as error:
            self._failed = error
        future.set_result(stage.tensor)

    def _end_sums(self, buckets: List[Arrived], samples: float) -> None:
        """Hands out each bucket's mean as soon as it is there, while DDP copies those before it to the parameters.

        Ranks agree on the step afterwards, when the optimizer and the next forward are under way: _join().
        """
        try:
            for index, bucket in enumerate(buckets):
                self._engine.wait(index)
                self._hand_out([bucket])
            self._end_step(self._engine.finish(samples))
        except BaseException as error:
            self._failed = error
            for _, stage, future in buckets:
                if not future.done():
                    future.set_result(stage.tensor)

    def _hand_out(self, buckets: List[Arrived]) -> None:
        for _, stage, future in buckets:
            stage.bring_back()
            future.set_result(stage.tensor)

    def _good(self, future: torch.futures.Future) -> torch.Tensor:
        """What DDP gets in the end: the last bucket, or how the step failed."""
        self._raise_failure()
        return future.value()

    def _shape_here(self) -> List[List[int]]:
        """The parameters in DDP's buckets, by number."""
        if not self._number:
            self._know([p for parameters, _, _ in self._arrived for p in parameters])
        for parameters, _, _ in self._arrived:
            if any(id(p) not in self._number for p in parameters):
                raise Error("hook: parameters have changed since the first step; make a new GravacState")
        return [[self._number[id(p)] for p in parameters] for parameters, _, _ in self._arrived]

    def _build(self, here: List[List[int]]) -> None:
        """Makes an engine for the buckets as they are now; what waits follows the parameters.

        A state that was loaded brings the buckets of the run it comes from, which this DDP will have, too,
        from its second step on: so they are used in the first as well, and the run goes on to the bit.
        """
        first = self._engine is None
        shape = self._to_load.get("buckets", here) if first and self._to_load else here
        if first:
            layout = described(self._parameters, self._model)
            self._engine = self._wait_for(_engine.Engine, layout, shape, self._options, self._peers, self._check_every)
        elif shape != self._shape:
            self._wait_for(self._engine.cut_anew, shape)
        self._shape = shape
        self._load_now()
        self._tell_drop()
        self._follow_scale()  # this step's gradients have the scale of now, the state that of when it was saved
        self._follow_rates()
        self._follow_momentum()

    def _start_anew(self) -> None:
        self._engine, self._shape = None, []

    def _runs(self) -> List[torch.Tensor]:
        """What arrived, in the engine's buckets: DDP's own, or else a copy."""
        here = self._shape_here()
        self._build(here)
        self._regrouped = []
        if here == self._shape:
            return [stage.floats for _, stage, _ in self._arrived]
        pieces = {}
        for parameters, stage, _ in self._arrived:
            for p, piece in zip(parameters, stage.floats.split([p.numel() for p in parameters])):
                pieces[self._number[id(p)]] = piece
        self._regrouped = [[pieces[number] for number in bucket] for bucket in self._shape]
        return [torch.cat(group) for group in self._regrouped]

    def state_dict(self) -> State:
        """All state of this rank, between steps: tensors, numbers and text. Save one per rank."""
        state = super().state_dict()
        state.setdefault("buckets", [list(bucket) for bucket in self._shape])
        return state

    def _know(self, seen: List[torch.Tensor]) -> None:
        if self._model is not None:
            place = {id(p): i for i, p in enumerate(self._model.parameters())}
            strangers = [p for p in seen if id(p) not in place]
            if strangers:
                raise Error("hook: a parameter does not belong to the model given")
            seen = sorted(seen, key=lambda p: place[id(p)])
        self._parameters = seen
        self._number = {id(p): i for i, p in enumerate(seen)}


# DDP looks at these annotations themselves: no `from __future__ import annotations` in this file.
def gravac_hook(state: GravacState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook for `register_comm_hook`: a bucket becomes the mean over ranks of what was sent."""
    if not isinstance(state, GravacState):
        raise Error(f"gravac_hook: register_comm_hook needs a GravacState, got {type(state).__name__}")
    return state._take(bucket)
