"""Names the restart of a set of pods that begin and end together, so that a budget is charged once for all of them.

A JobSet deletes all of its Jobs and makes them again when one of them fails; a TrainJob is a JobSet. Each pod has the number of
its restart in a label (``jobset.sigs.k8s.io/restart-attempt``, JobSet 0.10.1). The pods of an MPIJob or of the training operator
carry no such number, because those controllers replace pods one by one: there each pod has its own budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.cluster.workloads.owners import metadata, uid_of

__all__ = ["gang_of"]

_RESTART = "jobset.sigs.k8s.io/restart-attempt"


def gang_of(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], earlier: Sequence[str]) -> str:
    """The restart that a pod belongs to, as ``SET/RESTART``; empty: it begins and ends alone.

    ``earlier`` are the restarts of the earlier attempts of its task. A pod that its Job replaces within a restart ends for
    itself, so it is counted apart: ``SET/RESTART/2``.
    """
    restart = (metadata(pod).get("labels") or {}).get(_RESTART)
    for owner in owners:
        if owner.get("kind") == "JobSet" and restart is not None:
            name = f"{uid_of(owner)}/{restart}"
            before = sum(each == name or each.startswith(f"{name}/") for each in earlier)
            return f"{name}/{before + 1}" if before else name
    return ""
