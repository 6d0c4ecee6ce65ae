"""Checkpoints for PyTorch: the ``state_dict`` of models and optimizers, and the random generators, without pickle.

Tensors are copied to the CPU and stored as arrays; they are loaded as tensors, which
``load_state_dict`` moves to the device of the model. Types that NumPy does not have (``bfloat16`` and the 8-bit floats) keep
their bits. A module of ``DistributedDataParallel`` is saved by rank 0 and loaded by all; shards of ``FSDP`` must be gathered
first (``torch.distributed.checkpoint.state_dict.get_model_state_dict`` with ``full_state_dict``).

::

    restore(ckpt.load(), model=model, optimizer=optimizer)  # changes nothing before the first save
    for epoch in ckpt.steps(10):
        train_one_epoch(model, optimizer)
        ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from spotwright.checkpoint.errors import OtherProgram

__all__ = ["restore", "state_of"]

_TENSOR = "~tensor"  # a key that no state_dict has
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def state_of(**parts: Any) -> dict[str, Any]:
    """Return the ``state_dict`` of each part by its name, with the states of PyTorch's random generators."""
    random: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state_all()
    return {"parts": {name: _pack(part.state_dict()) for name, part in parts.items()}, "random": _pack(random)}


def restore(state: Mapping[str, Any] | None, **parts: Any) -> None:
    """Load each part from :func:`state_of` by its name; ``None`` changes nothing.

    Raises :class:`OtherProgram` if the names differ. A part that does not fit is refused by its own
    ``load_state_dict``.
    """
    if state is None:
        return
    if state["parts"].keys() != parts.keys():
        raise OtherProgram(f"the checkpoint holds {sorted(state['parts'])}, and this program asks for {sorted(parts)}")
    for name, part in parts.items():
        part.load_state_dict(_unpack(state["parts"][name]))
    random = _unpack(state["random"])
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(random["cuda"])


def _pack(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {_TENSOR: _array(value.detach().cpu()), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, Mapping):
        return {key: _pack(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_pack(each) for each in value)
    return value


def _array(value: torch.Tensor) -> Any:
    try:
        return value.numpy()
    except TypeError:  # NumPy does not have the type: store its bits
        return value.contiguous().view(_SAME_SIZE[value.element_size()]).numpy()


def _unpack(value: Any) -> Any:
    if isinstance(value, Mapping):
        if _TENSOR not in value:
            return {key: _unpack(each) for key, each in value.items()}
        return torch.from_numpy(value[_TENSOR]).view(getattr(torch, value["dtype"]))
    if isinstance(value, (list, tuple)):
        return type(value)(_unpack(each) for each in value)
    return value
