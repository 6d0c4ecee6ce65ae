"""Hold a compiled pipeline as a value that a run can store, so that nothing is compiled or parsed as YAML twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Compiled", "file_digests", "read_shared_json", "sorted_json"]

_MAX_SHARED_KEYS = 5  # the mappings of a single task and its component; those of the whole pipeline have more


@dataclass(frozen=True, slots=True)
class Compiled:
    """KFP's intermediate representation (IR) of one pipeline, in the JSON names of its protobuf messages, keys sorted.

    ``ir`` is the ``PipelineSpec``; ``platform`` the mapping below ``platforms`` of the platform document, often empty.
    ``source`` is the absolute path of the file it came from, ``pipeline`` the pipeline's name. ``files`` are digests of the
    user's files that it was made from, by absolute path: while none of them changes, compiling again would give the same.
    ``commits`` are digests of component texts by their addresses, for addresses that name a commit.
    """

    ir: dict[str, Any]
    platform: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    pipeline: str = ""
    warnings: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)

    @property
    def first_tasks(self) -> int:
        """How many tasks of the pipeline wait for no other task; a loop or a pipeline counts as one."""
        tasks = self.ir.get("root", {}).get("dag", {}).get("tasks", {})
        return sum(not task.get("dependentTasks") for task in tasks.values())

    def to_data(self) -> dict[str, Any]:
        """The value as JSON data, part of a larger document. Its mappings are shared, not copied."""
        return {
            "ir": self.ir,
            "platform": self.platform,
            "source": self.source,
            "pipeline": self.pipeline,
            "warnings": list(self.warnings),
            "files": self.files,
            "commits": self.commits,
        }

    @classmethod
    def from_data(cls, document: Mapping[str, Any]) -> Compiled:
        """The value that :meth:`to_data` was called on. Raises ``KeyError`` for a document without its keys."""
        return cls(
            ir=document["ir"],
            platform=document["platform"],
            source=document["source"],
            pipeline=document["pipeline"],
            warnings=tuple(document["warnings"]),
            files=document["files"],
            commits=document.get("commits", {}),
        )


def read_shared_json(text: str) -> Any:
    """Read JSON that may hold a compiled pipeline; equal small mappings become one object, so they must not be changed.

    The SDK writes a component and an executor for every task, each with its whole source, so most of it stands there many
    times over.
    """
    objects: dict[str, dict[str, Any]] = {}
    large: set[int] = set()

    def shared(item: dict[str, Any]) -> dict[str, Any]:
        if len(item) > _MAX_SHARED_KEYS or not large.isdisjoint(map(id, item.values())):
            large.add(id(item))  # every mapping around it is large too
            return item
        return objects.setdefault(repr(item), item)

    return json.loads(text, object_hook=shared)


def file_digests(paths: Iterable[str]) -> dict[str, str]:
    """SHA-256 of files by path, in hex; files that cannot be read are left out."""
    digests = {}
    for path in paths:
        with contextlib.suppress(OSError):
            digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return digests


def sorted_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Copy JSON data, the keys of every mapping in order: those of a protobuf map come in a random order per process."""
    copy: dict[str, Any] = json.loads(json.dumps(value, sort_keys=True, default=_refuse))
    return copy


def _refuse(value: object) -> Any:
    raise ValueError(f"{type(value).__name__} is not a JSON value")
