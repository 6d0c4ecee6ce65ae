"""Lets people read runs beside the webhook: a port of its own, with the webhook's certificate and the authority published."""

from __future__ import annotations

import logging
import ssl

from aiohttp import web

from spotwright.cluster.api.requests import Api, ApiFailed
from spotwright.cluster.controller.settings import Settings
from spotwright.cluster.reading.publishing import publish_authority, start_reading
from spotwright.errors import InputError
from spotwright.records.state_folder import StateFolder

__all__ = ["Readers"]

_LOG = logging.getLogger(__name__)


class Readers:
    """The server that people read from, if the settings name a port for it; else every call does nothing."""

    def __init__(self, settings: Settings, api: Api, state: StateFolder) -> None:
        self._settings, self._api, self._state = settings, api, state
        self._runner: web.AppRunner | None = None
        self._problem = ""

    async def start(self, context: ssl.SSLContext) -> None:
        """Listen with this certificate. Raises :class:`InputError` where the port cannot be listened on."""
        port = self._settings.read_port
        if port is None:
            return
        host = self._settings.read_host
        try:
            self._runner = await start_reading(self._state, self._api, context, host=host, port=port)
        except OSError as error:
            raise InputError(f"{host}:{port}: cannot listen there ({error}); see --read-listen") from error
        _LOG.info("runs are read at https://%s:%d", host, self._runner.addresses[0][1])

    async def publish(self, authority: bytes) -> None:
        """Write the authority where readers find it. Without the right to do so they name a file themselves."""
        if self._runner is None:
            return
        try:
            await publish_authority(self._api, self._settings.home, authority.decode())
            self._problem = ""
        except ApiFailed as error:
            if self._problem != str(error):
                _LOG.warning("readers do not find the authority of our certificate: %s", error)
            self._problem = str(error)

    async def stop(self) -> None:
        """End every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
