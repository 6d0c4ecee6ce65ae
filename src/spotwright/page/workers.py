"""The processes that read runs for the web process, which does not compute.

Folding 120,000 events takes more than half a second, which would block every other answer in the web process. A run's worker is
chosen by the digest of its name, so that its state is kept once.

A question is JSON, an answer bytes that are passed on unchanged, both through the process's pipes. They share nothing else.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

__all__ = ["ANSWER", "QUESTION", "Answer", "Workers"]

QUESTION = struct.Struct(">I")
"""Before a question: its length."""

ANSWER = struct.Struct(">IHBI")
"""Before an answer: the number of its question, an HTTP status, 1 where the body is compressed with gzip, its length."""

_LONGEST = 120.0  # seconds for an answer; a slower worker counts as hanging and is ended
_ENDING = 2.0  # seconds until a worker that does not end is killed
_WAITING = 200  # waiting questions of one worker; more are refused, because the client is too fast


class Answer(NamedTuple):
    """The answer of a worker. ``body`` is compressed with gzip if ``is_gzip``."""

    status: int
    body: bytes
    is_gzip: bool


class Workers:
    """Starts workers on first use, and replaces dead ones."""

    def __init__(self, settings: Mapping[str, Any], count: int = 1) -> None:
        self._settings = dict(settings)
        self._workers = [_Worker(self._settings) for _ in range(count)]

    async def ask(self, what: str, run: str = "", **asked: Any) -> Answer:
        """The answer to a question about a run, or about all runs."""
        worker = self._workers[zlib.crc32(run.encode()) % len(self._workers)]
        return await worker.ask({"ask": what, "run": run, **asked})

    @property
    def pids(self) -> Sequence[int]:
        """The pids of the living processes."""
        return [worker.pid for worker in self._workers if worker.pid]

    async def close(self) -> None:
        """End the processes, even hanging ones."""
        await asyncio.gather(*(worker.close() for worker in self._workers))


class _Worker:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._number = 0
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int:
        return 0 if self._process is None or self._process.returncode is not None else self._process.pid

    async def ask(self, question: Mapping[str, Any]) -> Answer:
        if len(self._waiting) >= _WAITING:
            return _failure(503, "busy", "too many requests to the page at once: reload it in a moment")
        async with self._starting:
            process = self._process
            if process is None or process.returncode is not None or self._reader is None or self._reader.done():
                try:
                    process = await self._start()
                except OSError as error:
                    return _failure(503, "worker", f"cannot start a process to read runs ({error.strerror})")
        self._number = self._number % 0xFFFFFFFF + 1
        number = self._number
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waiting = self._waiting
        waiting[number] = future
        try:
            assert process.stdin is not None  # noqa: S101  # it was started with a pipe
            async with asyncio.timeout(_LONGEST):
                _write(process.stdin, {**question, "id": number})
                await process.stdin.drain()
                return await future
        except (BrokenPipeError, ConnectionResetError):
            return _ended()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            return _failure(503, "worker", f"no answer for {_LONGEST:.0f} seconds: reload the page")
        finally:
            waiting.pop(number, None)

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "spotwright.page.worker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        _write(process.stdin, self._settings)
        self._process, self._waiting = process, {}  # the former process ends its own questions
        self._reader = asyncio.create_task(self._read(process.stdout, process, self._waiting))
        return process

    async def _read(
        self,
        stream: asyncio.StreamReader,
        process: asyncio.subprocess.Process,
        waiting: Mapping[int, asyncio.Future[Answer]],
    ) -> None:
        try:
            while True:
                number, status, is_gzip, length = ANSWER.unpack(await stream.readexactly(ANSWER.size))
                body = await stream.readexactly(length)
                future = waiting.get(number)
                if future is not None and not future.done():
                    future.set_result(Answer(status, body, bool(is_gzip)))
        except asyncio.IncompleteReadError:
            await process.wait()
            for future in waiting.values():
                if not future.done():
                    future.set_result(_ended())

    async def close(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _ENDING)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reader is not None:
            await self._reader


def _write(stream: asyncio.StreamWriter, data: Mapping[str, Any]) -> None:
    text = json.dumps(data, separators=(",", ":")).encode()
    stream.write(QUESTION.pack(len(text)) + text)


def _ended() -> Answer:
    return _failure(503, "worker", "the process that reads runs ended and is restarting: reload the page")


def _failure(status: int, kind: str, message: str) -> Answer:
    return Answer(status, json.dumps({"error": kind, "message": message}).encode(), is_gzip=False)
