"""Writes plain values as YAML the way people do: with anchors, aliases, merge keys, tags, comments and both styles, by chance.

What is written reads as the value that was given.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests import plain_yaml
from tests.placing.written_out import values

from spotwright.placing.yaml_writer import flow

__all__ = ["drawn_text"]

_TAGS: dict[type, str] = {dict: "!!map", list: "!!seq", str: "!!str"}
_NAMES = ("a", "b", "x-1", "C_2")
_KEEP_PLAIN = ("apiVersion", "kind")  # what a document is, found by its text in places


def drawn_text(value: dict[str, Any], chance: Random) -> str:
    """A document with a value that is not empty. An anchor may be named twice where that changes nothing."""
    for _ in range(20):
        lines = _Writer(chance).lines(value)
        text = "\n".join(lines) + chance.choice(["\n", "\n", "\n\n# the end\n", ""])
        if values(text) == [value]:
            return text.replace("\n", "\r\n") if chance.random() < 0.1 else text
    return plain_yaml.dump(value, sort_keys=False)


class _Sources(str):
    """What a merge key names."""

    __slots__ = ()


class _Writer:
    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._anchors: dict[str, Any] = {}  # those that can be named, with their values
        self._often = chance.choice([0.1, 0.4, 0.9])

    def lines(self, value: Any, column: int = 0) -> list[str]:
        """A collection that is not empty, as lines of block style."""
        indent = " " * column
        if isinstance(value, list):
            found: list[str] = []
            for item in value:
                head, below = self._value(item, column + 2)
                if below and not head and self._chance.random() < 0.9:
                    found += [f"{indent}- {below[0].lstrip()}", *below[1:]]
                else:
                    found += [f"{indent}-{head}", *below]
            return found
        found = []
        for key, item in self._pairs(value):
            if isinstance(item, _Sources):
                found.append(f"{indent}<<: {item}{self._remark()}")
                continue
            head, below = self._value(item, column + 2) if key not in _KEEP_PLAIN else (f" {flow(item)}", [])
            if below and isinstance(item, list) and self._chance.random() < 0.5:
                below = [line[2:] for line in below]
            found += [f"{indent}{self._key(key)}:{head}", *below]
        return found

    def _pairs(self, value: dict[str, Any]) -> list[tuple[str, Any]]:
        """The pairs of a mapping, perhaps with a merge key in place of some."""
        pairs = list(value.items())
        merged = self._merge(value)
        if merged is not None:
            sources, keys = merged
            pairs = [pair for pair in pairs if pair[0] not in keys]
            pairs.insert(self._chance.randint(0, len(pairs)), ("<<", sources))
        return pairs

    def _key(self, key: str) -> str:
        written = flow(key)
        return json.dumps(key) if self._chance.random() < 0.05 else written

    def _remark(self) -> str:
        return self._chance.choice(["", "", "", "  # - a: b"])

    def _value(self, value: Any, column: int) -> tuple[str, list[str]]:
        """What stands behind a key or a dash, and the lines below it."""
        known = self._alias(value)
        if known is not None:
            return f" {known}{self._remark()}", []
        mark = self._mark(value)
        if isinstance(value, dict | list) and value and self._chance.random() < 0.75:
            below = self.lines(value, column)
            self._define(mark, value)
            return f" {mark}{self._remark()}" if mark else self._remark(), below
        if isinstance(value, str) and value and not mark and self._chance.random() < 0.1 and value.isalpha():
            return " |-", [" " * column + value]
        written = self._flow(value)
        self._define(mark, value)
        return f" {mark} {written}{self._remark()}".replace("  ", " ", 1), []

    def _flow(self, value: Any) -> str:
        if isinstance(value, dict) and value:
            pairs = self._pairs(value)
            inside = (item if isinstance(item, _Sources) else self._inside(item) for _, item in pairs)
            return (
                "{"
                + ", ".join(
                    f"{flow(key) if key != '<<' else key}: {item}" for (key, _), item in zip(pairs, inside, strict=True)
                )
                + "}"
            )
        if isinstance(value, list) and value:
            return "[" + ", ".join(self._inside(item) for item in value) + "]"
        return flow(value)

    def _inside(self, value: Any) -> str:
        known = self._alias(value)
        if known is not None:
            return known
        mark, written = self._mark(value), self._flow(value)
        self._define(mark, value)
        return f"{mark} {written}".lstrip()

    def _alias(self, value: Any) -> str | None:
        names = [name for name, known in self._anchors.items() if known == value and type(known) is type(value)]
        if names and self._chance.random() < (0.5 if isinstance(value, dict) else 0.8):
            return f"*{self._chance.choice(names)}"
        return None

    def _mark(self, value: Any) -> str:
        """An anchor and a tag, or neither."""
        parts = []
        if self._chance.random() < self._often:
            parts.append(f"&{self._chance.choice(_NAMES)}{self._chance.choice(['', '', '2'])}")
        if type(value) in _TAGS and self._chance.random() < 0.05:
            parts.append(_TAGS[type(value)])
        self._chance.shuffle(parts)
        for part in parts:
            if part[0] == "&":
                self._anchors.pop(part[1:], None)  # it names nothing until the value has ended
        return " ".join(parts)

    def _define(self, mark: str, value: Any) -> None:
        for part in mark.split():
            if part[0] == "&":
                self._anchors[part[1:]] = value

    def _merge(self, value: dict[str, Any]) -> tuple[_Sources, set[str]] | None:
        """Anchors that a merge key may name here, and the keys that need not be written beside it."""
        sources = [
            name
            for name, known in self._anchors.items()
            if isinstance(known, dict) and known and known.keys() <= value.keys()
        ]
        if not sources or self._chance.random() < 0.2:
            return None
        chosen = self._chance.sample(sources, min(len(sources), self._chance.choice([1, 1, 2])))
        brought: dict[str, Any] = {}
        for name in reversed(chosen):
            brought |= self._anchors[name]
        same = {key for key, item in brought.items() if item == value[key] and key not in _KEEP_PLAIN}
        names = [f"*{name}" for name in chosen]
        return _Sources(names[0] if len(names) == 1 else f"[{', '.join(names)}]"), same
