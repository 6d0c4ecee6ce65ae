"""What the pools of a waiting pod can give it now, for ``explain``.

It is read with the caller's own rights, and judged as the controller does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spotwright.clouds.cluster_autoscaler import STATUS
from spotwright.cluster.api_client import ApiFailed
from spotwright.cluster.autoscaler_words import AutoscalerWords
from spotwright.cluster.signals import events_of_pod, mappings
from spotwright.engine.state import AttemptState, TaskState
from spotwright.engine.waits import NODE_ORDERED, ORDERS_UNKNOWN, is_ruled_out
from spotwright.model.pools import Pool
from spotwright.pools.autoscaler_config_maps import NAMESPACE

__all__ = ["heard", "pool_states"]


_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_NODE_POOL_EVENTS = {"fieldSelector": "involvedObject.kind=NodePool"}

Get = Callable[..., Mapping[str, Any]]
"""Reads a path of the API server, with a query; raises :class:`ApiFailed`."""


def heard(get: Get, pod: Mapping[str, Any]) -> AutoscalerWords:
    """What the autoscalers say that this caller may read: about this pod, and about the pools."""
    words = AutoscalerWords()
    try:
        words.put_status(get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{STATUS}"))
    except ApiFailed:
        words.put_status(None)  # there is none, or it is for others: the Events about the pod tell less
    try:
        for claim in mappings(get(_CLAIMS).get("items")):
            words.put_claim(claim)
        words.sees_claims = True
    except ApiFailed:
        words.sees_claims = False
    for path, query in (events_of_pod(pod), ("/api/v1/namespaces/default/events", _NODE_POOL_EVENTS)):
        try:
            for event in mappings(get(path, query).get("items")):
                words.put_event(event)
        except ApiFailed:
            words.can_hear = False
    return words


def pool_states(
    pod: Mapping[str, Any],
    task: TaskState,
    attempt: AttemptState,
    pools: Mapping[str, Pool],
    words: AutoscalerWords,
    left_out: Sequence[Mapping[str, Any]],
    now: float,
) -> list[dict[str, Any]]:
    """Each pool of the ladder in its order: ``pool``, ``is_asked`` (the pod admits it), ``state`` and ``since``.

    ``state`` is a clause for people, empty where nothing is said of the pool. ``since`` is in Unix seconds or null: when the
    autoscaler said so. ``until``: the pool is passed over up to then.
    """
    paused = {str(one["pool"]): one["until"] for one in left_out if now < one["until"]}
    found = []
    for name in (name for rung in task.plan.ladder.rungs for name in rung.pools):
        said = words.of(pod, [name], pools, now)
        state, since = ("", None) if said is None or said.kind == ORDERS_UNKNOWN else (said.words, said.since)
        if not state and attempt.pools == (name,) and (attempt.waits.startswith(NODE_ORDERED) or is_ruled_out(attempt)):
            state, since = attempt.waits.partition(": ")[2], attempt.waits_since  # what the controller may read
        is_asked, until = name in attempt.pools, paused.get(name)
        found.append({"pool": name, "is_asked": is_asked, "state": state, "since": since, "until": until})
    return found
