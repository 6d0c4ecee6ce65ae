"""Pods that a webhook admitted: the stored decisions, derived from the annotations with which it marked them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from tests.cluster.watching.small_api_server import SmallApiServer

from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.admit_pods import ADMISSION_ANNOTATION
from spotwright.cluster.task_objects import Content, counters_of, keep_in

PINNED = "tests/pinned"
"""The annotation of a pod with the conditions that its review has added, for each required term."""


def admission_of(pod: Mapping[str, Any], _root: str = "") -> Admission | None:
    """The review's decision that left these annotations; None for a pod without them."""
    marks = pod["metadata"].get("annotations") or {}
    found = {
        name: marks[key]
        for name in ("rung", "open", "refused", "attempt")
        if (key := f"spotwright.dev/{name}") in marks
    }
    if not found:
        return None
    pools = tuple(filter(None, found.get("rung", "").split(",")))
    why = marks.get("spotwright.dev/why", "first attempt")
    pinned = tuple(map(tuple, json.loads(marks.get(PINNED, "[]"))))
    return Admission(pools, "open" in found, found.get("refused") == "true", why, int(found.get("attempt", 1)), pinned)


def note_admission(server: SmallApiServer, pod: dict[str, Any]) -> None:
    """Store a review's decision about a pod in its SpotCounter, and mark the pod with the review's token."""
    decided, meta = admission_of(pod), pod["metadata"]
    owner = next((one["uid"] for one in meta.get("ownerReferences") or ()), "")
    if decided is None:
        return
    place = counters_of(meta["namespace"], owner, meta["name"])
    collection = f"/apis/spotwright.dev/v1alpha1/namespaces/{meta['namespace']}/spotcounters"
    found = server.objects.get(collection, {}).get(place.name, {"spec": {}})
    content = msgspec.convert(found["spec"], Content)
    review = f"review-of-{meta['uid']}"[:40]
    token, sheet = content.give(place, review, meta["name"], 0, decided.number, 0.0)
    keep_in(content, place, review, sheet, decided)
    server.put(collection, place.name, spec=msgspec.to_builtins(content))
    meta["annotations"] = {**meta["annotations"], ADMISSION_ANNOTATION: str(token)}
