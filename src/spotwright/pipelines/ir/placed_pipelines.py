"""Undo the placement of compiled pipelines that ``spotwright place`` or ``spotwright compile`` prepared for a cluster.

Additions for a backend (a sum of two budgets, tolerations, a mounted claim) mean nothing on this machine, or something else.
The policies of the configuration with which the file was placed stay: they count where there is no configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spotwright.errors import PipelineError
from spotwright.model.policy import Layer, parse_policy
from spotwright.pipelines.ir.placed_record import POLICIES, RECORD, VERSION, take_out

__all__ = ["read_placed_policies", "undo_placement"]

_SOURCE = "the configuration it was placed with"


def undo_placement(file: object, pipeline: dict[str, Any], platform: dict[str, Any]) -> None:
    """Take the placement out of the two documents. Raises :class:`PipelineError` for a record that cannot be read."""
    config = _mapping_at(platform, RECORD[:-1])
    if RECORD[-1] not in config:
        return
    place = f"{file}: {'.'.join(RECORD)}"
    try:
        record = json.loads(config[RECORD[-1]])
        if record["v"] > VERSION:
            raise PipelineError(f"{place}: placed by a newer version of spotwright (record {record['v']}): upgrade")
        take_out([pipeline, platform], record, _read_yaml)
    except (KeyError, TypeError, ValueError) as error:
        raise PipelineError(f"{place}: not a record of spotwright; compile the pipeline again") from error
    del config[RECORD[-1]]


def read_placed_policies(file: object, platforms: Mapping[str, Any]) -> dict[str, Layer]:
    """The policies of the configuration with which the file was placed, by the paths of tasks; empty where it was not placed."""
    text = _mapping_at({"platforms": platforms}, POLICIES[:-1]).get(POLICIES[-1])
    if text is None:
        return {}
    try:
        return {str(path): parse_policy(policy, _SOURCE) for path, policy in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise PipelineError(f"{file}: {'.'.join(POLICIES)}: {error}") from error


def _mapping_at(value: Any, path: tuple[str, ...]) -> dict[str, Any]:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _read_yaml(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)
