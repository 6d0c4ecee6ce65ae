"""Reads ``secrets`` and ``config_maps``: the sources, on this machine, for the cluster's objects of those names.

The file names the source of a secret value and never holds the value, because the file is committed beside the pipeline and
stored with every run. A config map is not secret, so the file may hold its values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from spotwright.config.problems import Location
from spotwright.config.yaml_nodes import Node, Scalar, Table

__all__ = ["ObjectSources", "config_maps", "secrets"]

ObjectSources: TypeAlias = Mapping[str, Mapping[str, str] | str]
"""Objects by name: the text of each key, or ``@folder:PATH`` for a folder whose files are the keys."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS subdomain
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_REFERENCES = ("@env:", "@file:")
_FOLDER = "@folder:"


def secrets(node: Node, location: Location, expects: str) -> ObjectSources:
    """Read secrets: every value is a reference."""
    return _objects(node, location, expects, references_only=True)


def config_maps(node: Node, location: Location, expects: str) -> ObjectSources:
    """Read config maps: values are texts or references."""
    return _objects(node, location, expects, references_only=False)


def _objects(node: Node, location: Location, expects: str, *, references_only: bool) -> ObjectSources:
    objects: dict[str, Mapping[str, str] | str] = {}
    if not isinstance(node, Table):
        location.expected(node, expects)
        return objects
    for name, entry in node.entries.items():
        where = location.key(name)
        if not _NAME.fullmatch(name):
            where.wrong(entry.line, "expected a Kubernetes name: lower-case letters, digits, - and .")
        elif isinstance(entry.node, Table):
            objects[name] = _keys(entry.node, where, references_only=references_only)
        elif isinstance(entry.node, Scalar) and entry.node.text.startswith(_FOLDER):
            objects[name] = entry.node.text
        else:
            where.expected(
                entry.node, "a mapping of keys to values, or @folder:PATH of a folder with a file for each key"
            )
    return objects


def _keys(node: Table, location: Location, *, references_only: bool) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, entry in node.entries.items():
        where, value = location.key(key), entry.node
        is_text = isinstance(value, Scalar) and value.kind != "null"
        if not _KEY.fullmatch(key):
            where.wrong(entry.line, "expected a key: letters, digits, - _ and .")
        elif not isinstance(value, Scalar) or not is_text:
            where.expected(
                value, "@env:VARIABLE or @file:PATH" if references_only else "text, @env:VARIABLE or @file:PATH"
            )
        elif references_only and not value.text.startswith(_REFERENCES):
            where.wrong(  # the message does not repeat the value, which may be the secret
                entry.line,
                "expected @env:VARIABLE or @file:PATH, found a value; a secret does not belong in this file",
            )
        else:
            values[key] = value.text
    return values
