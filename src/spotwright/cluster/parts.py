"""Runs the parts of a process side by side, and ends all of them when one ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

__all__ = ["all_end", "in_own_thread", "until", "until_one_ends"]


_POLL = 0.05  # seconds


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that other streams bring about."""
    while not condition():  # noqa: ASYNC110  # no event says when
        await asyncio.sleep(_POLL)


async def all_end(parts: Iterable[Awaitable[object]]) -> None:
    """Run all parts, wait until each has ended, and then raise the first error: no part goes on behind a failed one."""
    for result in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def until_one_ends(parts: Iterable[Awaitable[None]]) -> None:
    """Run all parts until one ends or this is cancelled; then end all. Raises the first one's error."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def in_own_thread(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work()`` on an event loop in a separate thread. A cancellation cancels it there and waits for it.

    Its exceptions are raised here.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(work())

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner, suppress(asyncio.CancelledError):
            runner.get_loop().run_until_complete(task)

    with ThreadPoolExecutor(1, thread_name_prefix="work") as executor:
        running = asyncio.get_running_loop().run_in_executor(executor, run)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # it has just ended, and closed its loop
                loop.call_soon_threadsafe(task.cancel)
            while not running.done():  # however often it is cancelled
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(running)
            raise
