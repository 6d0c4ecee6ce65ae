"""Send one HTTP request with a limit on the total time and on the size of the answer, without proxies and redirects.

``http.client`` limits the time of each read, so a slowly sending server holds it for ever; ``urllib`` also uses the
environment's proxies, which must never see a metadata server's answers; and importing either costs more than this whole
package, which training code imports. Metadata servers speak a small part of HTTP/1.1 (RFC 9112), which is here. Headers and
dates are parsed by the standard library, imported when the first answer comes.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

from spotwright.notices.notice import SourceError

__all__ = ["MAX_BODY", "Answer", "HttpClient", "format_http_date", "parse_http_date"]

MAX_BODY = 1 << 18
"""Maximum size of an answer's body in bytes. The longest real one, the events of a scale set, has a few thousand."""

_MAX_HEAD = 1 << 14
_SHOWN = 60  # characters of an address or an answer that a message shows
_HTTP_DATE = re.compile(r"[A-Za-z]{3}, [0-9]{1,2} [A-Za-z]{3} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} (GMT|UTC)")


class Answer(NamedTuple):
    """An answer. Names of headers are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """A client of the server at ``http://HOST[:PORT]``; ``source`` is the server's name in messages.

    Raises :class:`SourceError` for any other address.
    """

    def __init__(self, source: str, url: str) -> None:
        self.source, self.url = source, url.rstrip("/")
        rest = self.url.removeprefix("http://")
        host, _, port = rest.rpartition(":") if not rest.endswith("]") else (rest, "", "")
        if not host:
            host, port = rest, ""
        self._host, self._port = host.strip("[]"), int(port) if port.isdecimal() else 80
        wrong = rest == self.url or "/" in rest or not self._host or (port and not port.isdecimal())
        if wrong or not 0 < self._port < 1 << 16:
            raise SourceError(f"{source}: {url[:_SHOWN]!r} is not a server address; use http://HOST:PORT")
        self._name = f"[{self._host}]" if ":" in self._host else self._host
        if port:
            self._name += f":{self._port}"

    def request(
        self,
        path: str,
        *,
        timeout: float,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Send one request and return its answer. All of it takes at most ``timeout`` seconds, from connecting to the last byte.

        The system resolves host names with its own time limit, so prefer addresses. Raises :class:`SourceError` if the server
        is unreachable, too slow, or does not speak HTTP.
        """
        deadline = time.monotonic() + timeout
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._name}", "Connection: close", "Accept: */*"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        request = "\r\n".join([*lines, "", ""]).encode() + body
        try:
            with socket.create_connection((self._host, self._port), max(timeout, 0.001)) as connection:
                _set_timeout(connection, deadline)
                connection.sendall(request)
                return _AnswerReader(connection, deadline).answer()
        except TimeoutError as error:
            raise SourceError(f"{self.source}: no answer from {self.url} within {timeout:.3g}s") from error
        except OSError as error:
            raise SourceError(f"{self.source}: no answer at {self.url} ({error.strerror or error})") from error
        except _NoHttpError as error:
            raise SourceError(f"{self.source}: {self.url} {error}") from error


class _NoHttpError(Exception):
    """The bytes are not an HTTP answer. The message continues a sentence that begins with the address."""


def _set_timeout(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


class _AnswerReader:
    """Reads one answer from a connection."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline = connection, deadline
        self._received = bytearray()

    def answer(self) -> Answer:
        """Read the whole answer."""
        first, _, lines = self._until(b"\r\n\r\n", _MAX_HEAD).decode("latin-1").partition("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdecimal() and len(code) == 3):
            raise _NoHttpError("does not speak HTTP")
        headers = _parse_headers(lines)
        return Answer(int(code), headers, self._body(headers))

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        length = headers.get("content-length")
        if length is None:
            while self._receive():
                _check_size(len(self._received))
            return bytes(self._received)
        if not (length.isascii() and length.isdecimal() and len(length) < 16):
            raise _NoHttpError("does not speak HTTP")
        _check_size(int(length))
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
            _check_size(len(body) + length)
            body += self._exactly(length)
            self._exactly(2)

    def _until(self, end: bytes, most: int) -> bytes:
        """The bytes before ``end``, which is removed too; refused if there are more than ``most``."""
        while (position := self._received.find(end)) < 0:
            if len(self._received) > most:
                raise _NoHttpError("does not speak HTTP")
            self._require_more()
        data = bytes(self._received[:position])
        del self._received[: position + len(end)]
        return data

    def _exactly(self, length: int) -> bytes:
        while len(self._received) < length:
            self._require_more()
        data = bytes(self._received[:length])
        del self._received[:length]
        return data

    def _require_more(self) -> None:
        if not self._receive():
            raise _NoHttpError("closed the connection before its answer was whole")

    def _receive(self) -> bool:
        """Receive more bytes; False at the end of the connection."""
        _set_timeout(self._connection, self._deadline)
        data = self._connection.recv(1 << 16)
        self._received += data
        return bool(data)


def _parse_headers(lines: str) -> dict[str, str]:
    """Headers by lower-case name; of two with one name the last counts."""
    from email.parser import Parser

    message = Parser().parsestr(lines, headersonly=True)
    if message.defects or message.get_payload():  # text after the headers
        raise _NoHttpError("does not speak HTTP")
    return {name.lower(): value.strip() for name, value in message.items()}


def _check_size(length: int) -> None:
    if length > MAX_BODY:
        raise _NoHttpError(f"answers with more than {MAX_BODY >> 10} KB")


def format_http_date(moment: float) -> str:
    """Write Unix seconds as a date of HTTP (``Sun, 06 Nov 1994 08:49:37 GMT``), in every locale; fractions are dropped."""
    from email.utils import formatdate

    return formatdate(moment, usegmt=True)


def parse_http_date(text: str) -> float | None:
    """Read a date of HTTP (``Sun, 06 Nov 1994 08:49:37 GMT``) as Unix seconds; ``None`` for any other text."""
    if not _HTTP_DATE.fullmatch(text):
        return None
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text.replace("UTC", "GMT")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
