"""Stores of logs for tests: a folder, S3 on the loopback, and S3 that fails on demand."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from spotwright.cluster.log_parts import Objects, StoredLogs
from spotwright.cluster.log_place import LogName
from spotwright.cluster.log_store import LogStore
from spotwright.records.state_folder import StateFolder

BUCKET = "logs"


class FailingStore:
    """Passes requests on to a server, or answers them itself. ``fault``: a status and a code of S3's; a status of 0 hangs up."""

    def __init__(self, behind: str) -> None:
        self.fault: tuple[int, str] | None = None
        self.cut_behind = ""  # the end of an object's name: its next write is done and not answered
        self.asked: list[str] = []
        self._behind = urlsplit(behind).netloc
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                store.asked.append(f"{self.command} {self.path}")
                if store.fault is not None:
                    status, code = store.fault
                    if not status:
                        self.close_connection = True
                        return
                    text = f"<Error><Code>{code}</Code><Message>AKIDSECRET</Message></Error>".encode()
                    self.reply(status, {}, text)
                    return
                connection = http.client.HTTPConnection(store._behind, timeout=30)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                if store.cut_behind and self.command == "PUT" and self.path.endswith(store.cut_behind):
                    store.cut_behind, self.close_connection = "", True
                    return
                self.reply(answer.status, dict(answer.getheaders()), data)

            def reply(self, status: int, headers: dict[str, str], data: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[FailingStore]:
        """Serve."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


class Killed(BaseException):
    """The process ends here."""


class Death:
    """Ends the process at a write into the store, before it or (``is_done``) behind it."""

    def __init__(self, patch: pytest.MonkeyPatch, *, is_done: bool) -> None:
        self._left, self._is_done = -1, is_done
        for name in ("put_new", "delete"):
            patch.setattr(Objects, name, self._dying(getattr(Objects, name)))

    def comes(self, at: int, work: Callable[[], object]) -> bool:
        """Whether the process was killed at this write of the work, counted from 1; else it has fewer."""
        self._left = at
        try:
            work()
        except Killed:
            return True
        finally:
            self._left = -1
        return False

    def _dying(self, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def dying(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._is_done:
                raise Killed
            done = await write(*arguments)
            if self._left == 0:
                raise Killed
            return done

        return dying


def a_name(attempt: int = 1, run: str = "team-a.train-1234", task: str = "train") -> LogName:
    return LogName(run, task, attempt)


def a_state(folder: Path, *runs: str) -> StateFolder:
    """A state folder with these runs."""
    state = StateFolder.open(folder / "state")
    for run in runs or (a_name().run,):
        (state.path / "runs" / run).mkdir(exist_ok=True)
    return state


def notes(number: int = 0) -> dict[str, object]:
    return {"namespace": "team-a", "pod": "train-x", "uid": "u1", "restart": 0, "next": number}


async def write_whole(store: LogStore, name: LogName, *texts: bytes, is_over: bool = True) -> None:
    """Write a log, each text as a part."""
    log = store.log(name)
    await log.open()
    for number, text in enumerate(texts):
        await log.append(text, notes(number + 1))
        task = log.hurry()
        if task is not None:
            await task
    if is_over:
        await log.finish()
    await log.close()


async def read_whole(url: str, name: LogName, at_once: int = 1 << 20) -> bytes | None:
    """A log as a reader that has not asked before finds it."""
    logs, found = StoredLogs(Objects(url)), b""
    while True:
        part = await logs.read(name, len(found), at_once)
        if part is None:
            return None
        found += part
        if len(part) < at_once:
            return found


async def keys(url: str) -> list[str]:
    """The names of all objects."""
    return sorted([each.key async for found in Objects(url).list() for each in found])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # another process or thread makes it true
        await asyncio.sleep(0.01)


def run_async(work: Awaitable[None]) -> None:
    """Run a test's coroutine, for a minute at most."""

    async def bounded() -> None:
        await asyncio.wait_for(work, 60)

    asyncio.run(bounded())
