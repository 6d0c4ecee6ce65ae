"""A page that is really served: the server in a thread, its worker in a process, requests as bytes over a socket."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.page.identity import LocalToken
from spotwright.page.page_files import PageFiles
from spotwright.page.page_server import PageServer
from spotwright.page.workers import Workers

TOKEN = "t0ken"


class Answer(NamedTuple):
    """An answer as it came; ``headers`` with names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The document."""
        return json.loads(gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body)


def assets(folder: Path) -> Path:
    """The files of a small page: the modules of others are not in the repository."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(
        '<html data-root="{root}">{preloads}<script type="importmap">{import_map}</script>'
    )
    (folder / "app.js").write_text("export {};\n")
    (folder / "vendor.json").write_text("{}")
    return folder


class Served:
    """A page. ``cookie``: of somebody who came with the token."""

    def __init__(
        self, source: Mapping[str, Any], files: Path, *, base: str = "", host_names: tuple[str, ...] = ()
    ) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self.workers = Workers({"source": dict(source)})
        self.files = PageFiles(assets(files))
        identity = LocalToken(self.port, TOKEN)
        self.cookie = "=".join(identity.cookie())
        about = {"version": "1", "source": "state", "place": ""}
        self.server = PageServer(self.workers, identity, self.files, about=about, base=base, host_names=host_names)
        self._ends = asyncio.Event()

    async def run(self) -> None:
        """Serve until :meth:`end`."""
        async with self.server.serving(self.listening):
            await self._ends.wait()

    def end(self) -> None:
        """End the server and its worker."""
        self.loop.call_soon_threadsafe(self._ends.set)

    def connect(self) -> socket.socket:
        """A connection to the server."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def send(self, request: bytes) -> Answer:
        """The answer to a request as it is written here."""
        with self.connect() as connection:
            connection.sendall(request)
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(65536)
                assert piece, f"the connection was closed: {head!r}"
                head += piece
            lines, _, body = head.partition(b"\r\n\r\n")
            first, *rest = lines.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
            length = int(headers.get("content-length", 0))
            while len(body) < length and not request.startswith(b"HEAD"):
                body += connection.recv(65536)
            return Answer(int(first.split()[1]), headers, body)

    def ask(self, path: str, method: str = "GET", *, cookie: bool = True, **headers: Any) -> Answer:
        """The answer to a request of the page itself, with other headers where they are given (``_`` for a dash)."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Connection": "close"}
        if cookie:
            sent["Cookie"] = self.cookie
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        return self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def api(self, path: str) -> Any:
        """The document of an answer of the API, which must be one."""
        answer = self.ask(f"/api/v1/{path}")
        assert answer.status == 200, answer
        return answer.json()

    @contextmanager
    def stream(self, run: str, after: str) -> Iterator[Iterator[tuple[str, Any]]]:
        """The events of a run: their names and documents."""
        with self.connect() as connection:
            target = f"/api/v1/stream?run={run}&after={after}"
            lines = [f"GET {target} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Cookie: {self.cookie}"]
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            text = ""
            while "retry: " not in text:  # it has begun
                text += connection.recv(65536).decode()
            yield _events(connection, text)


def _events(connection: socket.socket, text: str) -> Iterator[tuple[str, Any]]:
    while True:
        while found := re.search(r"event: (\w+)\ndata: (.*)\n\n", text):
            text = text[found.end() :]
            yield found[1], json.loads(found[2])
        piece = connection.recv(65536)
        if not piece:
            return
        text += piece.decode()


@contextmanager
def serving(source: Mapping[str, Any], files: Path, **options: Any) -> Iterator[Served]:
    """A page of a source. Its files are made in the folder ``files``."""
    served = Served(source, files, **options)
    thread = threading.Thread(target=lambda: served.loop.run_until_complete(served.run()))
    thread.start()
    try:
        yield served
    finally:
        served.end()
        thread.join(20)
        assert not thread.is_alive(), "the page does not end"
        served.loop.close()


def soon(seconds: float = 20.0) -> Iterator[None]:
    """A loop with a pause in each round, which fails after so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        time.sleep(0.05)
    raise AssertionError(f"did not come within {seconds:g} seconds")
