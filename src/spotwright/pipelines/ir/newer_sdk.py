"""Keep retry policies of newer SDKs through parsing: the protobuf messages here have no field for them.

``set_retry(policy=...)`` is compiled to ``retryPolicy.policy``. Source: kubeflow/pipelines#13386. The policies are taken out
before parsing and put back after it; :mod:`spotwright.pipelines.ir.kfp_settings` reads their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.pipelines.ir.dag_walk import dag_tasks
from spotwright.pipelines.ir.kfp_settings import RETRY_POLICIES

__all__ = ["put_back_policies", "take_out_policies"]

RetryPolicies = Mapping[tuple[str, str], str]
"""The retry policies of a document, by component (empty: the root) and task."""


def take_out_policies(document: Mapping[str, Any]) -> RetryPolicies:
    """Take the supported retry policies out of a document. Others stay, and parsing refuses them with their place."""
    policies: dict[tuple[str, str], str] = {}
    for place, retry in _retries(document):
        if retry.get("policy") in RETRY_POLICIES:
            policies[place] = retry.pop("policy")
    return policies


def put_back_policies(document: Mapping[str, Any], policies: RetryPolicies) -> None:
    """Put back the policies that :func:`take_out_policies` returned."""
    for place, retry in _retries(document):
        if place in policies:
            retry["policy"] = policies[place]


def _retries(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for component, key, task in dag_tasks(document):
        retry = task.get("retryPolicy") if isinstance(task, Mapping) else None
        if isinstance(retry, dict):
            yield (component, key), retry
