"""Redact secrets in logs: replace them in a stream of bytes, also when a write splits a secret.

Only bytes that may begin a secret are held back, so that the log stays live. Multi-line secrets are redacted line by line,
because programs indent, quote and wrap them.

The fork server imports this module, so it uses only the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["SecretRedactor"]

_REPLACEMENT = b"***"
_MIN_LINE = 8  # bytes of a line of a multi-line secret: shorter ones ("}", "----") occur in ordinary text
_HEAD = 16


class SecretRedactor:
    """Replaces every occurrence of the secrets in a stream by ``***``."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        # longest first: if one secret begins with another, the longer one must be replaced as a whole
        self._secrets = sorted({part for secret in secrets for part in _parts(secret)}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)) or b"(?!)")
        self._longest = len(self._secrets[0]) if self._secrets else 0
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Add bytes of the stream; return the redacted bytes that can be written now."""
        text = self._held + data
        redacted: list[bytes] = []
        position, open_end = 0, self._open_end(text, 0)
        for match in self._pattern.finditer(text):
            if match.start() >= open_end:
                break
            redacted += (text[position : match.start()], _REPLACEMENT)
            position = match.end()
            if position > open_end:
                open_end = self._open_end(text, position)
        redacted.append(text[position:open_end])
        self._held = text[open_end:]
        return b"".join(redacted)

    def flush(self) -> bytes:
        """The redacted rest, after the end of the stream."""
        held, self._held = self._held, b""
        return self._pattern.sub(_REPLACEMENT, held)

    def _open_end(self, text: bytes, start: int) -> int:
        """The first position from which the text may be an incomplete secret; the text's length if there is none."""
        for position in range(max(start, len(text) - self._longest + 1), len(text)):
            head = text[position : position + _HEAD]
            for secret in self._secrets:
                # compare a short head first: slicing a secret of a megabyte at every position would take minutes
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
    return [line for line in lines if len(line) >= _MIN_LINE]
