"""The pools of a cluster as objects of the Kubernetes API, for people and for webhooks, which need their backoffs.

A SpotPool is a pool of the cluster's configuration or one read from nodes, with its nodes and its price. After attempts waited
there in vain, it has the end of its backoff, and the namespaces that found it unavailable. A pool that only a namespace
declares has an object only while it has findings. The recorder writes the objects; webhooks watch them to choose rungs.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.mirror import ChangeKind, FollowedNamespaces, Resource
from spotwright.cluster.run_objects import API_VERSION, records_path
from spotwright.cluster.unavailable_pools import Finding, Findings, definition_of, in_force
from spotwright.cluster.view import pool_of_node
from spotwright.errors import SpotwrightError
from spotwright.kube.object_fields import metadata
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_money
from spotwright.scheduling.budgets import Pause

__all__ = ["KIND", "FollowedPools", "PoolObjects", "findings_in", "pool_objects"]


KIND = "SpotPool"
RELEASE_LABEL = "spotwright.dev/release"
"""The label with the release whose controller writes an object: two releases may have pools of the same names."""

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 60  # characters of a pool's name in that of its object
_SOON, _TELLS = 1.0, 20.0  # seconds until the first publication, and between later ones
_PATIENCE = 10.0  # seconds for the API server's answer, during which recording waits
_MOST_FOUND = 200  # namespaces with findings in one object: those with the longest backoffs
_MISSING = 404  # the status of a kind that is not installed


def pool_objects(
    pools: Mapping[str, Pool], nodes: Iterable[Mapping[str, Any]], found: Findings, now: float, release: str
) -> dict[str, dict[str, Any]]:
    """The objects of a release at a time (Unix seconds), by name, with their status."""
    seen = [pool_of_node(node, pools) for node in nodes]
    counts = Counter(each.name for each in seen)
    objects: dict[str, dict[str, Any]] = {}
    for pool in pools.values():
        key = definition_of(pool)
        status: dict[str, Any] = {
            "provider": pool.provider,
            "capacity": pool.capacity.value,
            "nodes": counts[pool.name],
        }
        if pool.price is not None:
            status["price"] = f"{format_money(pool.price)}/h"
        objects[_name_of(pool.name, key, release)] = _object(pool.name, key, status, found.get(key, {}), now)
    for name, is_spot in {each.name: each.is_spot for each in seen if not each.is_configured}.items():
        status = {"capacity": "spot" if is_spot else "on-demand", "nodes": counts[name]}
        objects[_name_of(name, "", release)] = _object(name, "", status, {}, now)
    for key in found.keys() - {each["spec"].get("key") for each in objects.values()}:
        name = next(iter(found[key].values())).pool
        objects[_name_of(name, key, release)] = _object(name, key, {}, found[key], now)
    return objects


def _object(pool: str, key: str, status: dict[str, Any], found: Mapping[str, Finding], now: float) -> dict[str, Any]:
    spec = {"pool": pool} | ({"key": key} if key else {})
    for_all = in_force({name: one for name, one in found.items() if now < one.pause.until}, "")
    if for_all is not None:
        status["unavailableUntil"] = _moment(for_all.pause.until)
        status["message"] = (
            "the provider has no capacity there" if for_all.is_said else "attempts of several namespaces got no node"
        )
    longest = sorted(found.items(), key=lambda each: (-each[1].pause.until, each[0]))[:_MOST_FOUND]
    if longest:
        status["found"] = [
            {"namespace": namespace, "pool": one.pool, "said": one.is_said, "times": one.pause.times}
            | {"since": _moment(one.pause.since), "until": _moment(one.pause.until)}
            for namespace, one in longest
        ]
    return {"spec": spec, "status": status}


def _name_of(pool: str, key: str, release: str) -> str:
    slug = _NAME.sub("-", pool.lower())[:_LONGEST_NAME].strip("-") or "pool"
    return f"{slug}-{hashlib.blake2b(f'{release} {pool} {key}'.encode(), digest_size=4).hexdigest()}"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


class PoolObjects:
    """Writes the changed objects of a release.

    ``release`` distinguishes it from others of the cluster, whose objects it leaves alone. ``pools`` are its configuration's.
    ``require`` raises :class:`~spotwright.errors.Fenced` once another process records.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        release: str,
        pools: Callable[[], Mapping[str, Pool]],
        now: Callable[[], float] = time.time,
        require: Callable[[], None] = lambda: None,
    ) -> None:
        self._kubernetes, self._release, self._pools, self._now = kubernetes, release, pools, now
        self._require, self._failed = require, False
        self.nodes: Callable[[], Sequence[Mapping[str, Any]] | None] = lambda: None
        """The nodes of the cluster; None while they are unknown."""
        self._found: Findings = {}
        self._known: dict[str, dict[str, Any]] | None = None  # the API's content; None: not read yet

    def write(self, found: Findings) -> None:
        """Publish a finding. If it cannot be written now, it is written with the next :meth:`tell`."""
        self._found = {key: dict(by_namespace) for key, by_namespace in found.items()}
        self.tell()

    def tell(self) -> None:
        """Write the current state of the pools, unless the nodes are unknown."""
        nodes = self.nodes()
        if nodes is None:
            return
        self._require()
        try:
            wanted = pool_objects(self._pools(), nodes, self._found, self._now(), self._release)
            self._kubernetes.call(self._within_time(wanted))
            self._failed = False
        except (SpotwrightError, TimeoutError, OverflowError) as error:
            if not self._failed:
                _LOG.warning("cannot publish the state of the pools; webhooks use the last known one: %r", error)
            self._known, self._failed = None, True

    async def _within_time(self, wanted: Mapping[str, dict[str, Any]]) -> None:
        async with asyncio.timeout(_PATIENCE):
            await self._write(self._kubernetes.api, wanted)

    async def run(self) -> None:
        """Publish periodically until cancelled: nodes come and go."""
        while True:
            await asyncio.sleep(_TELLS if self._known is not None or self._failed else _SOON)
            self.tell()

    async def _write(self, api: Api, wanted: Mapping[str, dict[str, Any]]) -> None:
        if self._known is None:
            listed = await api.get(records_path(KIND, ""), {"labelSelector": f"{RELEASE_LABEL}={self._release}"})
            items = listed.get("items") or ()
            self._known = {str(metadata(each)["name"]): _status_of(each) for each in items}
        for name in self._known.keys() - wanted.keys():
            await _deleted(api, name)
            del self._known[name]
        for name, each in wanted.items():
            if self._known.get(name) == each:
                continue
            if name in self._known:
                patch = [{"op": "add", "path": f"/{part}", "value": value} for part, value in each.items()]
                await api.send("PATCH", records_path(KIND, "", name), patch)
            else:
                made = {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "metadata": {"name": name, "labels": {RELEASE_LABEL: self._release}},
                    **each,
                }
                await api.send("POST", records_path(KIND, ""), made)
            self._known[name] = each


async def _deleted(api: Api, name: str) -> None:
    try:
        await api.send("DELETE", records_path(KIND, "", name))
    except ApiFailed as error:
        if error.status != _MISSING:
            raise


def _status_of(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"spec": found.get("spec") or {}, "status": found.get("status") or {}}


class FollowedPools:
    """The findings about pools that this release's recorder published. Await :meth:`follow`."""

    def __init__(self, api: Api, release: str) -> None:
        labels = f"{RELEASE_LABEL}={release}"
        self._followed = FollowedNamespaces(api, Resource(f"/apis/{API_VERSION}", "spotpools"), (), labels=labels)
        self._found: dict[str, Findings] = {}  # by the name of the object

    @property
    def is_complete(self) -> bool:
        """Whether everything that exists was read."""
        return self._followed.is_complete or self._followed.status == _MISSING

    async def follow(self) -> None:
        """Follow until cancelled."""
        async for change in self._followed.changes():
            name = str(metadata(change.data).get("name", ""))
            if change.kind is ChangeKind.DELETED:
                self._found.pop(name, None)
            elif change.kind is ChangeKind.PUT:
                self._found[name] = _findings_of(change.data)

    def findings(self) -> Findings:
        """The findings, by definition of the pool and by namespace."""
        return {key: found for each in list(self._found.values()) for key, found in each.items()}


def findings_in(objects: Iterable[Mapping[str, Any]]) -> Findings:
    """The findings in these SpotPools of all releases, by namespace for pools that several releases have."""
    found: Findings = {}
    for one in objects:
        for key, by_namespace in _findings_of(one).items():
            found[key] = {**found.get(key, {}), **by_namespace}
    return found


def _findings_of(data: Mapping[str, Any]) -> Findings:
    found: dict[str, Finding] = {}
    try:
        for one in (data.get("status") or {}).get("found") or ():
            since, until = (datetime.fromisoformat(str(one[key])).timestamp() for key in ("since", "until"))
            found[str(one["namespace"])] = Finding(
                str(one["pool"]), Pause(int(one["times"]), since, until), bool(one["said"])
            )
    except (KeyError, TypeError, ValueError) as error:
        _LOG.warning("SpotPool %s cannot be read (%s): its findings are ignored", metadata(data).get("name"), error)
        return {}
    return {str((data.get("spec") or {}).get("key", "")): found} if found else {}
