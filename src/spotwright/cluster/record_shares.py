"""Limits the bytes of each namespace's records in the Kubernetes API, so that a tenant cannot fill etcd.

etcd has 2 GiB by default, for the whole cluster, and refuses every write when they are full:
https://etcd.io/docs/latest/op-guide/maintenance/#space-quota. So records of active runs count like those of ended ones. Ended
runs are deleted first (:mod:`spotwright.cluster.retention`); active runs may use a part of the share, and the recording of the
largest is cut if they use more (:mod:`spotwright.cluster.run_store`). Between two checks a namespace may exceed its share; at
twice its share it is set aside.
"""

from __future__ import annotations

from collections import Counter

from spotwright.model.quantities import format_bytes

__all__ = ["NAMESPACE_LIMIT", "TOTAL_LIMIT", "Shares"]


NAMESPACE_LIMIT = 64 << 20
"""Bytes of the records of one namespace."""

TOTAL_LIMIT = 384 << 20
"""Bytes of all records: a fifth of etcd's default space."""

_GOING_ON = 0.9  # the part of a share for active runs, so that a cut run still has room
_FLOOD, _FLOOD_OF_ALL = 2.0, 1.25  # multiples of a share at which a namespace is set aside


class Shares:
    """The limits, and the bytes of all namespaces. ``of_one`` is for a namespace, ``of_all`` for all together."""

    def __init__(self, of_one: int = NAMESPACE_LIMIT, of_all: int = TOTAL_LIMIT) -> None:
        self.of_one, self.of_all = of_one, of_all
        self.live: Counter[str] = Counter()
        """Bytes of active runs, by namespace."""
        self.ended: Counter[str] = Counter()
        """Bytes of runs ended by the last look, by namespace."""
        self.new: Counter[str] = Counter()
        """Bytes of runs that have ended since then."""

    def of(self, namespace: str) -> int:
        """All bytes of a namespace."""
        return self.live[namespace] + self.ended[namespace] + self.new[namespace]

    @property
    def total(self) -> int:
        """All bytes."""
        return self.live.total() + self.ended.total() + self.new.total()

    def grow(self, namespace: str, by: int) -> None:
        """Count bytes of an active run; released bytes are negative."""
        self.live[namespace] += by
        if self.live[namespace] <= 0:
            del self.live[namespace]

    def too_much_goes_on(self) -> tuple[str, str] | None:
        """The namespace whose active runs use too much, and why, a clause; None: all are within the limits."""
        namespace, size = next(iter(self.live.most_common(1)), ("", 0))
        if size > self.of_one * _GOING_ON:
            return namespace, f"the active runs of its namespace use nearly all of {self.why_one}"
        if self.live.total() > self.of_all * _GOING_ON:
            return (
                namespace,
                f"active runs use nearly all of {self.why_all}, and this namespace uses the most",
            )
        return None

    @property
    def why_one(self) -> str:
        """The share of a namespace, for people."""
        return f"the {format_bytes(self.of_one)} that a namespace's records may use in the Kubernetes API"

    @property
    def why_all(self) -> str:
        """The same for all namespaces."""
        return f"the {format_bytes(self.of_all)} that all records may use in the Kubernetes API"

    @property
    def is_over(self) -> bool:
        """Whether some records must be deleted."""
        return self.total > self.of_all or any(self.of(name) > self.of_one for name in {*self.ended, *self.new})

    def flood(self, namespace: str) -> str:
        """Why a namespace must wait until records are deleted, a clause; empty if it need not."""
        if self.of(namespace) > self.of_one * _FLOOD:
            return f"its records use twice {self.why_one}"
        if self.total > self.of_all * _FLOOD_OF_ALL:
            largest = max({*self.live, *self.ended, *self.new}, key=self.of)
            return f"its records use the most of {self.why_all}" if namespace == largest else ""
        return ""
