"""Place one object that comes as data: the same rules as for files, with a JSON patch as the result.

There is no record for ``unplace``: the object's own source still has the bytes of before. Marks, annotations of the caller, are
added with the first change and only with one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.config import Config
from spotwright.manifests.files.object_rules import ObjectRules
from spotwright.manifests.files.references import References
from spotwright.manifests.kinds import PlaceObject, find_kind
from spotwright.manifests.rules.context import Finding, PlaceOptions, RoleReport, name_of
from spotwright.manifests.yamltext.data_document import data_document, json_patch
from spotwright.manifests.yamltext.edits import Editor

__all__ = ["PlacedObject", "place_object"]


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """The outcome for one object: the operations of a JSON patch, the object with them, the findings and the roles' reports.

    Without an operation the object stays as it is.
    """

    patch: list[dict[str, Any]]
    data: Mapping[str, Any]
    findings: list[Finding] = field(default_factory=list)
    roles: list[RoleReport] = field(default_factory=list)


def place_object(
    data: Mapping[str, Any],
    config: Config,
    *,
    beside: Sequence[Mapping[str, Any]] = (),
    marks: Mapping[str, str] | None = None,
    place: PlaceObject | None = None,
    options: PlaceOptions | None = None,
) -> PlacedObject:
    """Place one object; ``data`` is not changed. Raises :class:`ManifestError` and :class:`ConfigError` as for files.

    ``beside`` are objects that this one refers to (a training runtime). ``place`` replaces the rules of the object's kind. An
    object of a kind without rules has an empty patch.
    """
    rules_of_kind = place or find_kind(str(data.get("apiVersion", "")), str(data.get("kind", "")))
    if rules_of_kind is None:
        return PlacedObject([], data)
    editor = Editor(data_document(data, _name(data)))
    for name, text in (marks or {}).items():
        editor.add(("metadata", "annotations", name), text)
    marked = editor.changes
    references = References([data_document(other, _name(other)) for other in beside])
    rules = ObjectRules(config, references, options or PlaceOptions(may_add=False, has_webhook=True))
    placed = PlacedObject([], data)
    rules.apply(rules_of_kind, editor, placed.findings, placed.roles)
    if editor.changes == marked:
        return placed
    return PlacedObject(json_patch(editor), editor.result(), placed.findings, placed.roles)


def _name(data: Mapping[str, Any]) -> str:
    return f"{data.get('kind', 'object')} {name_of(data.get('metadata'))}".strip()
