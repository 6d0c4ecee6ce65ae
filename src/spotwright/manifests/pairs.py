"""Compiled pipelines: two documents of one file that are one object, the pipeline and what platforms add to it.

They are told by their keys, because they have neither apiVersion nor kind, and edited together: the paths of a pair begin with 0
for the pipeline and 1 for the platforms. Where the second document is missing it is put behind the first one. Source:
``kfp/compiler/pipeline_spec_builder.py`` and ``kfp/dsl/structures.py`` of kubeflow/pipelines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from spotwright.manifests.documents import Document, Path, parse, show
from spotwright.manifests.edits import value_at
from spotwright.manifests.nodes import MappingNode, together
from spotwright.model.placed import RECORD

__all__ = ["AT", "EXECUTORS", "KIND", "PIPELINE", "PLATFORMS", "Pair", "units"]

KIND = ("kfp", "PipelineSpec")
"""By which group and kind the pair is found among the kinds: it has none of its own."""

PIPELINE: Path = (0,)
"""Where the pipeline stands in a pair."""

PLATFORMS: Path = (1, "platforms")
"""Where the platforms stand in a pair."""

EXECUTORS: Path = ("kubernetes", "deploymentSpec", "executors")
"""Below the platforms: the Kubernetes settings of each executor, by its label."""

AT: Path = (1, *RECORD)
"""Where a pair keeps its record."""

_PIPELINE_KEYS = {"pipelineInfo", "root"}


@dataclass(slots=True)
class Pair(Document):
    """A pipeline document, with its platform document where there is one, as the one or two items of a list."""

    def spoken(self, path: Path) -> str:
        """A path as people write it, which says by itself in which of the two documents it is."""
        return show(path[1:])

    def again(self, text: str) -> Document | None:
        """The same pair in another text of its file."""
        pairs = (unit for unit in units(parse(text, self.file, self.above)) if isinstance(unit, Pair))
        return next((pair for pair in pairs if pair.index == self.index), None)

    def separately(self, value: Any, path: Path) -> tuple[list[Any], Path]:
        """The two are separate already."""
        return value, path

    def written(self, value: Any) -> str:
        """Both documents anew."""
        return "---\n".join(yaml.safe_dump(one, sort_keys=True, allow_unicode=True, width=10**6) for one in value)

    def parts(self, path: Path, value: Any) -> list[Path]:
        """The settings of each executor that came with a value which holds them."""
        executors = (*PLATFORMS, *EXECUTORS)
        if executors[: len(path)] != path:
            return []
        return [(*executors, label) for label in value_at(value, executors[len(path) :]) or ()]


def units(documents: Sequence[Document]) -> Iterator[Document]:
    """The documents of a file, a pipeline joined with the platform document behind it."""
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


def _pair(pipeline: Document, platforms: Document | None) -> Pair:
    last = platforms or pipeline
    roots = [pipeline.root] if platforms is None else [pipeline.root, platforms.root]
    return Pair(
        pipeline.file,
        pipeline.text,
        together(roots),
        pipeline.start,
        last.end,
        pipeline.index,
        pipeline.above,
        pipeline.shared | last.shared,
    )
