"""Runs the parts of a process side by side: none goes on alone where another has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

__all__ = ["until_one_ends"]


async def until_one_ends(parts: Iterable[Awaitable[None]]) -> None:
    """Run all parts until one ends or this is cancelled; then all have ended. Raises what has ended the first one."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
