"""An option for the Kubeflow SDK: ``TrainerClient().train(..., options=[spot.TrainJobOption(policy)])``.

The SDK calls an option with the TrainJob that it will create, its trainer and its backend, and then reads the name, the labels,
``runtimePatches`` and ``activeDeadlineSeconds`` of the changed TrainJob (kubeflow 0.5.0, ``backends/kubernetes/backend.py``).
The environment of the code is set on the trainer, which takes plain texts only. Nothing of the SDK is imported.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.manifests.files.python_objects import place

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
    the current folder. ``runtime`` is the argument of ``train(runtime=...)``, which the SDK does not pass to options: the name
    of a runtime, which is then read from the cluster, or its manifest as a dict or model. Pass this option last, after ``Name``
    and ``RuntimePatch``. A TrainJob without a name of its own gets no place for checkpoints.

    Calling it raises :class:`InputError` if the job cannot be placed or the runtime does not exist.
    """

    def __init__(
        self, policy: Config | Mapping[str, Any] | str | Path | None = None, *, runtime: Any = _DEFAULT_RUNTIME
    ) -> None:
        self._policy = policy
        self._runtime = runtime

    def __call__(self, job_spec: dict[str, Any], trainer: Any, backend: Any) -> None:
        """Change ``job_spec`` and ``trainer`` in place, as the SDK's own options do."""
        runtime = _runtime(self._runtime, backend)
        metadata = job_spec.get("metadata") or {}
        name = str(metadata.get("name") or "")
        spec = place(_job(job_spec, runtime, trainer, name), self._policy, beside=[runtime], records={})["spec"]
        if "podSpecOverrides" in spec or "podTemplateOverrides" in spec:
            raise InputError(
                "the Kubeflow SDK supports trainer 2.2 and later: correct target: {trainer: ...} in spotwright.yaml"
            )
        variables = _set_environment(trainer, (spec.get("trainer") or {}).get("env") or (), name)
        patches = [
            _without_checkpoint(patch) if _RUN not in variables else patch for patch in spec.get("runtimePatches") or ()
        ]
        result = job_spec.setdefault("spec", {})
        if patches:
            result["runtimePatches"] = patches
        if "activeDeadlineSeconds" in spec:
            result["activeDeadlineSeconds"] = spec["activeDeadlineSeconds"]


def _job(job_spec: Mapping[str, Any], runtime: Mapping[str, Any], trainer: Any, name: str) -> dict[str, Any]:
    """The TrainJob with all fields that are known before the SDK creates it."""
    spec = {key: value for key, value in (job_spec.get("spec") or {}).items() if key != "trainer"}
    spec["runtimeRef"] = {"kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    trainer_spec: dict[str, Any] = {}
    resources = _resources(trainer)
    if resources:
        trainer_spec["resourcesPerNode"] = {"requests": resources, "limits": resources}
    environment = getattr(trainer, "env", None)
    if environment:
        trainer_spec["env"] = [{"name": key, "value": value} for key, value in environment.items()]
    if trainer_spec:
        spec["trainer"] = trainer_spec
    metadata = {**(job_spec.get("metadata") or {}), "name": name or "trainjob"}
    return {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": "TrainJob", "metadata": metadata, "spec": spec}


def _resources(trainer: Any) -> dict[str, Any]:
    """The requests of a node, with the resource names that the SDK will use."""
    given = getattr(trainer, "resources_per_node", None) or getattr(
        getattr(trainer, "config", None), "resources_per_node", None
    )
    resources = {}
    for key, value in (given or {}).items():
        name = str(key).lower() if str(key).lower() in _LOWER else str(key)
        resources[_ALIASES.get(name, name)] = value
    return resources


def _runtime(given: Any, backend: Any) -> Mapping[str, Any]:
    """The manifest of the runtime: as given, or read from the cluster as the SDK does, the namespace's before the cluster's."""
    if isinstance(given, Mapping):
        return given
    if hasattr(given, "to_dict"):
        return dict(given.to_dict())
    name = getattr(given, "name", given)
    api = getattr(backend, "custom_api", None)
    if api is None:
        text = (
            f"TrainJobOption needs the Kubernetes backend, which can read the runtime; {type(backend).__name__} cannot"
        )
        raise InputError(text)
    api_error: Any = import_module("kubernetes.client").ApiException  # the SDK's own client
    for kind, plural in _KINDS.items():
        try:
            if kind == "TrainingRuntime":
                manifest = api.get_namespaced_custom_object(_GROUP, _VERSION, backend.namespace, plural, name)
            else:
                manifest = api.get_cluster_custom_object(_GROUP, _VERSION, plural, name)
        except api_error as error:
            if error.status != 404:
                raise InputError(f"runtime {name} cannot be read: {error.status} {error.reason}") from error
            continue
        return {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": kind, **manifest}
    raise InputError(f"there is no runtime {name}: pass the runtime of train(runtime=...)")


def _set_environment(trainer: Any, environment: Any, name: str) -> set[str]:
    """Set the variables that are plain texts on the trainer, and the run's if the job has a name; returns their names."""
    texts = {item["name"]: item["value"] for item in environment if "value" in item}
    ours = {key: value for key, value in texts.items() if key.startswith("SPOTWRIGHT_") or key == "PYTHONPATH"}
    if name:
        ours = {_RUN: name, **ours}
    variables = {key: value for key, value in ours.items() if "$(SPOTWRIGHT_HOST)" not in value}
    if not name:
        variables.pop("SPOTWRIGHT_CHECKPOINT", None)
    if not hasattr(trainer, "env"):
        if "SPOTWRIGHT_CHECKPOINT" in ours:
            warnings.warn(
                "this trainer takes no environment, so its code does not learn the place of its checkpoints",
                stacklevel=4,
            )
        return set()
    if "SPOTWRIGHT_CHECKPOINT" in ours and not name:
        warnings.warn(
            "give the TrainJob a name (options=[Name(...), ...]): without one it gets no place for checkpoints",
            stacklevel=4,
        )
    trainer.env = {**variables, **(trainer.env or {})}
    return set(variables)


def _without_checkpoint(patch: Mapping[str, Any]) -> dict[str, Any]:
    """Our entry without the volume of the checkpoint, whose folder has the run's name."""
    entry = {key: value for key, value in patch.items() if key != "trainingRuntimeSpec"}
    if patch.get("manager") != "spotwright.dev/placement":
        return dict(patch)
    jobs = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    without_volumes = []
    for job in jobs:
        pod = job["template"]["spec"]["template"]
        spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in ("volumes", "containers")}
        without_volumes.append({"name": job["name"], "template": {"spec": {"template": {**pod, "spec": spec}}}})
    entry["trainingRuntimeSpec"] = {"template": {"spec": {"replicatedJobs": without_volumes}}}
    return entry
