"""Executors of KFP tasks beside containers: Python components, importers, and steps that create or delete a PVC."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.graph import Executor, RunsNowhere, TaskContext
from spotwright.pipelines.values.artifact_paths import RELATIVE, is_relative
from spotwright.pipelines.values.placeholders import fill

__all__ = ["Importer", "PvcStep", "PythonComponent", "generated_pvc_name"]

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

        Raises ``ValueError`` for an address that is empty, that is a relative path, or that climbs above where it begins: it
        becomes a path in pods.
        """
        uri = fill(self.uri, parameters, artifacts, context)
        if not uri:
            raise ValueError("the address that it imports is empty")
        if is_relative(uri):
            raise ValueError(f"the address that it imports, {uri}, {RELATIVE}")
        if "://" in uri and ".." in uri.split("/"):
            raise ValueError(f"the address that it imports, {uri}, climbs with '..'; write it without")
        artifact = {
            "name": self.output,
            "type": {"schemaTitle": self.schema, "schemaVersion": self.version},
            "uri": uri.removeprefix("file://"),
            "metadata": fill(self.metadata, parameters, artifacts, context),
        }
        return {"parameters": {}, "artifacts": {self.output: artifact}}


@dataclass(frozen=True, slots=True)
class PvcStep(RunsNowhere):
    """A task that creates (``creates``) or deletes a persistent volume claim. It has no pod, as on a cluster.

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
        """The name of a new claim; nothing for a deletion. Raises ``ValueError`` for a name that no claim can have."""
        name, suffix = str(parameters.get("pvc_name") or ""), str(parameters.get("pvc_name_suffix") or "")
        if not self.creates:
            _checked(name)
            return {"parameters": {}, "artifacts": {}}
        if name and suffix:
            raise ValueError("only one of pvc_name and pvc_name_suffix can be given")
        return {"parameters": {"name": _checked(name or generated_pvc_name(context) + suffix)}, "artifacts": {}}


def generated_pvc_name(context: TaskContext) -> str:
    """The name of a claim that the pipeline does not name. The backend draws it; here run and task determine it."""
    text = hashlib.sha256(f"{context.run}\0{context.task}".encode()).hexdigest()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


def _checked(name: str) -> str:
    if not _PVC_NAME.fullmatch(name):
        raise ValueError(f"a claim cannot be called {name!r}: expected lower-case letters, digits, - and .")
    return name
