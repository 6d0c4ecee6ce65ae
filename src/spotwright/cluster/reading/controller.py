"""Requests to the controller of a cluster: through a port-forward to its pod, or straight to its address.

In both cases TLS reaches from here to the controller, and its certificate is checked, because the request carries the caller's
own login. Requests only read, so one whose connection was cut is sent again: what is read goes on at its offset.
"""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

from spotwright.errors import InputError, SpotwrightError, StateError, UnknownRun

__all__ = ["LOG_AT_ONCE", "Controller", "ControllerGone", "Login"]

LOG_AT_ONCE = 1024 * 1024
"""Bytes of a log in one answer; a shorter answer has all that there is so far."""

_SILENT = 60.0  # seconds without a byte of an answer; the longest wait for events is 30 s
_TRIES = 8
_FIRST_TRIES = 4  # of a controller that has not answered before: 1.4 s
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 8.0  # 30 s in all until a connection counts as lost
_FAULTS = (OSError, http.client.HTTPException, EOFError, zlib.error)


class Login(Protocol):
    """The login of the caller."""

    @property
    def has_certificate(self) -> bool:
        """Whether it is a client certificate."""

    def authorization(self, *, again: bool = False) -> str:
        """The header with a token, or nothing; ``again``: another one than before."""

    def expired(self) -> InputError:
        """The error of a login that is not accepted any more."""


class ControllerGone(SpotwrightError):
    """The connection to the controller was lost and did not come back."""


class Controller:
    """One controller. ``dial`` connects to it; ``name`` is that of its certificate, ``place`` says where it is, for messages."""

    def __init__(
        self, dial: Callable[[], socket.socket], context: ssl.SSLContext, name: str, place: str, login: Login
    ) -> None:
        self._dial, self._context, self._name, self.place, self._login = dial, context, name, place, login
        self._connection: http.client.HTTPConnection | None = None
        self._authorization = login.authorization()
        self._has_answered = False

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """The JSON object of an answer. Raises :class:`SpotwrightError` with what the controller says."""
        answer: dict[str, Any] = json.loads(self.get_bytes(path, params))
        return answer

    def get_bytes(self, path: str, params: Mapping[str, object] | None = None) -> bytes:
        """The content of an answer. Raises like :meth:`get`."""
        target = f"{path}?{urlencode(params)}" if params else path
        status, content = self._ask_again(target)
        if status == 401:
            another = self._login.authorization(again=True)
            if another not in {"", self._authorization}:
                self._authorization = another
                status, content = self._ask_again(target)
        if status != 200:
            raise self._error(status, content)
        return content

    def _ask_again(self, target: str) -> tuple[int, bytes]:
        pause = _FIRST_PAUSE
        for number in range(1, _TRIES + 1):
            try:
                return self._ask(target)
            except ssl.SSLCertVerificationError as error:
                self.close()
                raise InputError(
                    f"{self.place}: its certificate is not the controller's ({error.verify_message}); nothing was sent to it"
                ) from error
            except _FAULTS as error:
                self.close()
                if number >= (_TRIES if self._has_answered else _FIRST_TRIES):
                    raise self._gone(error) from error
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)
        raise AssertionError("the last try returns or raises")

    def _ask(self, target: str) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = _Connection(self._dial, self._context, self._name)
        headers = {"Accept-Encoding": "gzip"} | ({"Authorization": self._authorization} if self._authorization else {})
        self._connection.request("GET", target, headers=headers)
        answer = self._connection.getresponse()
        content = answer.read()
        self._has_answered = True
        if answer.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        if answer.status in {502, 504}:
            raise http.client.HTTPException(
                f"status {answer.status}"
            )  # of what lies between; the controller sends none
        return answer.status, content

    def _gone(self, error: Exception) -> ControllerGone:
        """The error of a connection that does not come back, or that nobody has answered."""
        if self._has_answered:
            return ControllerGone(
                f"{self.place}: the connection was lost and does not come back ({_named(error)}); "
                "repeat the command once the controller runs"
            )
        text = f"{self.place}: does not answer ({_named(error)}); see whether it runs"
        if self._login.has_certificate:  # a server that refuses one may close the connection without a word
            text += ", and whether your client certificate is of this cluster and has not expired"
        return ControllerGone(text)

    def _error(self, status: int, content: bytes) -> SpotwrightError:
        try:
            told = json.loads(content)
            kind, message = str(told["error"]), str(told["message"])
        except (ValueError, KeyError, TypeError):
            return InputError(f"{self.place}: answers {status}, which is no answer of a controller of Spotwright")
        if status == 401 and self._authorization:
            return self._login.expired()
        if kind == "unknown":
            return UnknownRun(message)
        return StateError(message) if kind == "state" else InputError(message)


class _Connection(http.client.HTTPConnection):
    """HTTP over TLS over a socket that somebody else connects."""

    def __init__(self, dial: Callable[[], socket.socket], context: ssl.SSLContext, name: str) -> None:
        super().__init__(name)
        self._dial, self._context, self._name = dial, context, name

    def connect(self) -> None:
        """Connect, and check the certificate before anything is sent."""
        plain = self._dial()
        plain.settimeout(_SILENT)
        try:
            self.sock = self._context.wrap_socket(plain, server_hostname=self._name)
        except BaseException:
            plain.close()
            raise


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
