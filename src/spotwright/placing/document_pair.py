"""Join the two documents of a compiled pipeline, the pipeline and its platform settings, into one object.

They have neither apiVersion nor kind, so they are recognized by their keys. They are edited together: paths of a pair begin with
0 for the pipeline and 1 for the platform document. A missing platform document is added behind the pipeline. Source:
``kfp/compiler/pipeline_spec_builder.py`` and ``kfp/dsl/structures.py`` of kubeflow/pipelines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from spotwright.kfp.placed_record import RECORD
from spotwright.placing.documents import Document, Path, parse, show
from spotwright.placing.patch import value_at
from spotwright.yaml_composer import MappingNode, join

__all__ = ["AT", "EXECUTORS", "KIND", "PIPELINE", "PLATFORMS", "PipelinePair", "objects_of"]


KIND = ("kfp/v1", "PipelineSpec")
"""The group and kind under which the pair is listed among the kinds; its documents have none."""

PIPELINE: Path = (0,)
"""The path of the pipeline in a pair."""

PLATFORMS: Path = (1, "platforms")
"""The path of the platforms in a pair."""

EXECUTORS: Path = ("kubernetes", "deploymentSpec", "executors")
"""Below the platforms: the Kubernetes settings of each executor, by its label."""

AT: Path = (1, *RECORD)
"""The path of the record in a pair."""

_PIPELINE_KEYS = {"pipelineInfo", "root"}


@dataclass(slots=True)
class PipelinePair(Document):
    """A pipeline document and its platform document, if there is one, as the items of a list."""

    def show(self, path: Path) -> str:
        """A path as messages write it, without the document's number: its first key shows which document it is."""
        return show(path[1:])

    def reparse(self, text: str) -> Document | None:
        """Parse another version of the file's text and return this pair in it."""
        pairs = (one for one in objects_of(parse(text, self.file, self.above)) if isinstance(one, PipelinePair))
        return next((pair for pair in pairs if pair.index == self.index), None)

    def serialize(self, value: Any) -> str:
        """Serialize both documents."""
        return "---\n".join(yaml.safe_dump(one, sort_keys=True, allow_unicode=True, width=10**6) for one in value)

    def removable_parts(self, added: Mapping[Path, Any]) -> Mapping[Path, list[Path]]:
        """The settings of each executor inside the added values, so that each can be removed alone."""
        executors = (*PLATFORMS, *EXECUTORS)
        around = {path: value for path, value in added.items() if executors[: len(path)] == path}
        found = {path: value_at(value, executors[len(path) :]) or () for path, value in around.items()}
        return {path: [(*executors, label) for label in labels] for path, labels in found.items() if labels}


def objects_of(documents: Sequence[Document]) -> Iterator[Document]:
    """The objects of a file: its documents, where a pipeline and the platform document behind it are one."""
    waiting: Document | None = None
    for document in documents:
        keys = _keys(document)
        if waiting is not None:
            joined = "platforms" in keys and not {"apiVersion", "kind"} & keys
            yield _pair(waiting, document if joined else None)
            waiting = None
            if joined:
                continue
        if keys >= _PIPELINE_KEYS and "apiVersion" not in keys:
            waiting = document
        else:
            yield document
    if waiting is not None:
        yield _pair(waiting, None)


def _keys(document: Document) -> set[str]:
    root = document.root
    if not isinstance(root, MappingNode):
        return set()
    return set(root.keys)


def _pair(pipeline: Document, platforms: Document | None) -> PipelinePair:
    last = platforms or pipeline
    roots = [one.root for one in (pipeline, platforms) if one is not None and isinstance(one.root, MappingNode)]
    return PipelinePair(
        pipeline.file,
        pipeline.text,
        join(roots),
        pipeline.start,
        last.end,
        pipeline.index,
        pipeline.above,
        pipeline.shared | last.shared,
    )
