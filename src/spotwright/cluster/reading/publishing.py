"""What a controller does to be read from: it listens beside the webhook, and publishes the authority of its certificate."""

from __future__ import annotations

import logging
import ssl

from aiohttp import web

from spotwright.cluster.api.requests import Api, ApiFailed
from spotwright.cluster.reading.access import Access, client_authority
from spotwright.cluster.reading.find_controller import CONFIG_MAP
from spotwright.cluster.reading.liveness import is_alive
from spotwright.cluster.reading.run_index import RunIndex
from spotwright.cluster.reading.server import ReadingServer, accept_certificates
from spotwright.records.state_folder import StateFolder

__all__ = ["publish_authority", "start_reading"]

_LOG = logging.getLogger(__name__)


async def start_reading(
    state: StateFolder, api: Api, context: ssl.SSLContext, *, host: str | None, port: int
) -> web.AppRunner:
    """Serve the runs of a state folder; ``await runner.cleanup()`` ends it.

    ``context`` has the serving certificate. Client certificates are accepted where the API server publishes their authority and
    we may read it, else tokens alone. Raises :class:`OSError` where the port cannot be listened on.
    """
    try:
        accept_certificates(context, await client_authority(api))
    except (ApiFailed, ssl.SSLError) as error:
        _LOG.warning("people are read by their tokens alone, not by client certificates: %s", error)
    return await ReadingServer(RunIndex(state, is_alive, api.now), Access(api)).start(context, host=host, port=port)


async def publish_authority(api: Api, namespace: str, authority: str) -> None:
    """Write the authority (PEM text) into the ConfigMap from which readers take it. Raises :class:`ApiFailed`."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    found = await api.get_or_none(f"{path}/{CONFIG_MAP}")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": {"ca.crt": authority}}
    if found is None:
        await api.send("POST", path, body)
    elif (found.get("data") or {}).get("ca.crt") != authority:
        await api.send("PUT", f"{path}/{CONFIG_MAP}", {**found, "data": body["data"]})
