"""Compiled pipelines that ``spotwright place`` or ``spotwright compile`` has prepared for a cluster, read as they were before.

What was put in for a backend (a sum of two budgets, tolerations, a mounted claim) means nothing on this machine, or something
else. What the configuration said when it was placed stays: it counts where there is no configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spotwright.errors import PipelineError
from spotwright.model.placed import POLICIES, RECORD, VERSION, take_out
from spotwright.model.policy import Layer
from spotwright.model.policy_values import parse_policy

__all__ = ["as_written", "read_policies"]

_SOURCE = "the configuration it was placed with"


def as_written(file: object, pipeline: dict[str, Any], platform: dict[str, Any]) -> None:
    """Take out of the two documents what was placed. Raises :class:`PipelineError` for a record that cannot be read."""
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
        raise PipelineError(f"{place}: is not a record of spotwright; compile the pipeline again") from error
    del config[RECORD[-1]]


def read_policies(file: object, platforms: Mapping[str, Any]) -> dict[str, Layer]:
    """By the path of a task what the configuration said of it when the file was placed; empty where it was not."""
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
