"""Test servers on loopback that answer as a test wants, right or wrong; one thread per connection, closed with the test."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import pytest

from spotwright.notices import Notice

__all__ = ["Callback", "Server", "answer", "json_answer", "wait_until"]

Reply = Callable[[str], "bytes | Iterator[bytes] | None"]
"""From the text of a request to the bytes of the answer, in pieces or at once; ``None`` does not answer and holds the line."""


class Server:
    """Listens from its making on; use it as a context manager. ``requests`` are the texts that came."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.requests: list[str] = []
        self.closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while not self.closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            text = _request(connection)
            self.requests.append(text)
            answer_bytes = self.reply(text)
            if answer_bytes is None:
                self.closed.wait(30)
            elif isinstance(answer_bytes, bytes):
                connection.sendall(answer_bytes)
            else:
                for piece in answer_bytes:
                    connection.sendall(piece)
                    if self.closed.is_set():
                        return


def _request(connection: socket.socket) -> str:
    text = b""
    while b"\r\n\r\n" not in text:
        data = connection.recv(65536)
        if not data:
            return text.decode()
        text += data
    head, _, body = text.partition(b"\r\n\r\n")
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while length and len(body) < int(length[0].partition(b":")[2]):
        body += connection.recv(65536)
    return (head + b"\r\n\r\n" + body).decode()


def answer(body: bytes | str = b"", status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """An answer of HTTP."""
    body = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """An answer of HTTP that holds JSON."""
    return answer(json.dumps(content), status, {"Content-Type": "application/json", **(headers or {})})


class Callback:
    """The calls of a watch."""

    def __init__(self) -> None:
        self.notices: list[Notice | None] = []
        self.at: list[float] = []

    def __call__(self, notice: Notice | None) -> None:
        self.at.append(time.time())
        self.notices.append(notice)


def after(began: float, seconds: float) -> Any:
    """A moment so many seconds after ``began`` or later, but not after now; clouds write dates in whole seconds."""
    took = time.time() - began
    return pytest.approx(began + took / 2 + seconds, abs=took / 2 + 1)


def wait_until(what: str, condition: Callable[[], object], seconds: float = 300.0) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds}s: {what}"
        time.sleep(0.005)
