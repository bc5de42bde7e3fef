"""What an SGD does with its momentum in compressed steps. The engine says how much of it to use."""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

# In a step that was sent compressed, an SGD with momentum m should compute
#     buffer = m_eff * buffer + scale * (gradient + weight_decay * weights)
# with the m_eff and the scale of the engine (gravac/memory/hand_over.h). torch.optim.SGD computes
#     buffer = momentum * buffer + (1 - dampening) * (gradient + weight_decay * weights)
# so for the time of step() its groups have another momentum and another dampening, which costs no pass over the
# gradients. Nesterov's update also adds the gradient itself, which torch does not dampen; there step() sees scaled
# copies of the gradients and a scaled weight decay.

_SESSION = "_gravac_session"  # of an optimizer: a weak reference to who aggregates its gradients
_ADAMS = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")  # of torch.optim, and their subclasses
_NO_MOMENTUM = 1e-300  # 0 as a float; with a momentum of exactly 0 torch does not touch its buffers


def is_sgd(optimizer: Optional[torch.optim.Optimizer]) -> bool:
    """Subclasses may compute something else, so they are not changed."""
    return type(optimizer) is torch.optim.SGD


def kind_of(optimizer: Optional[torch.optim.Optimizer]) -> Optional[str]:
    """As the engine calls it: "sgd" or "adam"; None for any other."""
    if is_sgd(optimizer):
        return "sgd"
    return "adam" if isinstance(optimizer, tuple(getattr(torch.optim, name) for name in _ADAMS)) else None


def unwrapped(optimizer: Any) -> Any:
    """The optimizer inside of wrappers, which is who steps: Accelerate's, Lightning's."""
    while kind_of(optimizer) is None:
        held = (getattr(optimizer, name, None) for name in ("optimizer", "_optimizer"))
        inner = next((one for one in held if isinstance(one, torch.optim.Optimizer)), None)
        if inner is None:
            break
        optimizer = inner
    return optimizer


def unknown_kind(optimizer: torch.optim.Optimizer) -> str:
    """What the user should know about an optimizer of no known kind."""
    return (
        f"optimizer {type(optimizer).__name__} is none of torch.optim's SGD, {', '.join(_ADAMS)}; it keeps all of its"
        " momentum, and compression is chosen by what is safe under any optimizer"
    )


class _Changed:
    """Parameter groups and gradients that are changed for one step, and what they were before."""

    def __init__(self) -> None:
        self._settings: List[Tuple[Dict[str, Any], Dict[str, Any]]] = []
        self._gradients: List[Tuple[torch.Tensor, torch.Tensor]] = []

    def begin(self, optimizer: torch.optim.Optimizer, hand_over: Callable[[float], Tuple[float, float]]) -> None:
        for group in optimizer.param_groups:
            own = float(group["momentum"])
            momentum, scale = hand_over(own)
            if momentum != own:
                self._change(optimizer, group, momentum, scale)

    def _change(self, optimizer: Any, group: Dict[str, Any], momentum: float, scale: float) -> None:
        used = [p for p in group["params"] if p.grad is not None]
        for p in used:
            # In a parameter's first step torch copies the gradient into the buffer, whatever the dampening.
            if optimizer.state[p].get("momentum_buffer") is None:
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        self._settings.append((group, {name: group[name] for name in ("momentum", "dampening", "weight_decay")}))
        group["momentum"] = max(momentum, _NO_MOMENTUM)
        if not group["nesterov"]:
            group["dampening"] = 1 - (1 - group["dampening"]) * scale
            return
        group["weight_decay"] = group["weight_decay"] * scale
        for p in used:
            self._gradients.append((p, p.grad))
            p.grad = p.grad * scale

    def exchange_settings(self) -> None:
        """Puts the groups' own settings back, or those of the step if that was done."""
        for i, (group, others) in enumerate(self._settings):
            self._settings[i] = group, {name: group[name] for name in others}
            group.update(others)

    def end(self) -> None:
        self.exchange_settings()
        for p, gradient in self._gradients:
            p.grad = gradient


def attach(optimizer: torch.optim.Optimizer, session: Any) -> None:
    """From now on, step() of this SGD uses its momentum as the last step of `session` wants it.

    Outside of step() the optimizer holds the user's values only, and state_dict() gives them at any time. If it has
    a session already, the new one takes its place. Copies of the optimizer, by pickle or by copy, step as any SGD does.
    """
    attached = hasattr(optimizer, _SESSION)
    setattr(optimizer, _SESSION, weakref.ref(session))
    if attached:
        return
    # A bound method, or a plain function if a learning-rate scheduler has wrapped it.
    before: Any = optimizer.step
    bound = isinstance(before, types.MethodType)
    function = before.__func__ if bound else before
    under_way: List[_Changed] = []  # the step that is running, if one is

    # With a copy of the function's attributes: by these schedulers know that they have wrapped it.
    @functools.wraps(function)
    def step(self: Any, *arguments: Any, **named: Any) -> Any:
        found = getattr(self, _SESSION)()
        call = functools.partial(function, self) if bound else function
        if found is None:
            return call(*arguments, **named)
        changed = _Changed()
        under_way.append(changed)

        def begin() -> None:
            with torch.no_grad():
                changed.begin(self, found._hand_over)

        try:
            closure = arguments[0] if arguments else named.pop("closure", None)
            if closure is None:
                begin()
                return call(*arguments, **named)

            def closure_first() -> Any:  # its backward aggregates, and this says what to use
                loss = closure()
                begin()
                return loss

            return call(closure_first, *arguments[1:], **named)
        finally:
            under_way.remove(changed)
            changed.end()

    # A hook of step() may save the optimizer's state.
    state_before = optimizer.state_dict

    @functools.wraps(state_before)
    def state_dict(*arguments: Any, **named: Any) -> Any:
        for changed in under_way:
            changed.exchange_settings()
        try:
            return state_before(*arguments, **named)
        finally:
            for changed in under_way:
                changed.exchange_settings()

    optimizer.state_dict = state_dict  # type: ignore[method-assign]
    # Schedulers made later take it apart by __self__ and __func__.
    optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]
