"""A part of the controller on a separate event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from spotwright.cluster.parts import in_own_thread
from spotwright.errors import StateError


def test_a_part_that_blocks_holds_up_nobody_else() -> None:
    blocked, go_on = threading.Event(), threading.Event()

    async def blocks() -> None:
        blocked.set()
        assert go_on.wait(600)

    async def answers() -> None:
        part = asyncio.create_task(in_own_thread(blocks))
        while not blocked.is_set():  # noqa: ASYNC110  # a thread sets it
            await asyncio.sleep(0.01)
        go_on.set()  # this line is reached although the part does nothing but wait for it
        await part

    asyncio.run(answers())


def test_a_part_that_is_cancelled_has_ended_afterwards() -> None:
    began, ended = threading.Event(), threading.Event()

    async def waits() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def cancels() -> None:
        part = asyncio.create_task(in_own_thread(waits))
        while not began.is_set():  # noqa: ASYNC110  # a thread sets it
            await asyncio.sleep(0.01)
        part.cancel()
        with pytest.raises(asyncio.CancelledError):
            await part
        assert ended.is_set()

    asyncio.run(cancels())


def test_what_a_part_raises_comes_out() -> None:
    async def fails() -> None:
        raise StateError("the disk is full")

    with pytest.raises(StateError, match="the disk is full"):
        asyncio.run(in_own_thread(fails))


def test_a_part_that_is_cancelled_twice_holds_up_nobody_while_it_ends() -> None:
    began, go_on = threading.Event(), threading.Event()

    async def works() -> None:
        began.set()
        assert go_on.wait(600)  # a look that cannot be interrupted

    async def cancels() -> None:
        part = asyncio.create_task(in_own_thread(works))
        while not began.is_set():  # noqa: ASYNC110  # a thread sets it
            await asyncio.sleep(0.01)
        for _ in range(2):
            part.cancel()
            await asyncio.sleep(0.05)
        go_on.set()  # this line is reached although the thread works
        with pytest.raises(asyncio.CancelledError):
            await part

    asyncio.run(cancels())
