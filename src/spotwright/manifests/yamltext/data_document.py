"""Documents without a text: objects that come as data, such as those that an API server sends.

The rules of ``place`` read a :class:`~spotwright.manifests.yamltext.documents.Document` and collect edits. Here the document is
plain data, so no YAML is written or parsed, and the edits become a JSON patch. Values have no lines; messages name the object and
the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from spotwright.manifests.yamltext.documents import MISSING, Document, ManifestError, Path
from spotwright.manifests.yamltext.edits import Editor, clone, value_at
from spotwright.yaml_composer import Node

__all__ = ["DataDocument", "data_document", "json_patch", "json_pointer", "patched"]

_START: Any = yaml.Mark("", 0, 0, 0, None, 0)
_NO_TEXT: Any = yaml.ScalarEvent(None, None, (True, False), "", _START, _START)


@dataclass(slots=True)
class DataDocument(Document):
    """One object as plain data, which is not changed. ``file`` is the object's name for messages (``Job train``)."""

    data: Any = None

    def node(self, path: Path) -> Node | None:  # noqa: ARG002 (there is no text)
        """None: data has no positions."""
        return None

    def get(self, path: Path, default: Any = MISSING) -> Any:
        """The value at a path, not to be changed; ``default`` where there is none."""
        return value_at(self.data, path, default)

    def line(self, path: Path) -> int:  # noqa: ARG002 (there is no text)
        """0, because data has no lines."""
        return 0

    def problem(self, path: Path, text: str) -> ManifestError:
        """An error at a path, with the field's name and without a line."""
        field_name = self.show(path)
        return ManifestError(f"{field_name}: {text}" if field_name else text)


def data_document(data: Mapping[str, Any], name: str) -> DataDocument:
    """The document of an object; ``name`` stands for it in messages."""
    return DataDocument(name, "", _NO_TEXT, 0, 0, 0, data=data)


def json_patch(editor: Editor) -> list[dict[str, Any]]:
    """The edits as operations of a JSON patch (RFC 6902) that make :meth:`Editor.result` of the editor's data.

    Deeper values are edited first: new items come to the beginning of a list, and would move the indexes of the others.
    """
    operations: list[dict[str, Any]] = []
    for edit in sorted(editor.final_edits(), key=lambda edit: -len(edit.path)):
        if edit.kind == "extend":
            pointers = [json_pointer((*edit.path, index)) for index in range(len(edit.value))]
            operations += [
                {"op": "add", "path": pointer, "value": item}
                for pointer, item in zip(pointers, edit.value, strict=True)
            ]
        else:
            name = "add" if edit.kind in ("add", "append") else "replace"
            operations.append({"op": name, "path": json_pointer(edit.path), "value": edit.value})
    return operations


def patched(data: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """A copy of an object with the operations add, replace and remove of a JSON patch.

    Raises :class:`LookupError`, :class:`ValueError` or :class:`TypeError` where an API server would refuse the patch.
    """
    result = [clone(data)]
    for operation in patch:
        steps: list[Any] = [
            0,
            *(step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]),
        ]
        parent: Any = result
        for step in steps[:-1]:
            parent = parent[int(step) if isinstance(parent, list) else step]
        is_list, adds = isinstance(parent, list), operation["op"] == "add"
        last = int(steps[-1]) if is_list else steps[-1]
        if (is_list and last > len(parent) - (not adds)) or (not is_list and not adds and last not in parent):
            raise LookupError(operation["path"])
        if operation["op"] == "remove":
            del parent[last]
        elif is_list and adds:
            parent.insert(last, operation["value"])
        else:
            parent[last] = operation["value"]
    return result[0]


def json_pointer(path: Path) -> str:
    """A path as a JSON pointer (RFC 6901): ``/metadata/labels/spotwright.dev~1spot``."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
