"""Readers of ``secrets`` and ``config_maps``: what stands on this machine for the objects of that name in the cluster.

The file says where a value is, never what it is: it lies beside the pipeline, is stored with every run, and is committed. A
config map is no secret, so its values may stand here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from spotwright.config.nodes import Node, Scalar, Table
from spotwright.config.problems import Place

__all__ = ["Keyed", "config_maps", "secrets"]

Keyed: TypeAlias = Mapping[str, Mapping[str, str] | str]
"""Objects by name: the text of each key, or the text ``@folder:PATH`` of a folder whose files are the keys."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS subdomain
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_REFERENCES = ("@env:", "@file:")
_FOLDER = "@folder:"


def secrets(node: Node, place: Place, expects: str) -> Keyed:
    """Secrets: every value is a reference."""
    return _objects(node, place, expects, references_only=True)


def config_maps(node: Node, place: Place, expects: str) -> Keyed:
    """Config maps: texts or references."""
    return _objects(node, place, expects, references_only=False)


def _objects(node: Node, place: Place, expects: str, *, references_only: bool) -> Keyed:
    found: dict[str, Mapping[str, str] | str] = {}
    if not isinstance(node, Table):
        place.expected(node, expects)
        return found
    for name, entry in node.entries.items():
        where = place.key(name)
        if not _NAME.fullmatch(name):
            where.wrong(entry.line, "expected a name of Kubernetes: lower-case letters, digits, - and .")
        elif isinstance(entry.node, Table):
            found[name] = _keys(entry.node, where, references_only=references_only)
        elif isinstance(entry.node, Scalar) and entry.node.text.startswith(_FOLDER):
            found[name] = entry.node.text
        else:
            where.expected(
                entry.node, "a mapping of keys to values, or @folder:PATH of a folder with a file for each key"
            )
    return found


def _keys(node: Table, place: Place, *, references_only: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, entry in node.entries.items():
        where, value = place.key(key), entry.node
        is_text = isinstance(value, Scalar) and value.kind != "null"
        if not _KEY.fullmatch(key):
            where.wrong(entry.line, "expected a key: letters, digits, - _ and .")
        elif not isinstance(value, Scalar) or not is_text:
            where.expected(
                value, "@env:VARIABLE or @file:PATH" if references_only else "text, @env:VARIABLE or @file:PATH"
            )
        elif references_only and not value.text.startswith(_REFERENCES):
            where.wrong(  # what was found is not shown: it may be the secret
                entry.line,
                "expected @env:VARIABLE or @file:PATH, found a value; a secret does not belong into this file",
            )
        else:
            found[key] = value.text
    return found
