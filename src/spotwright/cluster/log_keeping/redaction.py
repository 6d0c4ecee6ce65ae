"""Hides secrets in a log: the literal values of a pod's variables whose names say that they are secrets.

Values that come from Secret objects are not known here, because the rights to read Secrets are not asked for. A local run knows
them and hides them. Long lines come in pieces, so the end of a piece is held back for as long as a secret may begin there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spotwright.kfp.secrets import Secrets

__all__ = ["Redaction", "secret_values"]

_SECRET = re.compile(
    r"pass(word|wd|phrase)?(_|$)|secret|token|credential|(api|access|private|signing|encryption|account)_?key|conn(ection)?_str",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"(path|file|dir|folder|url|uri|host|name|id|type|enabled|mode|ttl|timeout|expiry)$", re.IGNORECASE
)
_WORDS = frozenset(("true", "false", "none", "null", "default", "enabled", "disabled", "required"))
_MIN_LINE = 8  # bytes of a line of a multi-line secret: shorter ones ("}", "----") occur in ordinary text


def secret_values(pod: Mapping[str, Any]) -> dict[str, str]:
    """The values of variables of a pod that are secrets by their names; those that come from Secrets are not known."""
    spec = pod.get("spec") or {}
    found: dict[str, str] = {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for variable in container.get("env") or ():
            name, value = str(variable.get("name", "")), str(variable.get("value") or "")
            if value.lower() not in _WORDS and _SECRET.search(name) and not _NO_SECRET.search(name):
                found[f"{container.get('name')}/{name}"] = value
    return found


class Redaction:
    """Replaces secrets in the lines of one log by ``***``."""

    def __init__(self, values: Mapping[str, str]) -> None:
        forms = {part for form in Secrets(values).patterns() for part in _parts(form)}
        self._longest = max(map(len, forms), default=0)
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None
        self._held = b""

    def hide(self, data: bytes, *, ends: bool) -> tuple[bytes, int]:
        """A piece of a line with its secrets hidden, and how many of the line's bytes that is. ``ends``: it is the last piece."""
        if self._pattern is None:
            return data, len(data)
        text = self._held + data
        cut = len(text) if ends else max(0, len(text) - self._longest + 1)
        pieces: list[bytes] = []
        position = 0
        for match in self._pattern.finditer(text):
            if match.start() >= cut:
                break
            pieces += (text[position : match.start()], b"***")
            position = match.end()
        cut = max(cut, position)
        pieces.append(text[position:cut])
        self._held = text[cut:]
        return b"".join(pieces), cut

    def reset(self) -> None:
        """Forget what is held back: the line comes again."""
        self._held = b""


def _parts(form: bytes) -> Iterator[bytes]:
    lines: Iterable[bytes] = (line.strip() for line in form.splitlines())
    if b"\n" in form:
        lines = (line for line in lines if len(line) >= _MIN_LINE)
    yield from (line for line in lines if line)
