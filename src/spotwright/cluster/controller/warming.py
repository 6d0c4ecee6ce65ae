"""Places a small Job once before the first review, because placement imports its modules when they are first used.

On a busy machine that takes longer than the two seconds that an API server waits, and the first object after a start would be
created as its user wrote it (seen on the test bed, two cores at a load of 10).
"""

from __future__ import annotations

import gc
from typing import Any

from spotwright import config as configuration
from spotwright.cluster.admission.admit import admit

__all__ = ["warm_up"]

_POOLS = {"spot": {"capacity": "spot", "provider": "aks"}, "regular": {"capacity": "on-demand", "provider": "aks"}}


def warm_up() -> bool:
    """Place a Job and make its pod precise; returns whether both were. Takes up to some seconds of CPU the first time.

    The modules that this has loaded stay, so they are exempt from garbage collection from now on: a full collection stops all
    threads, and of 70,000 objects it takes 30 ms or more, which a review would wait for.
    """
    is_warm = _place_once()
    gc.collect()
    gc.freeze()
    return is_warm


def _place_once() -> bool:
    config = configuration.from_mapping({"pools": _POOLS, "policy": {"default": {"spot": "prefer"}}})
    container = {"name": "main", "image": "none"}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "warm-up"},
        "spec": {"template": template},
    }
    placed = admit(job, config, refusal_image="none").placed
    if placed is None:
        return False
    pod = {"apiVersion": "v1", "kind": "Pod", **placed["spec"]["template"]}
    return bool(admit(pod, config, refusal_image="none").patch)
