"""A client of the API server for benchmarks: many requests at once over connections that stay open."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import yaml
from testbed.settings import Settings

__all__ = ["Requests", "connected"]

Object = dict[str, Any]


class Requests:
    """Sends requests; an answer with an error is a :class:`RuntimeError` with its text."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(self, method: str, path: str, body: object = None, *, missing_is_fine: bool = False) -> Object:
        """Send one request. A body of a PATCH is a merge patch."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        async with self._session.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
            if answer.status >= 400 and not (missing_is_fine and answer.status in (404, 409)):
                raise RuntimeError(f"{method} {path}: {answer.status} {await answer.text()}")
            found: Object = await answer.json()
            return found

    async def all(self, path: str) -> list[Object]:
        """All objects of a list, page by page."""
        items: list[Object] = []
        more = ""
        while True:
            page = await self.send("GET", f"{path}{'&' if '?' in path else '?'}limit=500&continue={more}")
            items += page["items"]
            more = page["metadata"].get("continue", "")
            if not more:
                return items


@asynccontextmanager
async def connected(settings: Settings, connections: int = 64) -> AsyncIterator[Requests]:
    """A client of a test bed with a limited number of connections."""
    config = yaml.safe_load(settings.kubeconfig.read_text(encoding="utf-8"))
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    connector = aiohttp.TCPConnector(ssl=context, limit=connections)
    headers, timeout = {"Authorization": f"Bearer {token}"}, aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(
        cluster["server"], connector=connector, headers=headers, timeout=timeout
    ) as session:
        yield Requests(session)


async def until(condition: Any, what: str, seconds: float, every: float = 0.2) -> Any:
    """Ask an async condition again until it gives something true, and return that."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while not (found := await condition()):
        if loop.time() > ends:
            raise RuntimeError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(every)
    return found
