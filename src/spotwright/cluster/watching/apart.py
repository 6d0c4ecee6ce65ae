"""Runs the part that watches on an event loop of its own, in a thread.

Journals are written with fsync, which a busy disk holds up for seconds. On the loop of the webhook a review would wait for it,
until the API server goes on without us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

__all__ = ["apart"]


async def apart(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work()`` to its end; cancelled, it is cancelled there and waited for. What it raises comes out here."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work())

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner, suppress(asyncio.CancelledError):
            runner.get_loop().run_until_complete(task)

    with ThreadPoolExecutor(1, thread_name_prefix="watching") as executor:
        running = asyncio.get_running_loop().run_in_executor(executor, run)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.done():
                loop.call_soon_threadsafe(task.cancel)
                await running
            raise
