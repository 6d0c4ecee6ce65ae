"""Creates the objects that pods mount for checkpoints in each namespace: the library's ConfigMap, and the policies' claims.

This module is separate because it is the only optional part of the controller that creates objects in users' namespaces, and it
needs no rights when it is off. It only uses ``create``, so existing objects stay unchanged; a new version of the library gets a
ConfigMap with a new name, beside the one that older pods mount. Without the right, people create both as the messages say;
everything else works as before.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from spotwright.checkpoint_file import config_map
from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.configurations import Configurations
from spotwright.cluster.missing_claims import claims_of
from spotwright.cluster.watched import ENABLED_LABEL

__all__ = ["CheckpointObjects", "ClaimForm"]

_LOG = logging.getLogger(__name__)
_EVERY = 30.0  # seconds between checks of the namespaces
_SURE = 600.0  # seconds for which an object's existence, or the refusal to create it, is cached
_LABELS = {"app.kubernetes.io/managed-by": "spotwright"}


class ClaimForm(NamedTuple):
    """The form of claims: ``size`` is a Kubernetes quantity, an empty ``storage_class`` the cluster's default.

    Pods on several nodes write to one claim, so a claim for a single node makes them wait for each other.
    """

    size: str
    storage_class: str = ""
    access_mode: str = "ReadWriteMany"


class CheckpointObjects:
    """Await :meth:`follow`. ``namespaces`` are the served ones; if empty, all labelled ones.

    ``claims``: how to create claims; None: do not. ``clock`` is monotonic.
    """

    def __init__(
        self,
        api: Api,
        configurations: Configurations,
        namespaces: Sequence[str] = (),
        *,
        library: bool = True,
        claims: ClaimForm | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._configurations, self._namespaces = api, configurations, tuple(namespaces)
        self._library, self._claims, self._clock = library, claims, clock
        self._done: dict[
            tuple[str, str, str], float
        ] = {}  # namespace with its UID, path and name: when it was requested

    async def follow(self) -> None:
        """Create missing objects periodically, until cancelled."""
        while True:
            try:
                await self.make()
            except ApiFailed as error:
                _LOG.warning("cannot create what checkpoints need: %s", error)
            await asyncio.sleep(_EVERY)

    async def make(self) -> None:
        """Create missing objects now. Raises :class:`ApiFailed` if the namespaces cannot be listed."""
        now = self._clock()
        self._done = {key: at for key, at in self._done.items() if now - at < _SURE}
        for namespace, uid in await self._served():
            for plural, made in self._wanted(namespace):
                key = f"{namespace}/{uid}", plural, str(made["metadata"]["name"])
                if key not in self._done and await self._create(namespace, plural, made):
                    self._done[key] = now

    async def _served(self) -> list[tuple[str, str]]:
        """The served namespaces with their known UIDs: a new namespace may reuse an old name."""
        if self._namespaces:
            return [(name, "") for name in self._namespaces]
        found = await self._api.get("/api/v1/namespaces", {"labelSelector": f"{ENABLED_LABEL}=true"})
        metadata = [each.get("metadata") or {} for each in found.get("items") or ()]
        return [(str(each["name"]), str(each.get("uid", ""))) for each in metadata if "deletionTimestamp" not in each]

    def _wanted(self, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if self._library:
            made = config_map()
            yield "configmaps", {**made, "metadata": {**made["metadata"], "labels": _LABELS}}
        if self._claims is not None:
            for name in claims_of(self._configurations.of(namespace)):
                yield "persistentvolumeclaims", _claim(name, self._claims)

    async def _create(self, namespace: str, plural: str, made: dict[str, Any]) -> bool:
        """Create an object unless it exists. False: try again soon."""
        name = made["metadata"]["name"]
        try:
            await self._api.send("POST", f"/api/v1/namespaces/{namespace}/{plural}", made)
        except ApiFailed as error:
            if error.status == _NO_NAMESPACE:
                return False
            if error.status != _EXISTS:
                _LOG.warning("cannot create %s %s/%s: %s", made["kind"], namespace, name, error)
            return not error.may_pass
        _LOG.info("created %s %s/%s: pods mount it for checkpoints", made["kind"], namespace, name)
        return True


_NO_NAMESPACE, _EXISTS = 404, 409


def _claim(name: str, form: ClaimForm) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": [form.access_mode], "resources": {"requests": {"storage": form.size}}}
    if form.storage_class:
        spec["storageClassName"] = form.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": _LABELS},
        "spec": spec,
    }
