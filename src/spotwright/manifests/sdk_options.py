"""An option for the Kubeflow SDK: ``TrainerClient().train(..., options=[spot.TrainJobOption(policy)])``.

The SDK calls an option with the TrainJob that it is about to make, its trainer and its backend, and then takes the name, the
labels, ``runtimePatches`` and ``activeDeadlineSeconds`` of what comes back (kubeflow 0.5.0,
``backends/kubernetes/backend.py``). The environment of the code goes through the trainer, where it can hold plain texts only.
Nothing of the SDK is imported.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.manifests.objects import place

__all__ = ["TrainJobOption"]

_GROUP, _VERSION = "trainer.kubeflow.org", "v1alpha1"
_DEFAULT_RUNTIME = "torch-distributed"  # the SDK's own
_KINDS = {"TrainingRuntime": "trainingruntimes", "ClusterTrainingRuntime": "clustertrainingruntimes"}
_ALIASES = {"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage"}  # of the SDK, for resources
_LOWER = frozenset({"cpu", "memory", *_ALIASES})
_RUN = "SPOTWRIGHT_RUN"


class TrainJobOption:
    """Place the TrainJob that ``TrainerClient().train(..., options=[TrainJobOption(policy, runtime=...)])`` makes.

    ``policy`` is the path of a ``spotwright.yaml``, a mapping in its shape, or a loaded configuration; by default the file of
    the current folder. ``runtime`` is what ``train(runtime=...)`` is given, because options are not told: its name, which is then
    read from the cluster, or its manifest as a dict or model. Give this option last, after ``Name`` and ``RuntimePatch``; a
    TrainJob without a name of its own has no place for checkpoints, so it is told of none.

    Calling it raises :class:`InputError` where the job cannot be placed, or the runtime is not there.
    """

    def __init__(
        self, policy: Config | Mapping[str, Any] | str | Path | None = None, *, runtime: Any = _DEFAULT_RUNTIME
    ) -> None:
        self._policy = policy
        self._runtime = runtime

    def __call__(self, job_spec: dict[str, Any], trainer: Any, backend: Any) -> None:
        """Change the job under way, as the SDK's own options do."""
        runtime = _runtime(self._runtime, backend)
        metadata = job_spec.get("metadata") or {}
        name = str(metadata.get("name") or "")
        spec = place(_job(job_spec, runtime, trainer, name), self._policy, beside=[runtime], records={})["spec"]
        if "podSpecOverrides" in spec or "podTemplateOverrides" in spec:
            raise InputError(
                "the Kubeflow SDK speaks trainer 2.2 and later: mend target: {trainer: ...} in spotwright.yaml"
            )
        told = _tell(trainer, (spec.get("trainer") or {}).get("env") or (), name)
        patches = [
            _without_checkpoint(patch) if _RUN not in told else patch for patch in spec.get("runtimePatches") or ()
        ]
        result = job_spec.setdefault("spec", {})
        if patches:
            result["runtimePatches"] = patches
        if "activeDeadlineSeconds" in spec:
            result["activeDeadlineSeconds"] = spec["activeDeadlineSeconds"]


def _job(job_spec: Mapping[str, Any], runtime: Mapping[str, Any], trainer: Any, name: str) -> dict[str, Any]:
    """The TrainJob as far as it is known now."""
    spec = {key: value for key, value in (job_spec.get("spec") or {}).items() if key != "trainer"}
    spec["runtimeRef"] = {"kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    said: dict[str, Any] = {}
    resources = _resources(trainer)
    if resources:
        said["resourcesPerNode"] = {"requests": resources, "limits": resources}
    environment = getattr(trainer, "env", None)
    if environment:
        said["env"] = [{"name": key, "value": value} for key, value in environment.items()]
    if said:
        spec["trainer"] = said
    metadata = {**(job_spec.get("metadata") or {}), "name": name or "trainjob"}
    return {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": "TrainJob", "metadata": metadata, "spec": spec}


def _resources(trainer: Any) -> dict[str, Any]:
    """What a node asks for, in the names that the SDK will give it."""
    given = getattr(trainer, "resources_per_node", None) or getattr(
        getattr(trainer, "config", None), "resources_per_node", None
    )
    found = {}
    for key, value in (given or {}).items():
        known = str(key).lower() if str(key).lower() in _LOWER else str(key)
        found[_ALIASES.get(known, known)] = value
    return found


def _runtime(given: Any, backend: Any) -> Mapping[str, Any]:
    """The manifest of the runtime: as given, or read as the SDK reads it, the namespace's own before the cluster's."""
    if isinstance(given, Mapping):
        return given
    if hasattr(given, "to_dict"):
        return dict(given.to_dict())
    name = getattr(given, "name", given)
    api = getattr(backend, "custom_api", None)
    if api is None:
        text = f"TrainJobOption works with the Kubernetes backend, which can read the runtime; {type(backend).__name__} cannot"
        raise InputError(text)
    refused: Any = import_module("kubernetes.client").ApiException  # the SDK's own client
    for kind, plural in _KINDS.items():
        try:
            if kind == "TrainingRuntime":
                found = api.get_namespaced_custom_object(_GROUP, _VERSION, backend.namespace, plural, name)
            else:
                found = api.get_cluster_custom_object(_GROUP, _VERSION, plural, name)
        except refused as error:
            if error.status != 404:
                raise InputError(f"runtime {name} cannot be read: {error.status} {error.reason}") from error
            continue
        return {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": kind, **found}
    raise InputError(f"there is no runtime {name}: name the one that train(runtime=...) is given")


def _tell(trainer: Any, environment: Any, name: str) -> set[str]:
    """Give the trainer the variables that are plain texts, and the run's where the job has a name; their names come back."""
    texts = {item["name"]: item["value"] for item in environment if "value" in item}
    ours = {key: value for key, value in texts.items() if key.startswith("SPOTWRIGHT_")}
    if name:
        ours = {_RUN: name, **ours}
    known = {key: value for key, value in ours.items() if "$(SPOTWRIGHT_HOST)" not in value}
    if not name:
        known.pop("SPOTWRIGHT_CHECKPOINT", None)
    if not hasattr(trainer, "env"):
        if "SPOTWRIGHT_CHECKPOINT" in ours:
            warnings.warn(
                "this trainer takes no environment, so its code is not told where its checkpoints are", stacklevel=4
            )
        return set()
    if "SPOTWRIGHT_CHECKPOINT" in ours and not name:
        warnings.warn(
            "give the TrainJob a name (options=[Name(...), ...]): without one it has no place for checkpoints",
            stacklevel=4,
        )
    trainer.env = {**known, **(trainer.env or {})}
    return set(known)


def _without_checkpoint(patch: Mapping[str, Any]) -> dict[str, Any]:
    """Our entry without the volume of the checkpoint, whose folder is named by the run."""
    found = {key: value for key, value in patch.items() if key != "trainingRuntimeSpec"}
    if patch.get("manager") != "spotwright.dev/placement":
        return dict(patch)
    jobs = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    kept = []
    for job in jobs:
        pod = job["template"]["spec"]["template"]
        spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in ("volumes", "containers")}
        kept.append({"name": job["name"], "template": {"spec": {"template": {**pod, "spec": spec}}}})
    found["trainingRuntimeSpec"] = {"template": {"spec": {"replicatedJobs": kept}}}
    return found
