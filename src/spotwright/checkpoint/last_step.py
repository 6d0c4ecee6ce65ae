"""Keeps what a rank needs to save the last finished step while a later one is under way, which will never end.

When another rank dies, gloo raises in the middle of a step; when one freezes, all wait in a collective operation. Parameters and
optimizer are then still as after the last finished step, because ``optimizer.step`` follows the collective operations of a step.
So only what changes before that is copied at the end of a step: buffers, such as the statistics of batch normalization, and
the random generators.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from spotwright.checkpoint.torch import RandomStates, parts_seen

__all__ = ["LastStep"]

_STEPPED = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)


class LastStep:
    """The state after the last finished step of a rank, for any thread. :meth:`close` removes its hook from PyTorch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # whoever has it reads the parameters, and no optimizer changes them
        self._is_intact = False
        self._state: Callable[[], Any] | None = None
        self._facts: Mapping[str, Any] = {}
        self._random: RandomStates | None = None
        self._copies: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # by name: a buffer, and its copy
        self._hook = register_optimizer_step_pre_hook(self._begin_change)

    def keep(self, state: Any, facts: Mapping[str, Any]) -> None:
        """Say that a step is finished. ``state`` is as in ``Checkpoint.step_done``."""
        with self._lock:
            self._state, self._facts = (state if callable(state) else lambda: state), facts
            self._random = RandomStates()
            self._copy_buffers()
            self._is_intact = True

    @contextmanager
    def held(self) -> Iterator[tuple[Any, Mapping[str, Any]] | None]:
        """Give the state after the last step with its facts, and let no optimizer change it in the block.

        ``None`` if it has changed since, or if it is not one of ``state_of`` alone: a program's own values may have changed.
        """
        with self._lock:
            yield self._taken() if self._is_intact else None

    def close(self) -> None:
        """Keep nothing any more."""
        self._hook.remove()
        self._is_intact, self._state = False, None
        self._copies.clear()

    def _begin_change(self, *_: Any) -> None:
        with self._lock:
            self._is_intact = False

    def _taken(self) -> tuple[Any, Mapping[str, Any]] | None:
        if self._state is None:
            return None
        value = self._state()
        if not isinstance(value, dict) or value.keys() != {"parts", "random"} or self._random is None:
            return None
        parts = parts_seen()
        if parts.keys() != value["parts"].keys() or not all(isinstance(each, _STEPPED) for each in parts.values()):
            return None
        if any(self._copies.get(name, (None,))[0] is not buffer for name, buffer in _buffers(parts)):
            return None  # the step under way has put another tensor there
        now = {key: buffer.detach().clone() for key, (buffer, _) in self._copies.items()}
        try:
            self._put(lambda key: self._copies[key][1])
            states = {name: _owned(each) for name, each in self._state()["parts"].items()}
        finally:
            self._put(lambda key: now[key])
        return {"parts": states, "random": self._random.packed()}, self._facts

    def _copy_buffers(self) -> None:
        before, self._copies = self._copies, {}
        for name, buffer in _buffers(parts_seen()):
            kept, copy = before.get(name, (None, None))
            if kept is buffer and copy is not None:
                copy.copy_(buffer)
            else:
                copy = buffer.detach().clone()
            self._copies[name] = (buffer, copy)

    def _put(self, value_of: Callable[[str], torch.Tensor]) -> None:
        with torch.no_grad():
            for key, (buffer, _) in self._copies.items():
                buffer.copy_(value_of(key))


def _buffers(parts: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, part in parts.items():
        if isinstance(part, torch.nn.Module):
            yield from part.named_buffers(prefix=name)


def _owned(value: Any) -> Any:
    """Return a state with copies of its arrays, which share their memory with tensors of the model."""
    if isinstance(value, Mapping):
        return {key: _owned(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_owned(each) for each in value)
    return value.copy() if hasattr(value, "__array_interface__") and hasattr(value, "copy") else value
