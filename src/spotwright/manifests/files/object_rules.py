"""Apply the rules of one object's kind to its editor, whether the object comes from a file or from an API server."""

from __future__ import annotations

from dataclasses import dataclass

from spotwright.config import Config
from spotwright.manifests.files.references import References
from spotwright.manifests.files.unenforced import settle
from spotwright.manifests.kinds import PlaceObject
from spotwright.manifests.kinds.unknown import warn_of_version
from spotwright.manifests.rules.context import AddDocument, Finding, PlaceContext, PlaceOptions, RoleReport
from spotwright.manifests.rules.schema import METADATA, check
from spotwright.manifests.yamltext.edits import Editor

__all__ = ["ObjectRules"]


@dataclass(frozen=True, slots=True)
class ObjectRules:
    """What the placement of an object depends on, beside the object: shared by all objects of one command or configuration.

    ``add`` adds a document in front of the object; ``None`` where there can be none.
    """

    config: Config
    references: References
    options: PlaceOptions
    add: AddDocument | None = None

    def apply(self, place: PlaceObject, editor: Editor, findings: list[Finding], roles: list[RoleReport]) -> None:
        """Place the object of an editor; append its findings and the reports of its roles. Raises :class:`ManifestError`."""
        before = len(roles)
        ctx = PlaceContext(
            editor,
            self.config,
            self.references.find,
            self.options,
            findings=findings,
            roles=roles,
            find_all=self.references.find_all,
            is_input=self.references.is_input,
            add=self.add,
        )
        check(ctx, ctx.at("metadata"), METADATA)
        warn_of_version(ctx, str(ctx.get("apiVersion", default="")), str(ctx.get("kind", default="")))
        place(ctx)
        findings += settle(roles[before:], editor.document.file, self.options)
