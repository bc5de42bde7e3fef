"""What both ways to use GraVAC share: options, the optimizer's momentum, the loss scale, reports, state."""

from __future__ import annotations

import atexit
import concurrent.futures
import gc
import json
import numbers
import os
import sys
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from . import _engine
from ._engine import Error
from ._folder_log import FolderLog
from ._hand_over import attach, is_sgd, kind_of, unknown_kind, unwrapped
from ._peers import Peers, named

Option = Union[str, int, float, bool]
Report = Dict[str, Any]
State = Dict[str, Any]

_STATE_VERSION = 2
_OPTION, _NOT_SET = "fact/option ", "not set"  # of an option in a state
_STEPS = "round/steps"  # in every state from after the first step
_THREAD = "gravac-wait"  # name of the thread that waits for the engine
_OURS = ("gravac", "loss scale", "buckets")  # what in a state is not the engine's
_STORED_AS = {torch.float16: "fp16", torch.bfloat16: "bf16"}  # as the engine calls them; others are "fp32"
_LOGGED = ("factor", "gain_error_fed_candidate", "gain_gradient_candidate", "factor_bytes", "bytes_sent",
           "effective_steps", "compress_seconds", "exchange_seconds")  # fmt: skip
_last_report: Optional[Report] = None
_last_session: Optional[weakref.ReferenceType[Session]] = None  # which that is of, or will be
_open_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def report() -> Report:
    """What the last step of this process was like: the keys of steps.jsonl (docs/training.md)."""
    session = _last_session() if _last_session is not None else None
    if session is not None and session._unusable() is None:
        session._join()
    if _last_report is None:
        raise Error("report: no step has been taken yet")
    return _last_report


def _expect(name: str, value: Any, what: str, *types: type) -> None:
    if value is not None and not isinstance(value, types):
        raise Error(f"{name} must be {what}, got {type(value).__name__}")


def expect_model(owner: str, model: Any) -> None:
    """The first argument of both: people write GravacState(optimizer), too."""
    if isinstance(model, torch.optim.Optimizer):
        raise Error(f"{owner}: the first argument must be the model; write optimizer= before the optimizer")
    _expect(f"{owner}: model", model, "a torch.nn.Module", torch.nn.Module)


def text_of(value: Option) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def momentum_of(optimizer: torch.optim.Optimizer) -> float:
    """The momentum of an SGD under which the momentum memory works; Error for any other optimizer."""
    if type(optimizer) is not torch.optim.SGD:
        raise Error(f"memory momentum: optimizer must be torch.optim.SGD, got {type(optimizer).__name__}")
    for group in optimizer.param_groups:
        if group["nesterov"]:
            raise Error("memory momentum: expected plain momentum, got Nesterov's")
        if group["dampening"] != 0:
            raise Error(f"memory momentum: dampening must be 0, got {group['dampening']}")
    found = sorted({float(group["momentum"]) for group in optimizer.param_groups})
    if len(found) != 1:
        raise Error(f"memory momentum: momentum must be the same for all parameters, got {found}")
    return found[0]


class Session:
    """Common parts of `GravacState` and `Aggregator`."""

    def __init__(
        self,
        *,
        process_group: Optional[Any],
        timeout: Optional[float],
        check_every: int,
        samples: float,
        optimizer: Optional[torch.optim.Optimizer],
        scaler: Optional[Any],
        log: Optional[Any],
        log_every: int,
        options: Mapping[str, Option],
    ) -> None:
        optimizer = unwrapped(optimizer)
        _expect("optimizer", optimizer, "a torch.optim.Optimizer", torch.optim.Optimizer)
        if process_group is not None:
            _expect("process_group", process_group, "a process group", torch.distributed.ProcessGroup)
        _expect("timeout", timeout, "a number of seconds", numbers.Real)
        _expect("samples", samples, "a number", numbers.Real)
        _expect("check_every", check_every, "a number of steps", numbers.Integral)
        _expect("log_every", log_every, "a number of steps", numbers.Integral)
        if scaler is not None and not hasattr(scaler, "get_scale"):
            raise Error(f"scaler must be a GradScaler, got {type(scaler).__name__}")
        if check_every < 0:
            raise Error(f"check_every must be >= 0, got {check_every}")
        if log_every < 1:
            raise Error(f"log_every must be >= 1, got {log_every}")
        self.samples = samples
        self._parameters: List[torch.Tensor] = []  # in the order of the engine's layout
        self._check_every = check_every
        self._optimizer = optimizer
        self._scaler = scaler
        self._scale: Optional[float] = None
        self._log: Any = FolderLog(log) if isinstance(log, (str, os.PathLike)) else log
        self._loss: Optional[float] = None  # for the log, of the step that is under way
        self._log_every = log_every
        self._log_broken = False
        self._steps = 0
        self._report: Optional[Report] = None
        self._options = {
            name.replace("_", "-"): text_of(value) for name, value in options.items() if value is not None
        }
        self._momentum: Optional[float] = None  # of the optimizer when this was made, under memory momentum
        self._follows_momentum = False  # the memory has the optimizer's momentum, and not one of its own
        self._take_over_momentum()
        self._peers = Peers(process_group, timeout)
        unsure = [unknown_kind(optimizer)] if optimizer is not None and kind_of(optimizer) is None else []
        for warning in unsure + _engine.check_options(self._options, self._peers.size):
            if self._peers.rank == 0:
                warnings.warn(f"gravac: {warning}", stacklevel=4)
        # The engine waits on a thread of its own, so that Ctrl-C reaches this one.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, _THREAD)
        self._ending: Optional[concurrent.futures.Future] = None  # of a step whose means were handed out already
        self._failed: Optional[BaseException] = None  # how such a step ended
        self._failure_raised = False  # the caller knows that
        self._ender: Optional[int] = None  # the thread that ends it
        self._engine: Any = None
        self._to_load: Optional[State] = None
        self._closed = False
        self._process = os.getpid()  # whose threads and connections these are
        _open_sessions.add(self)
        self._rate_dropped = False  # learning_rate_dropped() was called before there was an engine
        if optimizer is not None and self._hands_over():
            attach(optimizer, self)

    def close(self) -> None:
        """Gives back threads, connections and memory. After that only report() may be used.

        To be called between two steps; ranks may do it at different times. Raises what went wrong in the last step, if
        nothing has raised that yet. Dropping the object does the same, and so does the end of the process; they write
        that error to stderr, and the process ends with exit code 1 instead of 0.
        """
        try:
            if self._unusable() is None:
                self._join()
        finally:
            self._release()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self._release()

    def _release(self) -> None:
        """Never raises, and never waits for other ranks."""
        if not hasattr(self, "_process") or self._closed:
            return  # the constructor has failed, or there is nothing left to do
        self._closed = True
        _open_sessions.discard(self)
        self._tell_failure()
        if os.getpid() != self._process:
            # The threads did not come along in the fork, and the parent still uses the connections.
            _engine.keep_for_good(self)
            return
        busy = self._peers.busy()
        self._peers.cancel()
        self._thread.shutdown(wait=not busy and not threading.current_thread().name.startswith(_THREAD))
        if busy:
            # After Ctrl-C or an error: torch may still write into the gradients and into the engine's memory.
            _engine.keep_for_good(self)
            return
        self._engine = None
        self._peers.close()
        if isinstance(self._log, FolderLog):
            self._log.close()

    def _tell_failure(self) -> None:
        """The last step's means were handed out before ranks agreed on it, and if they did not, nothing has said so."""
        interrupted = self._peers.cancelled or os.getpid() != self._process
        if self._failed is None or self._failure_raised or interrupted:
            return
        self._failure_raised = True
        try:
            print(f"gravac: rank {self._peers.rank}: the last step failed: {self._failed}", file=sys.stderr, flush=True)
        except (OSError, ValueError, AttributeError):  # there may be no stderr any more
            pass
        _engine.fail_at_exit()

    def _unusable(self) -> Optional[str]:
        """Why this cannot be used any more, if so."""
        if self._closed:
            return "it was closed; make a new one"
        if os.getpid() != self._process:
            return f"it belongs to process {self._process}; a forked process has to make its own"
        return None

    def _check_usable(self) -> None:
        reason = self._unusable()
        if reason is not None:
            raise Error(f"{type(self).__name__}: {reason}")

    def _take_over_momentum(self) -> None:
        if "weight-decay" in self._options:
            raise Error("options: weight-decay stays with the optimizer; leave it out")
        if "optimizer-momentum" in self._options:
            raise Error("options: optimizer-momentum is taken from optimizer=")
        if kind_of(self._optimizer) is not None:
            self._options["optimizer"] = kind_of(self._optimizer)
        if "effective-momentum" in self._options and not is_sgd(self._optimizer):
            raise Error("options: effective_momentum needs optimizer=, the torch.optim.SGD that is to use it")
        if self._options.get("memory") != "momentum":
            return
        if self._optimizer is None:
            raise Error("memory momentum: optimizer= is missing, the SGD whose momentum it takes over")
        self._momentum = momentum_of(self._optimizer)
        self._options["optimizer-momentum"] = repr(self._momentum)
        self._follows_momentum = "momentum" not in self._options and self._momentum > 0
        if self._follows_momentum:
            self._options["momentum"] = repr(self._momentum)

    def _hands_over(self) -> bool:
        """Whether the optimizer is to use less of its momentum in compressed steps."""
        as_is = self._options.get("hand-over") == "as-is" or self._options.get("memory") == "momentum"
        return is_sgd(self._optimizer) and not as_is

    def _hand_over(self, momentum: float) -> Tuple[float, float]:
        """The momentum that an SGD with this momentum should use after the last step, and its scale."""
        if self._engine is None or self._ending is not None:
            return momentum, 1.0  # a step that is still being ended was dense
        return self._engine.hand_over(momentum)

    def _begin_step(self) -> None:
        """Follows the optimizer and the loss scale."""
        self._check_usable()
        self._follow_momentum()
        self._follow_scale()
        self._follow_rates()

    def _follow_momentum(self) -> None:
        """Schedules may change it: OneCycleLR does. An engine that is made takes that of the options first."""
        if self._momentum is None or self._optimizer is None:
            return
        now = momentum_of(self._optimizer)
        if (now > 0) != (self._momentum > 0):
            raise Error(
                f"memory momentum: the optimizer's momentum has changed from {self._momentum} to {now}; it may change,"
                " but not from 0 or to 0"
            )
        if self._engine is not None:
            self._engine.momentum(now if self._follows_momentum else self._own_momentum(), now)

    def _own_momentum(self) -> float:
        return float(self._resolved()["momentum"])

    def _follow_rates(self) -> None:
        """Tells the engine each parameter's learning rate; 0 for those that the optimizer does not have."""
        if self._engine is None or not is_sgd(self._optimizer):
            return
        groups = self._optimizer.param_groups
        rates = {id(p): float(group["lr"]) for group in groups for p in group["params"]}
        self._engine.learning_rates([rates.get(id(p), 0.0) for p in self._parameters])

    def _follow_scale(self) -> None:
        """Scales what is kept back as the scaler scales the loss now."""
        if self._scaler is None:
            return
        scale = float(self._scaler.get_scale())
        if self._scale is not None and scale != self._scale and self._engine is not None:
            self._engine.rescale(scale / self._scale)
        self._scale = scale

    def _wait_for(self, work: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return self._thread.submit(work, *arguments).result()
        except KeyboardInterrupt:
            self._peers.cancel()
            raise

    def _end_later(self, work: Callable[..., None], *arguments: Any) -> None:
        """Ends a step whose means are final on the thread, while the caller goes on. _join() waits for that."""
        global _last_session

        def end() -> None:
            self._ender = threading.get_ident()
            work(*arguments)

        _last_session = weakref.ref(self)
        self._ending = self._thread.submit(end)

    def _join(self) -> None:
        """Waits for the end of the last step, if its means were handed out before: it must come before anything else
        that is asked of the engine. Raises what went wrong."""
        self._check_usable()
        if self._ending is None or self._ender == threading.get_ident():
            return
        try:
            self._ending.result()
        except KeyboardInterrupt:
            self._peers.cancel()
            raise
        self._ending = self._ender = None
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failed is not None:
            self._failure_raised = True
            raise self._failed

    def _check_parameters(
        self, parameters: Sequence[torch.Tensor], model: Optional[torch.nn.Module], stepping: Callable[[], bool]
    ) -> None:
        """Every so many steps: Error, on all ranks, if parameters are not equal to the bit on all ranks that step."""
        if self._check_every == 0 or self._steps == 0 or self._steps % self._check_every != 0:
            return
        arrays = [p.detach().cpu().contiguous() for p in parameters]  # no copy of what is there already
        places = [(array.data_ptr(), array.numel() * array.element_size()) for array in arrays]
        ranks = self._wait_for(self._engine.compare, places, stepping())
        if ranks:
            raise Error(_difference(ranks, _names(parameters, model), self._check_every))

    def _end_step(self, line: str) -> Report:
        global _last_report, _last_session
        self._report = _last_report = json.loads(line)
        _last_session = weakref.ref(self)
        self._steps += 1
        if isinstance(self._log, FolderLog):
            loss, self._loss = self._loss, None
            self._write_folder(lambda log: log.step(line, self._report, loss, self._logged_config()))
        elif self._log is not None and self._steps % self._log_every == 0:
            self._write_log(self._report)
        return self._report

    def _write_log(self, found: Report) -> None:
        try:
            if hasattr(self._log, "add_scalar"):
                for name in _LOGGED:
                    self._log.add_scalar("gravac/" + name, found[name], found["step"])
            else:
                self._log(found)
        except Exception as error:  # a broken log must not stop training
            self._tell_broken(error)

    def _write_folder(self, write: Callable[[FolderLog], None]) -> None:
        """On rank 0, until writing fails: a line after half a line could not be read."""
        if self._peers.rank != 0 or self._log_broken:
            return
        try:
            write(self._log)
        except Exception as error:
            self._tell_broken(error)

    def _tell_broken(self, error: Exception) -> None:
        if not self._log_broken:
            print(f"gravac: the log is broken, training goes on: {error}", file=sys.stderr)
        self._log_broken = True

    def _logged_config(self) -> Dict[str, Any]:
        """What the report says of this run."""
        defaults = {"policy": "progress", "compressor": "auto"}
        return {"written-by": "python", "workers": self._peers.size, **defaults, **self._options}

    def log_loss(self, loss: Union[float, torch.Tensor]) -> None:
        """The loss of the step under way, for `log="FOLDER"`; to be called before backward().

        Rank 0's loss is written, and other ranks may call it, too. Does nothing with another kind of log.
        """
        self._join()
        if isinstance(self._log, FolderLog) and self._peers.rank == 0:
            self._loss = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)

    def log_evaluation(self, **values: float) -> None:
        """Results on test data, for `log="FOLDER"`: top1 and top5 as shares of 1, ppl or loss.

        To be called between two steps, at the end of the evaluation. The time since the last step does not
        count as training. Written on rank 0; does nothing before the first step and with another kind of log.
        """
        unknown = sorted(set(values) - {"top1", "top5", "ppl", "loss"})
        if unknown or not values:
            raise Error(f"log_evaluation: expected top1, top5, ppl or loss, got {', '.join(unknown) or 'nothing'}")
        self._join()
        if not isinstance(self._log, FolderLog) or self._report is None:
            return
        done = self._report["step"] + 1
        plain = {name: float(value) for name, value in values.items()}
        self._write_folder(lambda log: log.evaluation(done, plain))

    def report(self) -> Report:
        """What the last step was like."""
        if self._unusable() is None:
            self._join()
        if self._report is None:
            raise Error("report: no step has been taken yet")
        return self._report

    def pause(self) -> None:
        """The time since the last step was a pause, not computing. To be called when the pause is over.

        GraVAC recognises long pauses by itself; this is for scripts that know of short ones.
        """
        self._join()
        if self._engine is not None:
            self._engine.pause()
        if isinstance(self._log, FolderLog):
            self._log.pause()

    def learning_rate_dropped(self) -> None:
        """The schedule has lowered the learning rate; to be called on all ranks, between two steps.

        Policy "accordion" then compresses all layers by factor_min until it next compares norms. Other policies
        do nothing.
        """
        self._join()
        if self._engine is not None:
            self._engine.learning_rate_dropped()
        else:
            self._rate_dropped = True

    def state_dict(self) -> State:
        """All state of this rank, between steps: tensors, numbers and text. Save one per rank."""
        self._join()
        if self._engine is None and self._to_load is not None:
            return dict(self._to_load)
        scale = torch.tensor(self._scale or 1.0, dtype=torch.float64)  # torch 1.13 reads no plain floats safely
        state: State = {"gravac": _STATE_VERSION, "loss scale": scale}
        if self._engine is None:  # before the first step there are only options
            return {**state, **{_OPTION + name: value for name, value in self._resolved().items()}}
        for name, value in self._engine.save().items():
            if isinstance(value, bytearray):
                value = torch.frombuffer(value, dtype=torch.float32) if len(value) else torch.empty(0)
            elif isinstance(value, list):
                value = torch.tensor(value, dtype=torch.float64)
            state[name] = value
        return state

    def load_state_dict(self, state: Union[State, Sequence[State]]) -> None:
        """Goes on from what state_dict() gave on this rank, to the bit.

        Takes the states of all ranks, too, as a list by rank, if there is now another number of them:
        what waits is dealt out so that its sum over ranks is preserved. Error for the state of another
        rank, number of ranks, model or configuration. A state from before the first step starts anew.
        """
        self._join()
        self._peers.meet()
        states = list(state) if isinstance(state, (list, tuple)) else [state]
        for one in states:
            if not isinstance(one, Mapping):
                raise Error(f"state must be what state_dict() returned, got {type(one).__name__}")
            if one.get("gravac") != _STATE_VERSION:
                raise Error(f"state: expected version {_STATE_VERSION}, got {one.get('gravac')}")
            self._check_options(one)
        if not all(_STEPS in one for one in states):
            self._to_load, self._steps = None, 0
            self._start_anew()
            return
        whole = dict(states[0])
        if len(states) == self._peers.size and len(states) > 1:
            whole = dict(states[self._peers.rank])
        elif not isinstance(state, Mapping):
            dealt = _engine.reshard([_plain(one) for one in states], self._peers.rank, self._peers.size)
            whole = {**{name: whole[name] for name in _OURS if name in whole}, **dealt}
        for fact, here in (("rank", self._peers.rank), ("ranks", self._peers.size)):
            there = whole.get(f"fact/{fact}")
            if there != str(here):
                raise Error(f"checkpoint: {fact} is {there} there and {here} here")
        whole.update((_OPTION + name, value) for name, value in self._resolved().items())
        self._to_load = whole
        if self._engine is not None:
            self._load_now()

    def _start_anew(self) -> None:
        """Forgets all steps."""
        raise NotImplementedError

    def _resolved(self) -> Dict[str, str]:
        """The options of the engine, by name, with defaults filled in."""
        return _engine.resolved_options(self._options)

    def _check_options(self, state: State) -> None:
        """Error if the state was saved with other options; what it does not name had its default."""
        saved = {name[len(_OPTION) :]: value for name, value in state.items() if name.startswith(_OPTION)}
        given = {name: value for name, value in saved.items() if value != _NOT_SET}
        theirs, ours = _engine.resolved_options(given), self._resolved()
        if self._momentum and theirs["memory"] == "momentum" and float(theirs["optimizer-momentum"]) > 0:
            # A schedule may have changed the optimizer's momentum, and that of a memory which follows it.
            if self._follows_momentum and theirs["momentum"] == theirs["optimizer-momentum"]:
                theirs["momentum"] = ours["momentum"]
            theirs["optimizer-momentum"] = ours["optimizer-momentum"]
        for name, value in ours.items():
            # The start may have been meant for a run of another length. Early versions did not save the optimizer.
            if theirs[name] != value and name != "start-steps" and (name != "optimizer" or name in saved):
                raise Error(f"state: it was saved with {name} {theirs[name]}, and {name} is {value} here")

    def _load_now(self) -> None:
        """Loads what load_state_dict() was given into the engine. A state that is refused is forgotten."""
        if self._to_load is None:
            return
        state, self._to_load = self._to_load, None
        self._engine.load(_plain(state))
        self._scale = float(state["loss scale"]) if self._scaler is not None else None

    def _tell_drop(self) -> None:
        """Tells a new engine, and what was loaded into it, of a learning rate that dropped before."""
        if self._rate_dropped:
            self._engine.learning_rate_dropped()
        self._rate_dropped = False


def _plain(state: State) -> State:
    """As the engine wants it: lists, bytes and text."""
    plain = {}
    for name, value in state.items():
        if name in _OURS:
            continue
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().contiguous()
            value = value.tolist() if value.dtype == torch.float64 else _bytes_of(value)
        plain[name] = value
    return plain


def _bytes_of(tensor: torch.Tensor) -> bytearray:
    if tensor.dtype != torch.float32:
        raise Error(f"state: expected a tensor of float32 or float64, got {tensor.dtype}")
    memory = bytearray(4 * tensor.numel())
    if memory:
        torch.frombuffer(memory, dtype=torch.float32).copy_(tensor.view(-1))
    return memory


class Stage:
    """A run of gradients as floats in main memory: in place where they are that already, else a copy."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        in_place = tensor.dtype == torch.float32 and tensor.device.type == "cpu" and tensor.is_contiguous()
        self.floats = tensor if in_place else tensor.detach().to("cpu", torch.float32).contiguous()

    def address(self) -> Tuple[int, int]:
        return self.floats.data_ptr(), self.floats.numel()

    def bring_back(self) -> None:
        if self.floats is not self.tensor:
            self.tensor.copy_(self.floats.view_as(self.tensor))


def _names(parameters: Sequence[torch.Tensor], model: Optional[torch.nn.Module]) -> List[str]:
    """For messages: the parameters' names in the model, or in whatever DDP has them if there is none."""
    models = [model] if model is not None else []
    if model is None:
        wrapper = torch.nn.parallel.DistributedDataParallel
        models = [found.module for found in gc.get_objects() if issubclass(type(found), wrapper)]
    names = {id(p): repr(name) for one in models for name, p in one.named_parameters()}
    return [names.get(id(p), f"parameter {i} of shape {tuple(p.shape)}") for i, p in enumerate(parameters)]


def _difference(ranks: List[List[int]], names: List[str], check_every: int) -> str:
    """What to say if the hashes of parameters, by rank, are not all equal."""
    compared = [rank for rank, hashes in enumerate(ranks) if hashes]
    columns = zip(*(ranks[rank] for rank in compared))
    number, here = next((i, hashes) for i, hashes in enumerate(columns) if len(set(hashes)) > 1)
    usual = max(here, key=here.count)  # of equally frequent ones the first
    others = [rank for rank, found in zip(compared, here) if found != usual]
    return (
        f"parameters differ: {named(others)} {'has' if len(others) == 1 else 'have'} another {names[number]} than"
        f" rank {compared[here.index(usual)]} (compared every {check_every} steps; check_every=0 turns this off)"
    )


def described(
    parameters: Sequence[torch.Tensor], model: Optional[torch.nn.Module]
) -> List[Tuple[str, int, int, str]]:
    """Name, size, rows and type of each parameter, for the engine; named by place if there is no model to ask.

    A parameter with two or more dimensions is a matrix of shape[0] rows to compressors that want matrices.
    """
    names = {id(p): name for name, p in model.named_parameters()} if model is not None else {}
    return [
        (
            names.get(id(p), f"{i}: {tuple(p.shape)}"),
            p.numel(),
            p.shape[0] if p.dim() >= 2 else 1,
            _STORED_AS.get(p.dtype, "fp32"),
        )
        for i, p in enumerate(parameters)
    ]


@atexit.register
def _release_all() -> None:
    """Before Python takes its modules apart, while threads can still end."""
    for session in list(_open_sessions):
        session._release()
