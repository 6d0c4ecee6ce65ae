"""Computes the unavailable pools from the records, and publishes them to all webhooks.

The records show when an attempt was recalled, and when one got a node. A new leader computes the backoffs from these facts, and
updates them with its records. It publishes them to webhooks, which choose rungs, and to people, as objects of the API
(:mod:`spotwright.cluster.spot_pools`); if those are lost, the next leader writes them again. Evictions and waiting pods are
counted here for the metrics.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from spotwright.clouds import providers
from spotwright.cluster.run_records import RunRecords
from spotwright.engine.events import AttemptBound, AttemptRecalled, Event
from spotwright.errors import SpotwrightError
from spotwright.model.pools import Pool
from spotwright.scheduling.budgets import CEILING, Pause, left_out
from spotwright.visible_text import visible

__all__ = [
    "NAMESPACE_UID",
    "CapacityBackoff",
    "Finding",
    "Findings",
    "LeftOut",
    "Move",
    "PoolsLeftOut",
    "Tally",
    "definition_of",
    "in_force",
]


NAMESPACE_UID = "namespace_uid"
"""The argument of a run that holds the UID of its namespace: a name may have another owner later."""

_LOG = logging.getLogger(__name__)
_KINDS = (AttemptRecalled.kind, AttemptBound.kind)
_READ = 6 * CEILING  # seconds: journals idle for longer have no current backoff
_AGREED = 2  # namespaces with the same finding that start or end a backoff for all


def definition_of(pool: Pool) -> str:
    """The identity of a pool: a digest of its provider, its capacity, its name at its provider and its nodes' labels.

    Namespaces may use one name for different pools, so the name in the configuration does not count.
    """
    labels = [dict(each) for each in providers.labels_by_zone(pool)]
    parts = [pool.provider, pool.capacity, providers.pool_name(pool) or pool.name, labels]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()


class Finding(NamedTuple):
    """A namespace's finding of a backoff. ``pool`` is its name there; ``is_said``: the provider itself reports no capacity."""

    pool: str
    pause: Pause
    is_said: bool = False


Findings = dict[str, dict[str, Finding]]
"""The findings, by definition of the pool and by namespace."""


def in_force(found: Mapping[str, Finding], namespace: str) -> Finding | None:
    """The backoff of a pool for a namespace: found by itself, reported by the provider, or found by two other namespaces.

    An empty name: the backoff for all.
    """
    others = sorted((one for name, one in found.items() if name != namespace), key=_ends, reverse=True)
    agreed = others[_AGREED - 1 : _AGREED]
    own = [found[namespace]] if namespace in found else []
    return max((*own, *agreed, *(one for one in others if one.is_said)), key=_ends, default=None)


def _ends(finding: Finding) -> float:
    return finding.pause.until


def _by_name(found: Findings, namespace: str, pools: Mapping[str, Pool]) -> Mapping[str, Pause]:
    """The backoffs for a namespace, by its own names of pools, including expired ones."""
    holding = ((name, in_force(found.get(definition_of(pool), {}), namespace)) for name, pool in pools.items())
    return {name: one.pause for name, one in holding if one is not None}


class CapacityBackoff:
    """The leader's backoffs. ``pools`` is always the configuration of an event's run.

    ``write`` publishes the findings to the webhooks.
    """

    def __init__(self, write: Callable[[Findings], None]) -> None:
        self._write_found = write
        self._found: Findings = {}
        self._taken: dict[str, dict[str, float]] = {}  # by definition and namespace: when an attempt last got a node
        self._uids: dict[str, str] = {}  # of the known namespaces

    def begin(self, records: RunRecords, now: float, require: Callable[[], None] = lambda: None) -> int:
        """Compute the backoffs from the records of the last hours, and publish them.

        ``require`` is called for each run, because thousands take minutes; its errors are raised. Returns the number of
        unreadable runs, whose pools may lack a backoff.
        """
        unread: list[str] = []
        for (namespace, uid), pools, event in sorted(
            _facts(records, now, require, unread), key=lambda fact: fact[2].at
        ):
            self._know(namespace, uid)
            self._take(namespace, pools, event)
        self._write()
        return len(unread)

    def know(self, namespaces: Mapping[str, str]) -> None:
        """Store the UIDs of namespaces by name: findings of an earlier namespace of the same name are dropped."""
        lost = [self._know(name, uid) for name, uid in namespaces.items()]
        if any(lost):
            self._write()

    def _know(self, namespace: str, uid: str) -> bool:
        """Drop findings of an earlier namespace of this name. Returns whether there were any."""
        if self._uids.setdefault(namespace, uid) == uid:
            return False
        self._uids[namespace] = uid
        forgotten = [part.pop(namespace, None) for by_key in (self._found, self._taken) for part in by_key.values()]
        self._found = {key: found for key, found in self._found.items() if found}
        self._taken = {key: moments for key, moments in self._taken.items() if moments}
        return any(one is not None for one in forgotten)

    def take(self, namespace: str, pools: Mapping[str, Pool], event: Event) -> None:
        """Apply a recorded fact."""
        before = {key: dict(by_namespace) for key, by_namespace in self._found.items()}
        self._take(namespace, pools, event)
        if self._found != before:
            self._tell(before)
            self._write()

    def of(self, namespace: str, pools: Mapping[str, Pool]) -> Mapping[str, Pause]:
        """The last backoffs of pools in force for a namespace."""
        return _by_name(self._found, namespace, pools)

    def own(self, namespace: str, pools: Mapping[str, Pool]) -> Mapping[str, Pause]:
        """The last backoffs of pools that a namespace found itself."""
        found = ((name, self._found.get(definition_of(pool), {}).get(namespace)) for name, pool in pools.items())
        return {name: one.pause for name, one in found if one is not None}

    def taken(self, namespace: str, pools: Mapping[str, Pool]) -> Mapping[str, float]:
        """The times at which pools last gave a node: to an attempt of the namespace, or to attempts of two others."""
        return {name: self._taken_at(definition_of(pool), namespace) for name, pool in pools.items()}

    def _taken_at(self, key: str, namespace: str) -> float:
        moments = self._taken.get(key, {})
        others = sorted((at for name, at in moments.items() if name != namespace), reverse=True)
        return max((moments.get(namespace, 0.0), *others[_AGREED - 1 : _AGREED]))

    def _take(self, namespace: str, pools: Mapping[str, Pool], event: Event) -> None:
        if isinstance(event, AttemptRecalled):
            for name, (until, times) in event.left_out.items():
                if name in pools:
                    found = self._found.setdefault(definition_of(pools[name]), {})
                    if namespace not in found or until > found[namespace].pause.until:
                        found[namespace] = Finding(name, Pause(times, event.at, until), event.is_said)
        elif isinstance(event, AttemptBound) and event.pool in pools:
            key = definition_of(pools[event.pool])
            moments = self._taken.setdefault(key, {})
            moments[namespace] = max(event.at, moments.get(namespace, 0.0))
            self._end(key)
        self._forget(event.at)

    def _end(self, key: str) -> None:
        """End the backoffs of a pool that has since given a node to the same namespace, or to two others."""
        found = self._found.get(key, {})
        for namespace in [name for name, one in found.items() if self._taken_at(key, name) >= one.pause.since]:
            del found[namespace]
        if not found:
            self._found.pop(key, None)

    def _forget(self, now: float) -> None:
        """Drop obsolete definitions, which authors of configurations can create without limit."""
        for key in [key for key, moments in self._taken.items() if max(moments.values()) < now - _READ]:
            del self._taken[key]
        for key in [key for key, found in self._found.items() if max(map(_ends, found.values())) < now - _READ]:
            del self._found[key]

    def _tell(self, before: Findings) -> None:
        for key, found in before.items():
            for namespace in found.keys() - self._found.get(key, {}).keys():
                text = "pool %s has nodes again: attempts of namespace %s use it again"
                _LOG.info(text, found[namespace].pool, namespace)
        for key, found in self._found.items():
            for namespace, one in found.items():
                if before.get(key, {}).get(namespace) != one:
                    text = "pool %s had no node for an attempt of namespace %s: skipping it for %g s (%d in a row)"
                    pause = one.pause
                    _LOG.warning(text, visible(one.pool), namespace, pause.until - pause.since, pause.times)

    def _write(self) -> None:
        self._write_found(self._found)


class LeftOut(NamedTuple):
    """An unavailable pool of a namespace, or of all: then the namespace is empty. ``key`` is its definition."""

    key: str
    namespace: str
    pool: str
    pause: Pause


class PoolsLeftOut:
    """The unavailable pools at a time. ``read`` returns the recorder's published findings."""

    def __init__(self, read: Callable[[], Findings]) -> None:
        self._read = read

    def of(self, namespace: str, pools: Mapping[str, Pool], now: float) -> Mapping[str, Pause]:
        """The unavailable pools of a namespace at this time, by its own names, with their backoffs."""
        pauses = _by_name(self._read(), namespace, pools)
        return {name: pauses[name] for name in left_out(pauses, now)}

    def all(self, now: float, namespaces: Collection[str] | None = None) -> Sequence[LeftOut]:
        """All pools skipped at this time; only of ``namespaces`` if they are given.

        A pool that is skipped for all has these namespaces' name for it, empty if none of them found it unavailable.
        """
        pauses: list[LeftOut] = []
        for key, found in self._read().items():
            live = {name: one for name, one in found.items() if now < one.pause.until}
            shown = {name: one for name, one in live.items() if namespaces is None or name in namespaces}
            for_all = in_force(live, "")
            if for_all is not None:
                pauses.append(LeftOut(key, "", next((one.pool for one in shown.values()), ""), for_all.pause))
            pauses += [
                LeftOut(key, name, one.pool, one.pause)
                for name, one in shown.items()
                if for_all is None or one.pause.until > for_all.pause.until
            ]
        return pauses


def _facts(
    records: RunRecords, now: float, require: Callable[[], None], unread: list[str]
) -> Iterable[tuple[tuple[str, str], Mapping[str, Pool], Event]]:
    """Recently recorded facts about pools, each with its namespace, its UID, and the pools of its run.

    ``unread`` gets the names of unreadable runs.
    """
    for record in records.recent(now - _READ):
        require()
        try:
            found = record.facts(_KINDS, now - _READ)
        except (OSError, SpotwrightError) as error:
            _LOG.warning("ignoring run %s in the state of the pools: %s", record.folder.name, error)
            unread.append(record.folder.name)
            continue
        except Exception:  # noqa: BLE001  # a defect, or a hostile object: go on with all others
            _LOG.exception(
                "ignoring run %s in the state of the pools, because of a defect in Spotwright", record.folder.name
            )
            unread.append(record.folder.name)
            continue
        if found is not None:
            arguments = found.arguments
            namespace = str(arguments.get("namespace", "")), str(arguments.get(NAMESPACE_UID, ""))
            yield from ((namespace, found.pools, event) for event in found.events)


Move = Literal["taken-back", "evicted", "deleted"]
"""Recall of an attempt that got no node in time; eviction of its pod; deletion of a pod whose machine is gone."""


class Tally:
    """Counts since the start of this process. ``is_leading``: this recorder is active.

    ``unplaced`` counts pods with a policy that no review has placed. ``kinds`` are the API server's, with whether they are
    read. ``defects`` counts workloads that are not recorded because of a defect of ours. ``unread`` counts unreadable runs at
    the start of this recorder's leadership, whose pools may lack a backoff.
    """

    def __init__(self) -> None:
        self._moves: Counter[Move] = Counter({"taken-back": 0, "evicted": 0, "deleted": 0})
        self._waiting: dict[str, tuple[str, str]] = {}  # pod UID -> namespace and Kubernetes' reason
        self.is_leading = False
        self.unplaced = self.defects = self.unread = 0
        self.kinds: Mapping[str, bool] = {}
        self.problem = ""  # why recording fails now
        self.archives: Counter[str] = Counter({"archived": 0, "failed": 0, "lost": 0})  # of ended runs

    def moved(self, what: Move) -> None:
        """Count one move."""
        self._moves[what] += 1

    def waits(self, uid: str, namespace: str, reason: str) -> None:
        """Note that a pod waits for a node; without a reason, the scheduler has not given one."""
        self._waiting[uid] = (namespace, reason or "NotScheduledYet")

    def waits_no_more(self, uid: str) -> None:
        """Note that a pod has a node, or is gone."""
        self._waiting.pop(uid, None)

    def begin(self) -> None:
        """Begin to watch, with no known waiting pods."""
        self._waiting.clear()
        self.is_leading = True

    def end(self) -> None:
        """Stop watching: this recorder no longer knows what waits."""
        self.is_leading = False
        self._waiting.clear()
        self.kinds, self.problem = {}, ""

    @property
    def moves(self) -> Mapping[Move, int]:
        """How often each move happened."""
        return dict(self._moves)

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        """How many pods wait, by namespace and reason."""
        return Counter(dict(self._waiting).values())
