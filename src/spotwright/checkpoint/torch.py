"""Checkpoints for PyTorch: the ``state_dict`` of models and optimizers, and the random generators, without pickle.

Tensors are copied to the CPU and stored as arrays; they are loaded as tensors, which
``load_state_dict`` moves to the device of the model. Types that NumPy does not have (``bfloat16`` and the 8-bit floats) keep
their bits. With several ranks, ``Checkpoint(group=torch.distributed.group.WORLD)`` saves an agreed step: a
``DistributedDataParallel`` module once, and the shards of ``fully_shard`` (FSDP2) by their ranks; any number of ranks can load
them. Shards of the older ``FullyShardedDataParallel`` must be gathered first
(``torch.distributed.checkpoint.state_dict.get_model_state_dict`` with ``full_state_dict``).

::

    restore(ckpt.load(), model=model, optimizer=optimizer)  # changes nothing before the first save
    for epoch in ckpt.steps(10):
        train_one_epoch(model, optimizer)
        ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError(f"spotwright.checkpoint.torch needs PyTorch ({error}): pip install torch") from error

from spotwright.checkpoint.errors import OtherProgram, UnstorableState

__all__ = ["Shards", "is_sharded", "own_random_state", "pack", "random_states", "restore", "state_of", "unpack"]

_TENSOR = "~tensor"  # a key that no state_dict has
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


class Shards:
    """A loaded state whose tensors are still in shards at the place: each rank reads its part into its tensors."""

    def __init__(self, fill: Callable[[Any], Any]) -> None:
        self._fill = fill

    def into(self, state: Any) -> Any:
        """Fill the tensors and other values of a state with the same structure as the saved one; every rank calls this.

        Returns the saved private values of the rank with this number; ``None`` if there were fewer ranks. Raises
        :class:`OtherProgram` if the state has other tensors.
        """
        return self._fill(state)


def state_of(**parts: Any) -> dict[str, Any]:
    """Return the ``state_dict`` of each part by its name, with the states of PyTorch's random generators.

    If a model has ``DTensor`` parameters (``fully_shard``, tensor parallelism), the tensors are neither gathered nor copied: only
    ``Checkpoint(group=...)`` saves them, in shards. The model of each optimizer must then be one of the parts. Raises
    :class:`UnstorableState` if it is not.
    """
    models = [part for part in parts.values() if isinstance(part, torch.nn.Module)]
    if is_sharded([list(model.parameters()) for model in models]):
        states = {name: _sharded_state(name, part, models) for name, part in parts.items()}
    else:
        states = {name: pack(part.state_dict()) for name, part in parts.items()}
    return {"parts": states, "random": random_states()}


def restore(state: Mapping[str, Any] | Shards | None, **parts: Any) -> None:
    """Load each part from :func:`state_of` by its name; ``None`` changes nothing.

    Raises :class:`OtherProgram` if the names differ. A part's own ``load_state_dict`` refuses a state that does not fit.
    """
    if state is None:
        return
    if isinstance(state, Shards):
        target = state_of(**parts)
        random = state.into(target)
        models = [part for part in parts.values() if isinstance(part, torch.nn.Module)]
        for name, part in parts.items():
            _load_sharded_state(part, target["parts"][name], models)
        if random is not None:
            _set_random_states(random)
        return
    if state["parts"].keys() != parts.keys():
        raise OtherProgram(f"the checkpoint holds {sorted(state['parts'])}, and this program asks for {sorted(parts)}")
    for name, part in parts.items():
        part.load_state_dict(unpack(state["parts"][name]))
    _set_random_states(state["random"])
    if "ranks" in state["random"]:
        _set_own_random_state(unpack(state["random"]["ranks"]))


def random_states() -> dict[str, Any]:
    """Return the states of this process's PyTorch random generators."""
    random: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state_all()
    packed: dict[str, Any] = pack(random)
    return packed


def _set_random_states(states: Mapping[str, Any]) -> None:
    """Set PyTorch's random generators as in :func:`random_states`."""
    random = unpack(states)
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(random["cuda"])


def own_random_state() -> torch.Tensor:
    """Return the states of this rank's random generators in one tensor: the CPU's, then its device's."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)


def _set_own_random_state(rows: torch.Tensor) -> None:
    """Set this rank's random generators, if the number of ranks has not changed."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() != len(rows):
        return
    row, length = rows[distributed.get_rank()], len(torch.get_rng_state())
    torch.set_rng_state(row[:length].clone())
    if torch.cuda.is_available() and len(row) > length:
        torch.cuda.set_rng_state(row[length:].clone())


def is_sharded(value: Any) -> bool:
    """True if a state has a ``DTensor``."""
    if isinstance(value, torch.Tensor):
        from torch.distributed.tensor import DTensor

        return isinstance(value, DTensor)
    parts: Iterable[Any] = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    )
    return any(is_sharded(part) for part in parts)


def _model_of(name: str, optimizer: torch.optim.Optimizer, models: list[torch.nn.Module]) -> torch.nn.Module:
    """Return the model with an optimizer's parameters."""
    trained = {id(each) for group in optimizer.param_groups for each in group["params"]}
    for model in models:
        if trained <= {id(each) for each in model.parameters()}:
            return model
    raise UnstorableState(f"{name}: this optimizer's parameters belong to none of the parts: name its model too")


def _sharded_state(name: str, part: Any, models: list[torch.nn.Module]) -> Any:
    """Return the state of a part. An optimizer's is keyed by parameter name, and complete even before its first step."""
    if not isinstance(part, torch.optim.Optimizer):
        return part.state_dict()
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    return get_optimizer_state_dict(_model_of(name, part, models), part)


def _load_sharded_state(part: Any, state: Any, models: list[torch.nn.Module]) -> None:
    if not isinstance(part, torch.optim.Optimizer):
        part.load_state_dict(state)
        return
    from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

    set_optimizer_state_dict(_model_of("", part, models), part, state)


def pack(value: Any) -> Any:
    """Return a value with each tensor replaced by an array."""
    if isinstance(value, torch.Tensor):
        return {_TENSOR: _array(value.detach().cpu()), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, Mapping):
        return {key: pack(each) for key, each in value.items()}
    if type(value) in (list, tuple):  # the encoding refuses others with their path
        return type(value)(pack(each) for each in value)
    return value


def _array(value: torch.Tensor) -> Any:
    try:
        return value.numpy()
    except TypeError:  # NumPy does not have the type: store its bits
        return value.contiguous().view(_SAME_SIZE[value.element_size()]).numpy()


def unpack(value: Any) -> Any:
    """Return the value packed by :func:`pack`, with its tensors on the CPU."""
    if isinstance(value, Mapping):
        if _TENSOR not in value:
            return {key: unpack(each) for key, each in value.items()}
        return torch.from_numpy(value[_TENSOR]).view(getattr(torch, value["dtype"]))
    if isinstance(value, (list, tuple)):
        return type(value)(unpack(each) for each in value)
    return value
