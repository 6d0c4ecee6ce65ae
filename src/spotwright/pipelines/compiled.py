"""A compiled pipeline as a value: what a run stores, so that nothing is compiled or parsed as YAML twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Compiled", "digests", "read_json", "sorted_json"]

_SMALL = 5  # the mappings of a single task and its component; those of the whole pipeline are larger


@dataclass(frozen=True, slots=True)
class Compiled:
    """KFP's intermediate representation of one pipeline, in the JSON names of its protobuf messages, keys sorted.

    ``ir`` is the ``PipelineSpec``; ``platform`` the mapping below ``platforms`` of the platform document (often empty);
    ``source`` the absolute path of the file it came from; ``pipeline`` its name. ``files`` are the digests of the files of the
    user that it was made from, by absolute path: while none of them changes, compiling again would give the same. ``commits``
    are the digests of component texts from addresses that name a commit.
    """

    ir: dict[str, Any]
    platform: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    pipeline: str = ""
    warnings: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """The value as JSON data, part of a larger document; not a copy."""
        return {
            "ir": self.ir,
            "platform": self.platform,
            "source": self.source,
            "pipeline": self.pipeline,
            "warnings": list(self.warnings),
            "files": self.files,
            "commits": self.commits,
        }

    def to_json(self) -> str:
        """Write it as one line of JSON that :meth:`from_json` reads back to an equal value."""
        return json.dumps(self.to_data(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Compiled:
        """Read what :meth:`to_json` wrote. Raises ``ValueError`` or ``KeyError`` for anything else."""
        return cls.from_data(read_json(text))

    @classmethod
    def from_data(cls, document: Mapping[str, Any]) -> Compiled:
        """The value from what :meth:`to_data` gave. Raises ``KeyError`` for anything else."""
        return cls(
            ir=document["ir"],
            platform=document["platform"],
            source=document["source"],
            pipeline=document["pipeline"],
            warnings=tuple(document["warnings"]),
            files=document["files"],
            commits=document.get("commits", {}),
        )


def read_json(text: str) -> Any:
    """Read JSON that may hold a compiled pipeline; equal small mappings become one object, so nobody may change them.

    The SDK writes a component and an executor for every task, each with its whole source: most of it many times over.
    """
    known: dict[str, dict[str, Any]] = {}
    large: set[int] = set()

    def shared(item: dict[str, Any]) -> dict[str, Any]:
        if len(item) > _SMALL or not large.isdisjoint(map(id, item.values())):
            large.add(id(item))  # and so is everything around it
            return item
        return known.setdefault(repr(item), item)

    return json.loads(text, object_hook=shared)


def digests(paths: Iterable[str]) -> dict[str, str]:
    """SHA-256 of files by path; those that cannot be read are left out."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return found


def sorted_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Copy JSON data with every mapping in the order of its keys: protobuf maps come in a random order per process."""
    copy: dict[str, Any] = json.loads(json.dumps(value, sort_keys=True, default=_refuse))
    return copy


def _refuse(value: object) -> Any:
    raise ValueError(f"{type(value).__name__} is no JSON value")
