"""Two identities of a task: of one execution with its inputs (for the cache), and of its code alone (for ``resume``).

What counts for the cache is what the backend counts (``GenerateCacheKey`` in ``backend/src/v2/cacheutils/cache.go``): the
container with its command, image and environment, the inputs, and the declared outputs. The backend knows an input
artifact by its record; here it is its address and, for a file or folder on this machine, its content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from spotwright.pipelines.settings import PLACEMENT
from spotwright.pipelines.spec import Source, TaskSpec

__all__ = ["code_fingerprint", "fingerprint"]

_FORMAT = 1  # a new number makes every earlier result unknown


def fingerprint(task: TaskSpec, parameters: Mapping[str, Any], artifacts: Mapping[str, Any]) -> str:
    """The identity of an execution, SHA-256 in hex: equal ones may share their result.

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
    """Whether an input counts: what only the placement needs does where it may be the name of a claim, as for the backend."""
    return not name.startswith(PLACEMENT) or bool(task.surroundings)


def code_fingerprint(task: TaskSpec) -> str:
    """The identity of everything in a task that is not an input value: SHA-256 in hex.

    Its source, packages, image and environment, the constants and wiring of its inputs, its declared inputs and outputs.
    Not its resources, placement, retries or policy: they change where and how often it runs, never what comes out.
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
    said: list[Any] = [asdict(task.surroundings)] if task.surroundings else []
    if task.config:
        said += [task.config.get("env"), task.config.get("volumes")]  # the backend knows them by container and claims
    return [code, *said] if said else code


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
    """A digest of a file, or of every file below a folder; empty when there is nothing."""
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
        seen = path.stat()
        return _digest_of_file(path, (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns))
    except OSError:
        return "unreadable"


@lru_cache(maxsize=4096)
def _digest_of_file(path: Path, looks: tuple[int, ...]) -> str:  # noqa: ARG001 - ``looks`` is there to tell a changed file
    """One large file is often the input of many tasks: its digest is kept as long as the file looks the same."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
