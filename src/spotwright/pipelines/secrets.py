"""Secrets in arguments: a reference travels through journal, logs and JSON in the place of every value.

An argument such as ``@env:TOKEN`` is resolved when a run starts. From then on :class:`Secrets` stands between what is
stored and what the code is given: :meth:`Secrets.redact` puts a marker wherever the value occurs, :meth:`Secrets.reveal`
puts the value back. The two are inverse for every JSON value, also one that holds the text of a marker itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.errors import InputError
from spotwright.pipelines.values import KINDS, parse_text

__all__ = ["Reference", "Secrets", "marker"]

_OPEN, _CLOSE = "{{$.secret['", "']}}"
_MARKER = re.compile(r"\{\{\$\.secret\['((?:[^'\\]|\\.)*)'\]\}\}", re.DOTALL)
_ESCAPE = "@"  # the marker that stands for the beginning of a marker in ordinary text
_SHORTEST = 4  # shorter secrets are recognised as whole values only: their text would be everywhere


def marker(reference: str) -> str:
    """The text that stands for a secret: ``{{$.secret['@env:TOKEN']}}``."""
    return f"{_OPEN}{reference.replace(chr(92), chr(92) * 2).replace(chr(39), chr(92) + chr(39))}{_CLOSE}"


@dataclass(frozen=True, slots=True)
class Reference:
    """An argument that is not the value but says where it is: ``kind`` is ``env`` or ``file``, ``type`` the parameter's."""

    kind: str
    name: str
    type: str = "STRING"

    def __str__(self) -> str:
        text = f"@{self.kind}:{self.name}"
        return text if self.type == "STRING" else f"{text} as {self.type}"

    def resolve(self, environ: Mapping[str, str], read: Callable[[str], str]) -> Any:
        """The value, of the parameter's type. ``read`` gives the text of a file; one line break at its end is dropped.

        Raises :class:`InputError` that never shows the value.
        """
        if self.kind == "env":
            if self.name not in environ:
                raise InputError(f"@env:{self.name}: the environment has no variable {self.name}; set it first")
            text = environ[self.name]
        else:
            try:
                text = read(self.name).removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError:
                raise InputError(f"@file:{self.name}: is no text in UTF-8") from None
            except OSError as error:
                raise InputError(f"@file:{self.name}: cannot be read: {error.strerror or error}") from error
        try:
            return parse_text(text, self.type)
        except ValueError:
            raise InputError(f"@{self.kind}:{self.name}: its value is not {KINDS[self.type]}") from None


class Secrets:
    """The secrets of one run, by the text of their references. Its ``repr`` never shows a value."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values = dict(values or {})
        texts = {_ESCAPE: _OPEN, **dict(self._texts())} if self._values else {}
        self._by_length = dict(sorted(texts.items(), key=lambda item: len(item[1]), reverse=True))
        self._whole = {name: value for name, value in self._values.items() if not isinstance(value, bool)}

    @classmethod
    def resolve(
        cls,
        arguments: Mapping[str, Any],
        environ: Mapping[str, str],
        read: Callable[[str], str],
        others: Mapping[str, Any] | None = None,
    ) -> tuple[Secrets, dict[str, Any]]:
        """Resolve every :class:`Reference` among the arguments; ``others`` are secrets that no argument names.

        Gives the secrets, and the arguments as they may be stored: with markers in the place of references, and with the
        values of secrets that were also given in plain redacted. Raises :class:`InputError` for what cannot be resolved.
        """
        references = {name: value for name, value in arguments.items() if isinstance(value, Reference)}
        known = {str(reference): reference.resolve(environ, read) for reference in references.values()}
        secrets = cls({**(others or {}), **known})
        plain = {name: value for name, value in arguments.items() if name not in references}
        stored = {name: marker(str(reference)) for name, reference in references.items()}
        return secrets, {**secrets.redact(plain), **stored}

    def _texts(self) -> Iterator[tuple[str, str]]:
        """Every text that must not be seen, by the name of its marker: of a list or mapping, the texts inside it."""
        for name, value in self._values.items():
            for place, text in _leaves(value):
                if len(text) >= _SHORTEST:
                    yield f"{name}#{place}" if place else name, text

    def redact(self, value: Any) -> Any:
        """Replace every occurrence of a secret inside a JSON value, also inside longer texts and in keys."""
        if not self._values:
            return value
        for name, secret in self._whole.items():
            if type(value) is type(secret) and value == secret:
                return marker(name)
        if isinstance(value, str):
            return self._redact_text(value)
        if isinstance(value, list | tuple):
            return [self.redact(item) for item in value]
        if isinstance(value, Mapping):
            return {self._redact_text(key) if isinstance(key, str) else key: self.redact(v) for key, v in value.items()}
        return value

    def _redact_text(self, text: str) -> str:
        """The longest secrets first, and never inside a marker that was just put."""
        pieces: list[tuple[str, bool]] = [(text, False)]
        for name, secret in self._by_length.items():
            if secret in text:
                pieces = [part for piece in pieces for part in _split(piece, secret, marker(name))]
        return "".join(piece for piece, _ in pieces)

    def reveal(self, value: Any) -> Any:
        """Put the secrets back: the inverse of :meth:`redact`. A marker of an unknown secret stays as it is."""
        if not self._values:
            return value
        if isinstance(value, str):
            found = _MARKER.fullmatch(value)
            name = _unescape(found.group(1)) if found else ""
            return self._values[name] if name in self._values else _MARKER.sub(self._put_back, value)
        if isinstance(value, list | tuple):
            return [self.reveal(item) for item in value]
        if isinstance(value, Mapping):
            return {self._reveal_key(key): self.reveal(item) for key, item in value.items()}
        return value

    def _reveal_key(self, key: Any) -> Any:
        return _MARKER.sub(self._put_back, key) if isinstance(key, str) else key

    def _put_back(self, match: re.Match[str]) -> str:
        return self._by_length.get(_unescape(match.group(1)), match.group(0))

    def mentioned(self, value: Any) -> bool:
        """Whether a stored JSON value stands for a secret somewhere."""
        return bool(self._values) and self.reveal(value) != value

    def patterns(self) -> tuple[bytes, ...]:
        """The byte strings to mask in logs: each secret as it is, as JSON writes it and as Python's ``repr`` does."""
        texts = [text for name, text in self._by_length.items() if name != _ESCAPE]
        forms = {
            form
            for text in texts
            for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
        }
        encoded = {form.encode("utf-8", "surrogateescape") for form in forms}
        return tuple(sorted(encoded, key=lambda form: (-len(form), form)))

    def __bool__(self) -> bool:
        return bool(self._values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted(self._values))})"


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Texts in a value with their places. A number has a text too, which must not be taken for the number itself."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield f"{place}:text", str(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{place}/{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{place}/{index}")


def _split(piece: tuple[str, bool], secret: str, replacement: str) -> list[tuple[str, bool]]:
    """Cut a piece of text at a secret. The flag says that a piece is a marker and stays."""
    text, done = piece
    if done or secret not in text:
        return [piece]
    parts: list[tuple[str, bool]] = []
    for part in text.split(secret):
        parts += [(part, False), (replacement, True)]
    return parts[:-1]


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)
