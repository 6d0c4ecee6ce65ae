"""YAML as tests read and write it: the values of PyYAML's safe functions, by libyaml and so in a tenth of the time.

Most tests of manifests compare values before and after. PyYAML's own reader, written in Python, took longer than what they test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import yaml

__all__ = ["Dumper", "dump", "dump_all", "load", "load_all"]

Dumper = yaml.CSafeDumper


def load(text: str) -> Any:
    """The value of the only document of a text."""
    return yaml.load(text, Loader=yaml.CSafeLoader)


def load_all(text: str) -> Iterator[Any]:
    """The values of the documents of a text."""
    return yaml.load_all(text, Loader=yaml.CSafeLoader)


def dump(value: Any, **style: Any) -> str:
    """A document with this value."""
    return dump_all([value], **style)


def dump_all(values: Iterable[Any], **style: Any) -> str:
    """A text with a document for each value."""
    return str(yaml.dump_all(values, Dumper=Dumper, **style))
