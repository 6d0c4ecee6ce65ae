"""Fingerprints of a task: of one execution with its inputs (for the cache), and of its code alone (for ``resume``).

The fingerprint of an execution covers what the backend's does (``GenerateCacheKey`` in ``backend/src/v2/cacheutils/cache.go``):
the container with its command, image and environment, the inputs, and the declared outputs. The backend identifies an input
artifact by its record; here it is the address and, for a file or folder on this machine, the content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from spotwright.graph import Source, TaskSpec
from spotwright.pipelines.graph.task_config import task_config_of
from spotwright.pipelines.graph.task_settings import PLACEMENT

__all__ = ["code_fingerprint", "fingerprint"]

_FORMAT = 1  # a new number invalidates every earlier result


def fingerprint(task: TaskSpec, parameters: Mapping[str, Any], artifacts: Mapping[str, Any]) -> str:
    """The fingerprint of an execution, SHA-256 in hex: executions with equal fingerprints may share their result.

    ``parameters`` and ``artifacts`` are the resolved inputs. A ``cache_key`` of the task's own replaces everything but its
    declared outputs (the backend uses the key alone; without the same outputs a result could not be used).
    """
    outputs = {"parameters": {name: spec.type for name, spec in task.outputs.parameters.items()}}
    outputs["artifacts"] = {name: spec.schema for name, spec in task.outputs.artifacts.items()}
    if task.cache_key:
        return _digest({"key": task.cache_key, "outputs": outputs})
    return _digest(
        {
            "code": _code(task),
            "parameters": {name: value for name, value in parameters.items() if _counts(task, name)},
            "artifacts": {name: [_artifact(item) for item in _listed(given)] for name, given in artifacts.items()},
            "outputs": outputs,
        }
    )


def _counts(task: TaskSpec, name: str) -> bool:
    """Whether an input counts. An input of the placement counts only where it may name a PVC, as in the backend."""
    return not name.startswith(PLACEMENT) or bool(task.pod_config)


def code_fingerprint(task: TaskSpec) -> str:
    """The fingerprint of a task without its input values, SHA-256 in hex.

    It covers source, packages, image and environment, the constants and wiring of its inputs, its declared inputs and outputs.
    Resources, placement, retries and policy are left out: they change where and how often it runs, never its outputs.
    """
    return _digest(
        {
            "code": _code(task),
            "pipeline": task.dag is not None,
            "parameters": _wiring(task.parameters),
            "artifacts": _wiring(task.artifacts),
            "parameter_specs": {name: asdict(spec) for name, spec in task.parameter_specs.items()},
            "artifact_specs": {name: asdict(spec) for name, spec in task.artifact_specs.items()},
            "outputs": asdict(task.outputs),
        }
    )


def _code(task: TaskSpec) -> Any:
    code = asdict(task.executor) if task.executor else None
    settings: list[Any] = [asdict(task.pod_config)] if task.pod_config else []
    config = task_config_of(task).values
    if config:
        settings += [config.get("env"), config.get("volumes")]  # the backend has them in the container and its claims
    return [code, *settings] if settings else code


def _wiring(sources: Mapping[str, Source]) -> dict[str, Any]:
    return {
        name: [type(source).__name__, asdict(source)]
        for name, source in sources.items()
        if not name.startswith(PLACEMENT)
    }


def _digest(value: Any) -> str:
    text = json.dumps([_FORMAT, value], sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode()).hexdigest()


def _listed(given: Any) -> list[Mapping[str, Any]]:
    if given is None:
        return []
    return list(given) if isinstance(given, list) else [given]


def _artifact(artifact: Mapping[str, Any]) -> list[Any]:
    uri = str(artifact.get("uri", ""))
    return [uri, artifact.get("metadata") or {}, "" if "://" in uri else _content(uri)]


def _content(path: str) -> str:
    """A digest of a file, or of every file below a folder; empty where there is none."""
    place = Path(path)
    if place.is_file():
        return _file(place)
    files = sorted(below for below in place.rglob("*") if below.is_file())
    if not files:
        return ""
    listed = [f"{below.relative_to(place)}\0{_file(below)}\0" for below in files]
    return hashlib.sha256("".join(listed).encode("utf-8", "surrogateescape")).hexdigest()


def _file(path: Path) -> str:
    try:
        stat = path.stat()
        return _digest_of_file(path, (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    except OSError:
        return "unreadable"


@lru_cache(maxsize=4096)
def _digest_of_file(path: Path, identity: tuple[int, ...]) -> str:  # noqa: ARG001 - part of the cache's key
    """The digest of a file, kept while its identity is the same: one large file is often the input of many tasks."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
