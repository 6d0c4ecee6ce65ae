"""The parts of a process run side by side, and all end when one has ended."""

from __future__ import annotations

import asyncio

import pytest

from spotwright.cluster.parts import all_end, until_one_ends
from spotwright.errors import InputError


class Parts:
    """Parts that run until they are cancelled, and take their time to end then."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    async def endless(self) -> None:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            self.ended += 1


async def fails() -> None:
    await asyncio.sleep(0.01)
    raise InputError("the file is missing")


async def ends() -> None:
    await asyncio.sleep(0.01)


def test_a_part_that_fails_ends_the_others_and_its_error_is_raised() -> None:
    parts = Parts()
    with pytest.raises(InputError, match="the file is missing"):
        asyncio.run(until_one_ends([parts.endless(), fails(), parts.endless()]))
    assert (parts.begun, parts.ended) == (2, 2)


def test_a_part_that_ends_without_an_error_ends_the_others_too() -> None:
    parts = Parts()
    asyncio.run(until_one_ends([parts.endless(), ends()]))
    assert parts.ended == 1


def test_all_parts_have_ended_when_they_are_cancelled() -> None:
    parts = Parts()

    async def cancelled() -> None:
        task = asyncio.ensure_future(until_one_ends([parts.endless(), parts.endless()]))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert parts.ended == 2

    asyncio.run(cancelled())


def test_no_part_goes_on_behind_a_failed_one() -> None:
    done: list[int] = []

    async def late(number: int) -> None:
        await asyncio.sleep(0.02 * number)
        done.append(number)

    async def run() -> None:
        with pytest.raises(InputError, match="the file is missing"):
            await all_end([late(1), fails(), late(2)])
        assert done == [1, 2]

    asyncio.run(run())
