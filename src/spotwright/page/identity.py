"""Identify a caller: on one machine, by the token that the command printed.

The token (256 bits, new at each start) is in the printed address. The first request with it gets a cookie and is redirected to
the address without it, which keeps it out of histories, bookmarks and screenshots. The cookie's name has the port, because
browsers share cookies between the ports of a host.

The browser that the command opens gets a single-use token, because other users of the machine can read a browser's command
line.

A page inside a cluster, for people behind a login, will need another :class:`Identity`; the server uses only this class.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Mapping
from typing import Protocol

__all__ = ["Identity", "LocalToken", "new_token"]

_TOKEN_BYTES = 32
_WRONG_A_SECOND = 10
_ONCE = 60.0  # seconds for an opened browser to connect
_ADDRESSES = 1000  # the most addresses that are remembered; only loopback has more than one


def new_token() -> str:
    """An unguessable token."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def _bytes(text: str) -> bytes:
    """The bytes of a header's text, which may not be UTF-8."""
    return text.encode("utf-8", "backslashreplace")


class Identity(Protocol):
    """The check of who may read."""

    def is_known(self, cookies: Mapping[str, str]) -> bool:
        """Whether these cookies belong to an allowed reader."""

    def enter(self, token: str, address: str) -> bool:
        """Whether a token in a page address is valid. ``address``: the peer's, to count wrong tokens."""

    def delay(self, address: str) -> float:
        """Seconds before an answer to this peer: one, after too many wrong tokens."""

    def cookie(self) -> tuple[str, str]:
        """The name and value of the cookie for a caller with a valid token."""


class LocalToken:
    """One token for one start of the page, which is served at this port."""

    def __init__(self, port: int, token: str) -> None:
        self._token = token
        self._session = new_token()
        self._name = f"spotwright-{port}"
        self._once, self._once_until = "", 0.0
        self._wrong: dict[str, list[float]] = {}

    def once(self) -> str:
        """A single-use token, valid for a minute."""
        self._once, self._once_until = new_token(), time.monotonic() + _ONCE
        return self._once

    def is_known(self, cookies: Mapping[str, str]) -> bool:
        """See :meth:`Identity.is_known`."""
        return hmac.compare_digest(_bytes(cookies.get(self._name, "")), self._session.encode())

    def enter(self, token: str, address: str) -> bool:
        """See :meth:`Identity.enter`."""
        if hmac.compare_digest(_bytes(token), self._token.encode()):
            return True
        if self._once and hmac.compare_digest(_bytes(token), self._once.encode()):
            self._once, is_in_time = "", time.monotonic() < self._once_until
            return is_in_time
        if address not in self._wrong and len(self._wrong) >= _ADDRESSES:
            self._wrong.clear()
        now = time.monotonic()
        recent = [at for at in self._wrong.get(address, ()) if now - at < 1.0]
        self._wrong[address] = [*recent, now][-_WRONG_A_SECOND:]
        return False

    def delay(self, address: str) -> float:
        """See :meth:`Identity.delay`."""
        now = time.monotonic()
        recent = [at for at in self._wrong.get(address, ()) if now - at < 1.0]
        return 1.0 if len(recent) >= _WRONG_A_SECOND else 0.0

    def cookie(self) -> tuple[str, str]:
        """See :meth:`Identity.cookie`."""
        return self._name, self._session
