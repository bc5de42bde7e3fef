"""GraVAC after backward, for scripts without DistributedDataParallel; and as an optimizer."""

from __future__ import annotations

import collections.abc
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

import torch

from . import _engine
from ._engine import Error
from ._session import Option, Report, Session, described, expect_model

Parameters = Union[torch.nn.Module, Iterable[torch.Tensor]]


def _parameters_of(model: Parameters) -> List[torch.Tensor]:
    if isinstance(model, torch.nn.Module):
        return list(model.parameters())
    if not isinstance(model, collections.abc.Iterable):
        expect_model("Aggregator", model)
    parameters = list(model)
    for one in parameters:
        if not isinstance(one, torch.Tensor):
            raise Error(f"Aggregator: expected a model or its parameters, got {type(one).__name__} among them")
    return parameters


class Aggregator(Session):
    """Makes every gradient its mean over ranks, as far as it is sent.

        aggregator = gravac.Aggregator(model)
        ...
        loss.backward()
        aggregator.aggregate()
        optimizer.step()

    Gets rank 0's parameters and buffers to all ranks first, as DDP does. Keyword arguments and options
    are those of `GravacState`. Gradients become views of one run of floats; zero_grad() of this class, or
    of the optimizer with set_to_none=False, leaves them there and so saves a copy.
    """

    def __init__(
        self,
        model_or_parameters: Parameters,
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
        model = model_or_parameters if isinstance(model_or_parameters, torch.nn.Module) else None
        everything = _parameters_of(model_or_parameters)
        super().__init__(process_group=process_group, timeout=timeout, check_every=check_every, samples=samples,
                         optimizer=optimizer, scaler=scaler, log=log, log_every=log_every,
                         options=options)  # fmt: skip
        if self._peers.size == 1 and int(os.environ.get("WORLD_SIZE", "1")) > 1 and not self._peers.found:
            raise Error("aggregator: WORLD_SIZE is above 1; call torch.distributed.init_process_group first")
        self._parameters = [p for p in everything if p.requires_grad]
        if not self._parameters:
            raise Error("aggregator: no parameter requires a gradient")
        if any(hasattr(p, "placements") for p in everything):
            raise Error(
                "Aggregator: the parameters are DTensors (FSDP2 or tensor parallelism), whose gradients torch"
                " averages itself; use DistributedDataParallel with gravac_hook instead of fully_shard()"
            )
        with torch.no_grad():
            for tensor in everything + list(model.buffers() if model is not None else []):
                self._peers.broadcast(tensor.data)
        self._run = torch.zeros(sum(p.numel() for p in self._parameters))
        self._places: List[torch.Tensor] = []
        at = 0
        for p in self._parameters:
            # .data: not what autograd calls a view, since optimizers detach gradients in place.
            self._places.append(self._run[at : at + p.numel()].view(p.shape).data)
            at += p.numel()
        self._model = model
        self._start_anew()

    def _start_anew(self) -> None:
        layout = described(self._parameters, self._model)
        self._engine = self._wait_for(_engine.Engine, layout, None, self._options, self._peers, self._check_every)

    def aggregate(self, samples: Optional[float] = None) -> Report:
        """One step: to be called on all ranks, after backward. Returns what it was like."""
        self._begin_step()
        self._check_parameters(self._parameters, self._model, lambda: True)
        with torch.no_grad():
            for i, (p, place) in enumerate(zip(self._parameters, self._places)):
                self._collect(i, p, place)
        self._engine.ready(0, self._run.data_ptr(), self._run.numel())
        line = self._wait_for(self._engine.finish, self.samples if samples is None else samples)
        with torch.no_grad():
            for p, place in zip(self._parameters, self._places):
                self._hand_out(p, place)
        return self._end_step(line)

    def zero_grad(self) -> None:
        """Every gradient is 0, in its place."""
        self._run.zero_()
        for p, place in zip(self._parameters, self._places):
            self._hand_out(p, place)

    def _collect(self, number: int, p: torch.Tensor, place: torch.Tensor) -> None:
        if p.grad is None:
            place.zero_()  # no gradient in this step
        elif p.grad.layout != torch.strided:
            name = described(self._parameters, self._model)[number][0]
            raise Error(
                f"Aggregator: the gradient of '{name}' is sparse; make its layer with sparse=False, or use"
                " DistributedDataParallel with gravac_hook, which sums sparse gradients without compression"
            )
        elif p.grad.data_ptr() != place.data_ptr():
            place.copy_(p.grad)

    @staticmethod
    def _hand_out(p: torch.Tensor, place: torch.Tensor) -> None:
        if p.dtype == place.dtype and p.device == place.device:
            if p.grad is None or p.grad.data_ptr() != place.data_ptr():
                p.grad = place
        elif p.grad is None:
            p.grad = place.to(p.device, p.dtype)
        else:
            p.grad.copy_(place)


class Optimizer(torch.optim.Optimizer):
    """An optimizer that aggregates gradients before every step, as in the paper.

        optimizer = gravac.Optimizer(torch.optim.SGD(model.parameters(), 0.1), model)

    Everything else is the optimizer's own: parameter groups, schedulers, state. Not for GradScaler,
    which may skip step() on one rank alone: there, use Aggregator between backward() and scaler.step().
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, model_or_parameters: Optional[Parameters] = None, **options: Any
    ) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise Error(f"Optimizer: the first argument must be the optimizer, got {type(optimizer).__name__}")
        if options.get("scaler") is not None:
            raise Error("optimizer: scaler= is not supported; with a GradScaler use Aggregator, before scaler.step()")
        if model_or_parameters is None:
            model_or_parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.optimizer = optimizer
        options.setdefault("optimizer", optimizer)
        self.aggregator = Aggregator(model_or_parameters, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Aggregates, then lets the optimizer step."""
        if closure is not None:
            raise Error("optimizer: closures are not supported; gradients would be computed again after aggregation")
        self.aggregator.aggregate()
        return self.optimizer.step()

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Every gradient is 0, in its place, whatever set_to_none says."""
        self.aggregator.zero_grad()

    def learning_rate_dropped(self) -> None:
        """The schedule has lowered the learning rate; see Aggregator."""
        self.aggregator.learning_rate_dropped()

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        raise Error("optimizer: parameters are fixed; make a new Optimizer")

    def close(self) -> None:
        """Gives back threads, connections and memory. The optimizer inside can still be used."""
        self.aggregator.close()

    def state_dict(self) -> Dict[str, Any]:
        """The optimizer's state and GraVAC's, of this rank."""
        return {"optimizer": self.optimizer.state_dict(), "gravac": self.aggregator.state_dict()}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Goes on from state_dict(), to the bit."""
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.aggregator.load_state_dict(state_dict["gravac"])

    def __repr__(self) -> str:
        return f"gravac.Optimizer({self.optimizer!r})"
