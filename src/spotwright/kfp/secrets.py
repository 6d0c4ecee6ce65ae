"""The secrets and config maps that a pipeline names: looked up on this machine, and hidden in journal, logs and JSON.

An argument such as ``@env:TOKEN`` is resolved when a run starts. From then on stored data goes through :class:`Secrets`:
:meth:`Secrets.redact` replaces each occurrence of a value by a marker, :meth:`Secrets.reveal` puts the value back. The two are
inverse for every JSON value, even one that contains a marker's text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotwright.errors import InputError, PipelineError
from spotwright.graph import KeyRefs
from spotwright.kfp.values import KINDS, parse_text

__all__ = ["ClusterObjects", "Reference", "Secrets", "look_up_objects", "marker"]


_OPEN, _CLOSE = "{{$.secret['", "']}}"
_MARKER = re.compile(r"\{\{\$\.secret\['((?:[^'\\]|\\.)*)'\]\}\}", re.DOTALL)
_ESCAPE = "@"  # the name of the marker that escapes the start of a marker in ordinary text
_MIN_LENGTH = 4  # shorter secrets are hidden only as whole values, because their text may occur anywhere


def marker(reference: str) -> str:
    """The text that replaces a secret: ``{{$.secret['@env:TOKEN']}}``."""
    return f"{_OPEN}{reference.replace(chr(92), chr(92) * 2).replace(chr(39), chr(92) + chr(39))}{_CLOSE}"


@dataclass(frozen=True, slots=True)
class Reference:
    """An argument that names the place of its value: ``kind`` is ``env`` or ``file``, ``type`` the parameter's type."""

    kind: str
    name: str
    type: str = "STRING"

    def __str__(self) -> str:
        text = f"@{self.kind}:{self.name}"
        return text if self.type == "STRING" else f"{text} as {self.type}"

    def resolve(self, environ: Mapping[str, str], read: Callable[[str], str]) -> Any:
        """The value, of the parameter's type. ``read`` returns the text of a file; one line break at its end is dropped.

        Raises :class:`InputError`, which never shows the value.
        """
        if self.kind == "env":
            if self.name not in environ:
                raise InputError(f"@env:{self.name}: environment variable {self.name} is not set; set it first")
            text = environ[self.name]
        else:
            try:
                text = read(self.name).removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError:
                raise InputError(f"@file:{self.name}: is not UTF-8 text") from None
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
        """Resolve every :class:`Reference` among the arguments; ``others`` are secrets outside the arguments.

        Returns the secrets, and the arguments as they may be stored: references become markers, and secrets in plain arguments
        are redacted. Raises :class:`InputError` for a reference that cannot be resolved.
        """
        references = {name: value for name, value in arguments.items() if isinstance(value, Reference)}
        resolved = {str(reference): reference.resolve(environ, read) for reference in references.values()}
        secrets = cls({**(others or {}), **resolved})
        plain = {name: value for name, value in arguments.items() if name not in references}
        stored = {name: marker(str(reference)) for name, reference in references.items()}
        return secrets, {**secrets.redact(plain), **stored}

    def _texts(self) -> Iterator[tuple[str, str]]:
        """Yield every string to hide with the name of its marker; for a list or mapping, the strings inside."""
        for name, value in self._values.items():
            for place, text in _leaves(value):
                if len(text) >= _MIN_LENGTH:
                    yield f"{name}#{place}" if place else name, text

    def redact(self, value: Any) -> Any:
        """The JSON value with every occurrence of a secret replaced, also inside longer texts and in keys."""
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
        """Replace the longest secrets first, and never inside a marker that replaced another."""
        pieces: list[tuple[str, bool]] = [(text, False)]
        for name, secret in self._by_length.items():
            if secret in text:
                pieces = [part for piece in pieces for part in _split(piece, secret, marker(name))]
        return "".join(piece for piece, _ in pieces)

    def reveal(self, value: Any) -> Any:
        """The JSON value with its secrets put back, the inverse of :meth:`redact`. A marker of an unknown secret stays."""
        if not self._values:
            return value
        if isinstance(value, str):
            match = _MARKER.fullmatch(value)
            name = _unescape(match.group(1)) if match else ""
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

    def is_in(self, value: Any) -> bool:
        """Whether a stored JSON value holds the marker of a secret."""
        return bool(self._values) and self.reveal(value) != value

    def patterns(self) -> tuple[bytes, ...]:
        """The byte strings to mask in logs: each secret raw, as JSON and as Python's ``repr``."""
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
    """Yield the texts in a value with their places. A number has a text too, whose marker must differ from the number's own."""
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
    """Cut a piece of text at a secret. The flag of a piece is true for a marker, which stays."""
    text, done = piece
    if done or secret not in text:
        return [piece]
    parts: list[tuple[str, bool]] = []
    for part in text.split(secret):
        parts += [(part, False), (replacement, True)]
    return parts[:-1]


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)


_FOLDER = "@folder:"
Name = tuple[str, str]
"""The kind and the name of an object."""


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """Secrets and config maps as this machine has them.

    ``values`` are the values by object and key, ``errors`` the reasons why a key has none. ``variables`` are variables of the
    environment that replace a key.
    """

    values: Mapping[Name, Mapping[str, str]] = field(default_factory=dict)
    errors: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def secrets(self) -> dict[str, str]:
        """Every value that must be hidden, by the reference that replaces it."""
        values = {
            f"@secret:{name}/{key}": value
            for (kind, name), keys in self.values.items()
            if kind == "secret"
            for key, value in keys.items()
        }
        return values | {f"@env:{name}": value for name, value in self.variables.items()}

    def environment(self, refs: KeyRefs) -> dict[str, str]:
        """The variables of one object. Raises :class:`PipelineError` for a value that is missing and not optional."""
        environment = {}
        for variable, key in refs.env.items():
            value = self.values.get((refs.kind, refs.name), {}).get(key, self.variables.get(variable))
            if value is not None:
                environment[variable] = value
            elif not refs.optional:
                raise self._missing(refs, key, f", or set the variable {variable}")
        return environment

    def files(self, refs: KeyRefs) -> Mapping[str, str]:
        """The files of one object. Raises :class:`PipelineError` if it is missing and not optional."""
        values = self.values.get((refs.kind, refs.name))
        if values is None and not refs.optional:
            raise self._missing(refs, "", "")
        for kind, name, key in self.errors:
            if (kind, name) == (refs.kind, refs.name) and not refs.optional:
                raise self._missing(refs, key, "")
        return values or {}

    def _missing(self, refs: KeyRefs, key: str, more: str) -> PipelineError:
        section = refs.kind.replace(" ", "_") + "s"
        what = f"the key {key!r} of the {refs.kind} {refs.name!r}" if key else f"the {refs.kind} {refs.name!r}"
        why = self.errors.get((refs.kind, refs.name, key))
        if why is not None:
            return PipelineError(f"it needs {what}, which cannot be read: {why}")
        setting = f'{section}: {{{refs.name}: {{{key or "KEY"}: "@env:VARIABLE"}}}}'
        return PipelineError(f"it needs {what}, which is unknown here: write {setting} into spotwright.yaml{more}")


def look_up_objects(
    configured: Mapping[str, Mapping[str, Mapping[str, str] | str]],
    used: Iterable[KeyRefs],
    folder: Path,
    environ: Mapping[str, str],
    read: Callable[[Path], str],
) -> ClusterObjects:
    """Look up the objects of a configuration that ``used`` may name, by kind and name.

    Paths are relative to ``folder``. A value that cannot be read is an error only for a task that needs it.
    """
    used = list(used)
    names = {(refs.kind, refs.name) for refs in used}
    kinds = {refs.kind for refs in used if not refs.name}  # names that only the run has
    values: dict[Name, Mapping[str, str]] = {}
    errors: dict[tuple[str, str, str], str] = {}
    for kind, objects in configured.items():
        for name, setting in objects.items():
            if (kind, name) in names or kind in kinds:
                values[kind, name] = of_object = {}
                for key, text in _keys(setting, folder).items():
                    try:
                        of_object[key] = _value(text, folder, environ, read)
                    except (OSError, ValueError) as error:
                        errors[kind, name, key] = str(error)
    variables = {name: environ[name] for refs in used for name in refs.env if name in environ}
    return ClusterObjects(values, errors, variables)


def _keys(setting: Mapping[str, str] | str, folder: Path) -> Mapping[str, str]:
    """The keys of an object with their configured texts; for a folder its files, without hidden ones, as in Kubernetes."""
    if not isinstance(setting, str):
        return setting
    place = folder / setting.removeprefix(_FOLDER)
    if not place.is_dir():
        return {"": f"@file:{place}/"}
    return {path.name: f"@file:{path}" for path in sorted(place.iterdir()) if path.is_file() and path.name[0] != "."}


def _value(text: str, folder: Path, environ: Mapping[str, str], read: Callable[[Path], str]) -> str:
    kind, _, name = text.partition(":")
    if kind == "@env":
        if name not in environ:
            raise ValueError(f"environment variable {name} is not set")
        return environ[name]
    if kind == "@file":
        try:
            return read(folder / name)
        except OSError as error:
            raise ValueError(f"{folder / name}: {error.strerror}") from error
    return text[1:] if text.startswith("@@") else text
