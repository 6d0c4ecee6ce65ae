"""One question to a server over HTTP, with an end in sight: so much time for all of it, so many bytes, no proxy, no redirect.

The library's own HTTP client gives each read its own time limit, so a server that sends a byte now and then holds it for ever;
it also asks whatever proxy the environment names, to which a metadata server must never be entrusted; and importing it costs
more than all of this package. What a metadata server speaks is a small part of HTTP/1.1 (RFC 9112), and that part is here.
"""

from __future__ import annotations

import calendar
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

from spotwright.notices.notice import SourceError

__all__ = ["MOST", "Answer", "Server", "http_date", "http_text"]

MOST = 1 << 18
"""Bytes of an answer's body that are read. The longest real one, a scale set's events, is a few thousand."""

_MOST_HEAD = 1 << 14
_SHOWN = 60  # characters of an address or an answer that a message shows


class Answer(NamedTuple):
    """What a server said. Names of headers are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Server:
    """A server at ``http://HOST[:PORT]``; ``who`` is its name in messages. Raises :class:`SourceError` for any other address."""

    def __init__(self, who: str, url: str) -> None:
        self.who, self.url = who, url.rstrip("/")
        rest = self.url.removeprefix("http://")
        host, _, port = rest.rpartition(":") if not rest.endswith("]") else (rest, "", "")
        if not host:
            host, port = rest, ""
        self._host, self._port = host.strip("[]"), int(port) if port.isdecimal() else 80
        wrong = rest == self.url or "/" in rest or not self._host or (port and not port.isdecimal())
        if wrong or not 0 < self._port < 1 << 16:
            raise SourceError(f"{who}: {url[:_SHOWN]!r} is no address of a server: expected http://HOST:PORT")
        self._name = f"[{self._host}]" if ":" in self._host else self._host
        if port:
            self._name += f":{self._port}"

    def ask(
        self,
        path: str,
        *,
        patience: float,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Ask one question. All of it, name and connection to the last byte, takes at most ``patience`` seconds.

        A host's name is looked up by the system, which has its own patience: addresses are better. Raises
        :class:`SourceError` where nobody answers in time, or what comes is no HTTP.
        """
        deadline = time.monotonic() + patience
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._name}", "Connection: close", "Accept: */*"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        request = "\r\n".join([*lines, "", ""]).encode() + body
        try:
            with socket.create_connection((self._host, self._port), max(patience, 0.001)) as connection:
                _in_time(connection, deadline)
                connection.sendall(request)
                return _Reader(connection, deadline).answer()
        except TimeoutError as error:
            raise SourceError(f"{self.who}: no answer from {self.url} within {patience:.3g}s") from error
        except OSError as error:
            raise SourceError(f"{self.who}: nothing answers at {self.url} ({error.strerror or error})") from error
        except _NoHttpError as error:
            raise SourceError(f"{self.who}: {self.url} {error}") from error


class _NoHttpError(Exception):
    """What came is no answer; the message continues a sentence that begins with the address."""


def _in_time(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


class _Reader:
    """Reads one answer from a connection."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline = connection, deadline
        self._held = bytearray()

    def answer(self) -> Answer:
        """The whole answer."""
        first, *lines = self._until(b"\r\n\r\n", _MOST_HEAD).decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdecimal() and len(code) == 3):
            raise _NoHttpError("does not speak HTTP")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise _NoHttpError("does not speak HTTP")
            headers[name.strip().lower()] = value.strip()
        return Answer(int(code), headers, self._body(headers))

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        length = headers.get("content-length")
        if length is None:
            while self._more():
                _check(len(self._held))
            return bytes(self._held)
        if not (length.isascii() and length.isdecimal() and len(length) < 16):
            raise _NoHttpError("does not speak HTTP")
        _check(int(length))
        return self._exactly(int(length))

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            size = self._until(b"\r\n", 64).partition(b";")[0].strip()
            try:
                length = int(size, 16)
            except ValueError as error:
                raise _NoHttpError("does not speak HTTP") from error
            if length <= 0:
                return bytes(body)
            _check(len(body) + length)
            body += self._exactly(length)
            self._exactly(2)

    def _until(self, end: bytes, most: int) -> bytes:
        """What comes before ``end``, which is taken too."""
        while (at := self._held.find(end)) < 0:
            if len(self._held) > most:
                raise _NoHttpError("does not speak HTTP")
            self._need_more()
        found = bytes(self._held[:at])
        del self._held[: at + len(end)]
        return found

    def _exactly(self, length: int) -> bytes:
        while len(self._held) < length:
            self._need_more()
        found = bytes(self._held[:length])
        del self._held[:length]
        return found

    def _need_more(self) -> None:
        if not self._more():
            raise _NoHttpError("closed the connection before its answer was whole")

    def _more(self) -> bool:
        _in_time(self._connection, self._deadline)
        data = self._connection.recv(1 << 16)
        self._held += data
        return bool(data)


def _check(length: int) -> None:
    if length > MOST:
        raise _NoHttpError(f"answers with more than {MOST >> 10} KB")


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def http_text(moment: float) -> str:
    """Unix seconds as HTTP writes a date, whatever language this machine speaks; the fraction is left out."""
    year, month, day, hour, minute, second, weekday, *_ = time.gmtime(moment)
    return f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year} {hour:02}:{minute:02}:{second:02} GMT"


def http_date(text: str) -> float | None:
    """A date as HTTP writes it (``Sun, 06 Nov 1994 08:49:37 GMT``) in Unix seconds; ``None`` for anything else."""
    words = text.split()
    if len(words) != 6 or words[5] not in {"GMT", "UTC"} or words[2] not in _MONTHS:
        return None
    clock = words[4].split(":")
    numbers = [words[1], words[3], *clock]
    if len(clock) != 3 or not all(number.isascii() and number.isdecimal() and len(number) <= 4 for number in numbers):
        return None
    day, year, hour, minute, second = map(int, numbers)
    if not (year >= 1970 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    return float(calendar.timegm((year, _MONTHS.index(words[2]) + 1, day, hour, minute, second)))
