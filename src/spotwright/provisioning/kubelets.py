"""How long a kubelet lets pods end when its node is shut down: in phases, by the priority of the pods.

A kubelet ends the pods of the lowest priority first and waits for them, for the period of their phase at most; a phase without
pods takes no time. ``shutdownGracePeriodByPodPriority`` lists the phases. The older pair of settings excludes that list, and is
two phases: ``shutdownGracePeriod`` less ``shutdownGracePeriodCriticalPods`` for pods of priority 0 and more, the rest for
critical pods.

Sources: Kubernetes, "Node Shutdowns", "Pod Priority based graceful node shutdown"; kubernetes/kubernetes, ``groupByPriority`` and
``migrateConfig`` in ``pkg/kubelet/nodeshutdown/nodeshutdown_manager.go`` (a pod is in the phase of the highest priority that is
not above its own, else in the first), and the validation of the kubelet's configuration (both forms at once are refused);
Kubernetes, "Pod Priority and Preemption" (classes of users have at most a billion, those of the system two and more).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spotwright.errors import InputError
from spotwright.model.quantities import parse_duration
from spotwright.provisioning.shapes import KUBELET, find_wrong

__all__ = ["SYSTEM_CLASSES", "Phase", "Shutdown", "read_shutdown"]

SYSTEM_CLASSES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The priority classes that every cluster has."""

_HIGHEST_OF_USERS = 1_000_000_000
_TOTAL, _CRITICAL, _BY_PRIORITY = (
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "shutdownGracePeriodByPodPriority",
)


class Phase(NamedTuple):
    """The pods from one priority up to that of the next phase have ``seconds`` to end."""

    priority: int
    seconds: float


class Shutdown(NamedTuple):
    """What a kubelet does when its node is shut down. ``phases``: lowest priority first. ``setting`` is the one that has them."""

    setting: str
    phases: tuple[Phase, ...]

    @property
    def total(self) -> float:
        """Seconds for which the shutdown waits where each phase has pods that take their time; 0: it is not delayed."""
        return sum(phase.seconds for phase in self.phases)

    def share(self, priority: int | None) -> float:
        """Seconds that a pod of this priority has; ``None``, a class of users of any value: the shortest that it may have."""
        if priority is None:
            starts = (phase.priority for phase in self.phases if phase.priority <= _HIGHEST_OF_USERS)
            return min(map(self.share, starts), default=self.share(0))
        return next((phase for phase in reversed(self.phases) if phase.priority <= priority), self.phases[0]).seconds


def read_shutdown(settings: Mapping[str, Any], name: str) -> Shutdown:
    """What the settings of a kubelet say; ``name`` is how messages call it.

    Raises :class:`InputError` with the field where a kubelet would not start with them.
    """
    wrong = find_wrong(settings, KUBELET)
    if wrong:
        raise InputError(f"{name}: {wrong}")
    total, critical = (parse_duration(settings.get(field) or 0) for field in (_TOTAL, _CRITICAL))
    listed = settings.get(_BY_PRIORITY) or ()
    if listed and (total or critical):
        raise InputError(f"{name}: {_BY_PRIORITY} excludes {_TOTAL}: no kubelet starts with both; remove one")
    if listed:
        phases = [Phase(one.get("priority") or 0, float(one.get("shutdownGracePeriodSeconds") or 0)) for one in listed]
        return Shutdown(_BY_PRIORITY, tuple(sorted(phases)))
    of_users = max(total - critical, 0.0)
    lowest_critical = SYSTEM_CLASSES["system-cluster-critical"]
    return Shutdown(_TOTAL, (Phase(0, of_users), Phase(lowest_critical, total - of_users)))
