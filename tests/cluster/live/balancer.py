"""Stands in for a Service: accepts connections at one address and passes each to the next available server.

``python -m tests.cluster.live.balancer HOST:PORT HOST:PORT ...``; the first address is the one at which it listens.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from contextlib import suppress

_PIECE = 65_536


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def _connect(turns: Iterator[str], count: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    for _ in range(count):
        with suppress(OSError):
            return await asyncio.open_connection(*_address(next(turns)))
    return None


async def main(at: str, *servers: str) -> None:
    """Serve until ended."""
    turns = itertools.cycle(servers)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = await _connect(turns, len(servers))
        if found is None:
            writer.close()
            return
        await asyncio.gather(_copy(reader, found[1]), _copy(found[0], writer))

    server = await asyncio.start_server(take, *_address(at))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
