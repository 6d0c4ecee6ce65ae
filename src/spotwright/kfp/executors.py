"""Executors of KFP tasks beside containers: Python components, importers, and steps that create or delete a PVC.

Each has two fingerprints: of one execution with its inputs (for the cache), and of its code alone (for ``resume``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from spotwright.graph import Executor, RunsNowhere, Source, TaskContext, TaskSpec
from spotwright.kfp.task_settings import PLACEMENT, task_config_of
from spotwright.kfp.values import RELATIVE, fill, is_relative

__all__ = ["Importer", "PvcStep", "PythonComponent", "code_fingerprint", "fingerprint", "generated_pvc_name"]


_PVC_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class PythonComponent(Executor):
    """A lightweight Python component: a module's source, the function in it, and its pip requirements.

    ``packages`` are pip requirements in the component's order; ``kfp`` is the requirement by which the compiled command
    would install the SDK (empty: none). ``command`` is the compiled container command, the component's identity.
    """

    module: str
    function: str
    packages: tuple[str, ...] = ()
    index_urls: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    kfp: str = ""
    command: tuple[str, ...] = ()

    @property
    def environment(self) -> Hashable | None:
        """Its packages and their indexes."""
        return (self.packages, self.index_urls, self.trusted_hosts) if self.packages else None


@dataclass(frozen=True, slots=True)
class Importer(RunsNowhere):
    """A task that brings an artifact into a run by its address. Address and metadata may hold placeholders.

    The backend looks the address up among the artifacts that it knows, or with ``reimport`` makes a new one
    (``backend/src/v2/component/importer_launcher.go``). Both give the same artifact to the tasks that follow.
    ``download_to_workspace`` brings it into the run once, which here happens to every artifact that a task reads.
    """

    output: str
    uri: str
    schema: str = "system.Artifact"
    version: str = "0.0.1"
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def outputs(
        self, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
    ) -> dict[str, Any]:
        """The artifact at the address. A ``file://`` address is that file.

        Raises ``ValueError`` for an empty address, a relative path, or one that escapes its root: it becomes a path in pods.
        """
        uri = fill(self.uri, parameters, artifacts, context)
        if not uri:
            raise ValueError("the address that it imports is empty")
        if is_relative(uri):
            raise ValueError(f"the address that it imports, {uri}, {RELATIVE}")
        if "://" in uri and ".." in uri.split("/"):
            raise ValueError(f"the address that it imports, {uri}, must not contain '..'")
        artifact = {
            "name": self.output,
            "type": {"schemaTitle": self.schema, "schemaVersion": self.version},
            "uri": uri.removeprefix("file://"),
            "metadata": fill(self.metadata, parameters, artifacts, context),
        }
        return {"parameters": {}, "artifacts": {self.output: artifact}}


@dataclass(frozen=True, slots=True)
class PvcStep(RunsNowhere):
    """A task that creates (``creates``) or deletes a persistent volume claim. As on a cluster, it has no pod.

    Until it is mounted, a claim is only a name. Sources: ``createPVC`` and ``deletePVC`` in
    ``backend/src/v2/driver/k8s.go`` of kubeflow/pipelines.
    """

    creates: bool

    def outputs(
        self,
        parameters: Mapping[str, Any],
        artifacts: Mapping[str, Any],  # noqa: ARG002 - a claim is made of no artifact
        context: TaskContext,
    ) -> dict[str, Any]:
        """The name of a new claim; empty for a deletion. Raises ``ValueError`` for a name that no claim can have."""
        name, suffix = str(parameters.get("pvc_name") or ""), str(parameters.get("pvc_name_suffix") or "")
        if not self.creates:
            _checked(name)
            return {"parameters": {}, "artifacts": {}}
        if name and suffix:
            raise ValueError("only one of pvc_name and pvc_name_suffix can be given")
        return {"parameters": {"name": _checked(name or generated_pvc_name(context) + suffix)}, "artifacts": {}}


def generated_pvc_name(context: TaskContext) -> str:
    """The name of a claim that the pipeline does not name. The backend draws it at random; here run and task determine it."""
    text = hashlib.sha256(f"{context.run}\0{context.task}".encode()).hexdigest()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


def _checked(name: str) -> str:
    if not _PVC_NAME.fullmatch(name):
        raise ValueError(f"invalid claim name {name!r}: expected lower-case letters, digits, - and .")
    return name


_FORMAT = 1  # a new number invalidates every earlier result


def fingerprint(task: TaskSpec, parameters: Mapping[str, Any], artifacts: Mapping[str, Any]) -> str:
    """The fingerprint of an execution, SHA-256 in hex: executions with equal fingerprints may share their result.

    ``parameters`` and ``artifacts`` are the resolved inputs. A task's ``cache_key`` replaces everything but its declared
    outputs (the backend uses only the key, but a result with other outputs is useless).
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
        settings += [config.get("env"), config.get("volumes")]  # the backend keeps them in the container and its claims
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
    """A digest of a file, or of every file below a folder, or empty."""
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
