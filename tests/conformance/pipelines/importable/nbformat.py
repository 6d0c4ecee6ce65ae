"""As much of Jupyter's ``nbformat`` as a notebook component uses."""

import json
from typing import Any


class _Node(dict[str, Any]):
    __getattr__ = dict.__getitem__


def read(path: str, as_version: int) -> _Node:
    """A notebook of version 4."""
    with open(path, encoding="utf-8") as file:
        document = _Node(json.load(file))
    assert document.nbformat == as_version
    return document


class v4:  # noqa: N801 (a module there)
    @staticmethod
    def new_code_cell(source: str) -> _Node:
        return _Node(cell_type="code", source=source, metadata={})
