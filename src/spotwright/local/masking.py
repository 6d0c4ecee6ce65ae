"""Keeping secrets out of logs: replaces them in a stream of bytes, also when a write cuts one in two.

Nothing is held back that cannot be the beginning of a secret, so that the log stays live. Secrets of several lines are masked
line by line, because programs indent, quote and wrap them.

Read by the fork server too, so it imports nothing outside the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Masker"]

_MASK = b"***"
_SHORTEST_LINE = 8  # of a secret of several lines: shorter ones ("}", "----") would blot out ordinary text
_HEAD = 16


class Masker:
    """Replaces every occurrence of the secrets by ``***`` in what is fed to it."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        # the longest first: of two secrets, one of which begins with the other, the whole must go
        self._secrets = sorted({part for secret in secrets for part in _parts(secret)}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)) or b"(?!)")
        self._longest = len(self._secrets[0]) if self._secrets else 0
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be shown after these bytes have come."""
        text = self._held + data
        shown: list[bytes] = []
        position, open_end = 0, self._open_end(text, 0)
        for found in self._pattern.finditer(text):
            if found.start() >= open_end:
                break
            shown += (text[position : found.start()], _MASK)
            position = found.end()
            if position > open_end:
                open_end = self._open_end(text, position)
        shown.append(text[position:open_end])
        self._held = text[open_end:]
        return b"".join(shown)

    def flush(self) -> bytes:
        """What was held back, when nothing more will come."""
        held, self._held = self._held, b""
        return self._pattern.sub(_MASK, held)

    def _open_end(self, text: bytes, start: int) -> int:
        """Where the text begins to be the beginning of a secret that is not complete yet; its end if nowhere."""
        for position in range(max(start, len(text) - self._longest + 1), len(text)):
            head = text[position : position + _HEAD]
            for secret in self._secrets:
                # the head first: a slice of a secret of a megabyte at every position would take minutes
                if (
                    secret.startswith(head)
                    and len(secret) > len(text) - position
                    and secret.startswith(text[position:])
                ):
                    return position
        return len(text)


def _parts(secret: bytes) -> list[bytes]:
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) == 1:
        return lines if lines[0] else []
    return [line for line in lines if len(line) >= _SHORTEST_LINE]
