"""What Lightning has logged in an epoch so far, as values of JSON: a resumed epoch logs the mean of all its batches.

Lightning's checkpoints leave it out: the sums behind ``self.log(on_epoch=True)``, the states of ``torchmetrics`` that are parts
of the model, and ``trainer.callback_metrics``, which schedulers and callbacks watch between two validations.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torchmetrics import Metric

__all__ = ["capture", "put_back"]

_FIELDS = (
    "fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx", "dataloader_idx",
    "metric_attribute",
)  # fmt: skip
_SUMS = ("value", "cumulated_batch_size")


def capture(trainer: Any, module: Any) -> dict[str, Any]:
    """Return what this rank has logged since the epoch began, and the metrics that callbacks see."""
    results = trainer.fit_loop.epoch_loop._results  # noqa: SLF001  # Lightning has no public name for these
    return {
        "seen": {
            name: _text(value) for name, value in trainer.callback_metrics.items() if isinstance(value, torch.Tensor)
        },
        "logged": {key: _of_result(each) for key, each in results.items() if not each.has_reset},
        "states": {
            name: {
                "count": each._update_count,  # noqa: SLF001
                "state": {key: _text(value) for key, value in each.metric_state.items()},
            }
            for name, each in module.named_modules()
            if isinstance(each, Metric)
        },
    }


def put_back(trainer: Any, module: Any, kept: dict[str, Any], *, within_epoch: bool) -> None:
    """Set what :func:`capture` has returned; the sums only ``within_epoch``."""
    connector = trainer._logger_connector  # noqa: SLF001
    device = trainer.strategy.root_device
    for name, value in kept["seen"].items():
        connector._callback_metrics.setdefault(name, _tensor(value, device))  # noqa: SLF001
    if not within_epoch:
        return
    modules = dict(module.named_modules())
    for name, value in kept["states"].items():
        if isinstance(metric := modules.get(name), Metric):
            metric._update_count, metric._computed = value["count"], None  # noqa: SLF001
            for key, state in value["state"].items():
                setattr(metric, key, _tensor(state, device))
    results = trainer.fit_loop.epoch_loop._results  # noqa: SLF001
    for key, value in kept["logged"].items():
        results[key] = _to_result(value, trainer, modules, device)
    connector._first_loop_iter = False  # noqa: SLF001  # the first batch of an epoch starts its sums anew


def _of_result(result: Any) -> dict[str, Any]:
    meta = result.meta
    found = {name: getattr(meta, name) for name in _FIELDS}
    found |= {"reduce": meta.reduce_fx.__name__, "sync": meta.sync.should, "rank_zero_only": meta.sync.rank_zero_only}
    if result.is_tensor:
        found["sums"] = {name: _text(getattr(result, name)) for name in _SUMS if hasattr(result, name)}
        if isinstance(result._forward_cache, torch.Tensor):  # noqa: SLF001
            found["last"] = _text(result._forward_cache)  # noqa: SLF001
        found["count"] = result._update_count  # noqa: SLF001
    return found


def _to_result(kept: dict[str, Any], trainer: Any, modules: dict[str, Any], device: Any) -> Any:
    library = sys.modules[type(trainer.fit_loop.epoch_loop._results).__module__]  # noqa: SLF001
    meta = library._Metadata(  # noqa: SLF001
        **{name: kept[name] for name in _FIELDS}, reduce_fx=getattr(torch, kept["reduce"])
    )
    meta.sync = library._Sync(  # noqa: SLF001
        _should=kept["sync"], fn=trainer.strategy.reduce, rank_zero_only=kept["rank_zero_only"]
    )
    result = library._ResultMetric(meta, "sums" in kept)  # noqa: SLF001
    if "sums" in kept:
        for name, value in kept["sums"].items():
            setattr(result, name, _tensor(value, device))
        result._update_count = kept["count"]  # noqa: SLF001
        if "last" in kept:
            result._forward_cache = _tensor(kept["last"], device)  # noqa: SLF001
    else:
        result.value = modules[kept["metric_attribute"]]
        result._forward_cache = None  # noqa: SLF001
    return result


def _text(value: Any) -> Any:
    """Return a tensor, or a list of tensors, as values of JSON. A float of JSON holds one of a tensor exactly."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    value = value.detach().cpu()
    return {
        "type": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "values": value.flatten().tolist(),
    }


def _tensor(kept: Any, device: Any) -> Any:
    if isinstance(kept, list):
        return [_tensor(each, device) for each in kept]
    return torch.tensor(kept["values"], dtype=getattr(torch, kept["type"]), device=device).reshape(kept["shape"])
