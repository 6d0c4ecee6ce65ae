"""Reads the cluster autoscaler's status of node groups and their priorities, and maps groups to pools.

Node groups are AKS scale sets, AWS autoscaling groups and GKE instance groups. The autoscaler publishes their state in the
ConfigMap ``cluster-autoscaler-status`` of kube-system; its expander ``priority`` reads patterns for their names from
``cluster-autoscaler-priority-expander`` there. Only the group's name identifies its pool in ``spotwright.yaml``.

Sources: kubernetes/autoscaler, ``cluster-autoscaler/clusterstate/api/types.go`` and ``clusterstate.go`` (the status as YAML,
from 1.30 on; zeros are omitted), ``expander/priority/priority.go`` and its readme (a group has the highest priority whose
patterns match anywhere in its name; a group without a match loses to one with a priority; among groups without a match the
choice is random).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from spotwright.clouds.provider_records import PROVIDERS
from spotwright.clouds.providers import node_pool_of, of, pool_name
from spotwright.kube.object_fields import mapping, mappings, seconds
from spotwright.model.pools import Pool

__all__ = [
    "PRIORITIES",
    "STATUS",
    "Group",
    "Priorities",
    "Status",
    "groups_of_pools",
    "likely_group",
    "read_priorities",
    "read_status",
]

STATUS = "cluster-autoscaler-status"
"""The ConfigMap of kube-system with the state of all groups, under the key ``status``."""

PRIORITIES = "cluster-autoscaler-priority-expander"
"""The ConfigMap of kube-system with the patterns of the expander ``priority``, under the key ``priorities``."""

_MOST_GROUPS = 5_000
_MOST_PATTERNS = 1_000
_LONGEST = 200  # characters of a name or a pattern
# A repeated group, or many repetitions, can make Python's regular expressions hang; group names need neither.
_REPEATED_GROUP = re.compile(r"\)[+*{]")
_REPETITION = re.compile(r"[+*]|\{\d*,")
_MOST_REPETITIONS = 3
_SHOWN = 80
_SILENT = 600.0  # seconds: --max-inactivity, after which the autoscaler's health check fails


class Group(NamedTuple):
    """A node group: the numbers of its ``target``, ``ready`` and ``lost`` (broken) nodes.

    ``since`` (Unix seconds): when its scale-up entered the state ``scale_up`` (``NoActivity``, ``InProgress``, ``Backoff``). In
    a backoff, ``error`` is the cloud's code and message.
    """

    name: str
    target: int = 0
    ready: int = 0
    min_size: int = 0
    max_size: int | None = None
    scale_up: str = ""
    since: float | None = None
    error: str = ""
    lost: int = 0

    @property
    def is_in_backoff(self) -> bool:
        """Whether the autoscaler backs off after a failed scale-up."""
        return self.scale_up == "Backoff"

    @property
    def is_coming(self) -> bool:
        """Whether new nodes are expected."""
        return self.target > self.ready + self.lost

    @property
    def is_full(self) -> bool:
        """Whether it has its maximum of nodes, and no new ones are expected."""
        return self.max_size is not None and self.target >= self.max_size and not self.is_coming

    @property
    def obstacle(self) -> str:
        """Why it cannot provide a node now, for people; empty if it can."""
        if self.is_in_backoff:
            return f"in backoff after a failed scale-up{f' ({self.error})' if self.error else ''}"
        return f"at its maximum of {self.max_size}" if self.is_full else ""


class Status(NamedTuple):
    """All groups by name, as of ``at`` (Unix seconds; None: unknown)."""

    groups: Mapping[str, Group]
    at: float | None = None

    def is_kept(self, now: float) -> bool:
        """Whether it is up to date: the status of an absent autoscaler is not trusted."""
        return self.at is None or now < self.at + _SILENT


class Priorities(NamedTuple):
    """The patterns of each priority, the highest first."""

    rules: Sequence[tuple[int, Sequence[re.Pattern[str]]]]

    def of(self, group: str) -> int | None:
        """The priority of a group; None: no pattern matches its name."""
        return next((priority for priority, one in self._lines() if one.search(group[:_LONGEST])), None)

    def line_for(self, group: str) -> str:
        """The priority of a group with the matching pattern, such as ``20: .*spot.*``; empty if none matches."""
        return next(
            (f"{priority}: {one.pattern}" for priority, one in self._lines() if one.search(group[:_LONGEST])), ""
        )

    def idle_lines(self, groups: Iterable[str]) -> list[str]:
        """The priorities and patterns that match none of these groups, as :meth:`line_for` writes them."""
        every = [group[:_LONGEST] for group in groups]
        return [
            f"{priority}: {one.pattern}"
            for priority, one in self._lines()
            if not any(one.search(name) for name in every)
        ]

    def _lines(self) -> Iterator[tuple[int, re.Pattern[str]]]:
        """Each pattern with its priority. The expander starts at -1, so a lower priority never counts."""
        yield from ((priority, one) for priority, patterns in self.rules if priority >= 0 for one in patterns)


def read_status(data: Any) -> Status:
    """Read the parsed YAML of the status. Raises :class:`ValueError` for anything else, such as the text form before 1.30."""
    is_status = isinstance(data, Mapping) and ("nodeGroups" in data or "autoscalerStatus" in data)
    groups = data.get("nodeGroups") if is_status else None
    if not is_status or not isinstance(groups or [], list):
        raise ValueError("expected the status of a cluster autoscaler from 1.30 on, which lists its nodeGroups")
    listed = [_group(one) for one in (groups or [])[:_MOST_GROUPS] if isinstance(one, Mapping) and one.get("name")]
    clusterwide = mapping(data.get("clusterWide"))
    moments = [
        seconds(mapping(one.get(part)).get("lastProbeTime"))
        for one in (clusterwide, *mappings(groups))
        for part in _PARTS
    ]
    moments.append(
        seconds(_GO_TIME.sub(r"\1T\2Z", str(data.get("time") or "")))
    )  # the others are null for groups without nodes
    return Status({one.name: one for one in listed}, max((at for at in moments if at is not None), default=None))


_PARTS = ("health", "scaleUp")
_GO_TIME = re.compile(r"^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d+)? \+0000 UTC$")  # as Go prints a time


def _group(data: Mapping[str, Any]) -> Group:
    health, scale_up = (mapping(data.get(part)) for part in _PARTS)
    counts = mapping(health.get("nodeCounts"))
    registered = mapping(counts.get("registered"))
    backoff = mapping(scale_up.get("backoffInfo"))
    words = [str(backoff[key])[:_LONGEST] for key in ("errorCode", "errorMessage") if backoff.get(key)]
    return Group(
        str(data["name"])[:_LONGEST],
        _count(health.get("cloudProviderTarget")),
        _count(registered.get("ready")),
        _count(health.get("minSize")),
        _count(health.get("maxSize")) if "maxSize" in health else None,
        str(scale_up.get("status") or ""),
        seconds(scale_up.get("lastTransitionTime")),
        ": ".join(words),
        _count(mapping(registered.get("unready")).get("total")) + _count(counts.get("longUnregistered")),
    )


def read_priorities(data: Any) -> Priorities:
    """Read the parsed YAML of the priorities: lists of patterns by number. Raises :class:`ValueError` as the expander would.

    A priority without patterns is ignored. The expander uses Go's syntax: a pattern that Python cannot compile is an error only
    here.
    """
    if not isinstance(data, Mapping) or not data:
        raise ValueError("expected lists of patterns by their priority, such as 10: [.*spot.*]")
    rules: list[tuple[int, Sequence[re.Pattern[str]]]] = []
    for priority, listed in data.items():
        patterns = [] if listed is None else listed
        if isinstance(priority, bool) or not isinstance(priority, int) or not isinstance(patterns, list):
            raise ValueError(f"{str(priority)[:_LONGEST]!r}: expected a number with a list of patterns")
        rules.append((priority, tuple(_pattern(one) for one in patterns)))
    if sum(len(patterns) for _, patterns in rules) > _MOST_PATTERNS:
        raise ValueError(f"more than {_MOST_PATTERNS} patterns")
    return Priorities(sorted(rules, key=lambda rule: -rule[0]))


def _pattern(text: Any) -> re.Pattern[str]:
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ValueError(f"{str(text)[:_SHOWN]!r}: expected a pattern of at most {_LONGEST} characters")
    try:
        if _REPEATED_GROUP.search(text) or len(_REPETITION.findall(text)) > _MOST_REPETITIONS:
            raise ValueError(f"{text[:_SHOWN]!r} repeats too much, which may take for ever to look for")
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text[:_SHOWN]!r} is not a pattern ({error})") from None


def likely_group(pool: Pool) -> str:
    """The likely name of this pool's group, if no status shows it."""
    return of(pool).likely_group.format(name=pool_name(pool) or pool.name)


def groups_of_pools(pools: Iterable[Pool], groups: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """The names of the groups of each pool, by its name.

    Group names generated by providers are parsed. A group of another name belongs to the pool whose name it contains as whole
    words; of several, to the pool with the longest name: the group of ``gpu-spot`` is not a group of ``gpu``.
    """
    named = tuple((pool.name, pool_name(pool) or pool.name) for pool in pools if not node_pool_of(pool))
    return _by_pool(named, tuple(groups))


_MANAGED = tuple(one.group for one in PROVIDERS.values() if one.group)


@lru_cache(maxsize=256)
def _by_pool(named: tuple[tuple[str, str], ...], groups: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    """The groups by pool; ``named`` are the pools with their provider's names."""
    words = {pool: _words(name) for pool, name in named}
    found: dict[str, list[str]] = {pool: [] for pool, _ in named}
    for group in groups:
        short = group.rpartition("/")[2].lower()[:_LONGEST]
        managed = next((match.groupdict() for one in _MANAGED if (match := re.fullmatch(one, short))), None)
        if managed is None:
            own = _words(short)
            holders = [pool for pool, part in words.items() if _holds(own, part)]
        elif "pool" in managed:
            holders = [pool for pool, name in named if name.lower() == managed["pool"]]
        else:  # the cluster's name precedes the pool's
            both = f"-{managed['cluster_and_pool']}"
            holders = [pool for pool, name in named if both.endswith(f"-{name.lower()}")]
        if holders:
            found[max(holders, key=lambda pool: (len(words[pool]), len(pool)))].append(group)
    return found


def _words(name: str) -> list[str]:
    return re.split(r"[-_./]", name.lower()[:_LONGEST])


def _holds(words: Sequence[str], part: Sequence[str]) -> bool:
    return any(list(words[start : start + len(part)]) == list(part) for start in range(len(words) - len(part) + 1))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
