"""A Kubernetes object under lint: a document, an item of a list, or the trial inside an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.lint.subjects.shapes import Shape, items_of, mapping_at, mapping_of
from spotwright.manifests.record import ANNOTATION
from spotwright.placing.context import name_of
from spotwright.placing.documents import Document, Path
from spotwright.placing.patch import value_at

__all__ = ["KubeObject", "objects_in"]

_TRIAL: Path = ("spec", "trialTemplate", "trialSpec")


@dataclass(frozen=True, slots=True, eq=False)
class KubeObject:
    """One object. ``base`` is its path in the document, ``outer`` the object around it.

    ``beside`` are all objects of the file, in which it finds those that it names.
    """

    document: Document
    base: Path
    value: Shape
    outer: KubeObject | None = None
    beside: list[KubeObject] = field(default_factory=list, repr=False)

    @property
    def api_version(self) -> str:
        """Its ``apiVersion``, empty if it has none."""
        return str(self.value.get("apiVersion") or "")

    @property
    def group(self) -> str:
        """The group of its ``apiVersion``; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def kind(self) -> str:
        """Its ``kind``, empty if it has none."""
        return str(self.value.get("kind") or "")

    @property
    def name(self) -> str:
        """Its name, or that of the object around it."""
        return name_of(self.value.get("metadata")) or (self.outer.name if self.outer is not None else "")

    @property
    def label(self) -> str:
        """The object as messages name it: ``Job train``."""
        return f"{self.kind} {self.name}".strip()

    @property
    def is_live(self) -> bool:
        """Whether it was read from a cluster, which fills in fields that nobody wrote."""
        return mapping_at(self.value, "metadata").get("uid") is not None or "status" in self.value

    @property
    def is_owned(self) -> bool:
        """Whether a controller has made it."""
        return bool(mapping_at(self.value, "metadata").get("ownerReferences"))

    @property
    def is_placed(self) -> bool:
        """Whether ``place`` wrote into it or into the object around it, so that its findings were said there."""
        own = ANNOTATION in mapping_at(self.value, "metadata", "annotations")
        return own or (self.outer is not None and self.outer.is_placed)

    def at(self, *steps: str | int) -> Path:
        """The path in the document of steps inside the object."""
        return (*self.base, *steps)

    def get(self, *steps: str | int, default: Any = None) -> Any:
        """The value at steps inside the object."""
        return value_at(self.value, steps, default)

    def mapping(self, *steps: str | int) -> Shape:
        """The mapping at steps inside the object, else an empty one."""
        return mapping_of(self.get(*steps))

    def items(self, *steps: str | int) -> Sequence[Any]:
        """The list at steps inside the object, else an empty one."""
        return items_of(self.get(*steps))

    def find(self, kind: str, name: str) -> KubeObject | None:
        """An object of the same file by its kind and its name."""
        return next((one for one in self.beside if one.kind == kind and one.name == name), None)


def objects_in(document: Document, beside: list[KubeObject]) -> Iterator[KubeObject]:
    """The objects of one document: itself, or the items of a list, and the trial of an experiment behind its experiment."""
    for found in _objects(document, (), document.get((), None), beside):
        beside.append(found)
        yield found
        trial = found.get(*_TRIAL)
        if found.kind == "Experiment" and isinstance(trial, dict):
            yield KubeObject(document, found.at(*_TRIAL), trial, found, beside)


def _objects(document: Document, base: Path, value: Any, beside: list[KubeObject]) -> Iterator[KubeObject]:
    if not isinstance(value, dict):
        if value is not None:  # a text or a list: no object, which a rule says
            yield KubeObject(document, base, {}, None, beside)
        return
    items = value.get("items")
    if str(value.get("kind") or "").endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield KubeObject(document, (*base, "items", index), item, None, beside)
        return
    yield KubeObject(document, base, value, None, beside)
