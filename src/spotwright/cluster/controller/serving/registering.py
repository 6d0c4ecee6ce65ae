"""Writes the webhook's registration into the cluster, and takes it out again.

It is written when this process can answer, and again when its certificate authority changes. Nothing puts it back in between: who
takes it out, by ``spotwright controller --unregister`` or with kubectl, has switched admission off.
"""

from __future__ import annotations

import logging
from typing import Any

from spotwright.cluster.admission.registration import webhook_configuration
from spotwright.cluster.api.requests import Api, ApiFailed

__all__ = ["Registration"]

_LOG = logging.getLogger(__name__)
_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_TRIES = 5  # replicas may write at once


class Registration:
    """The registration named ``name``. ``where`` is the namespace and name of a Service, or an ``https`` address."""

    def __init__(self, api: Api, name: str, where: tuple[str, str] | str) -> None:
        self._api, self._name, self._where = api, name, where
        self._written = b""

    async def put(self, authority: bytes) -> None:
        """Write it with this certificate authority, unless this process has done so already. Raises :class:`ApiFailed`."""
        if authority == self._written:
            return
        wanted = webhook_configuration(self._name, self._where, authority)
        for attempt in range(1, _TRIES + 1):
            try:
                await self._put_once(wanted)
                break
            except ApiFailed as error:
                if error.status != 409 or attempt == _TRIES:
                    raise
        self._written = authority
        _LOG.info("the webhook is registered as %s", self._name)

    async def _put_once(self, wanted: dict[str, Any]) -> None:
        found = await self._api.get_or_none(f"{_PATH}/{self._name}")
        if found is None:
            await self._api.send("POST", _PATH, wanted)
            return
        await self._api.send("PUT", f"{_PATH}/{self._name}", {**found, "webhooks": wanted["webhooks"]})

    async def remove(self) -> bool:
        """Take it out; false if it was not there. Raises :class:`ApiFailed`."""
        try:
            await self._api.send("DELETE", f"{_PATH}/{self._name}")
        except ApiFailed as error:
            if error.status == 404:
                return False
            raise
        return True
