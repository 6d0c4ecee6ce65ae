"""Place and unplace Python objects: dicts, models of the ``kubernetes`` client, and models of SDKs with the same interface.

An object is never changed; a placed copy is returned. Models are converted to plain data and back by their own client, which is
needed only for such objects. The Kubeflow SDK takes an option: ``TrainerClient().train(...,
options=[spot.TrainJobOption(policy)])``.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import yaml

from spotwright import config as configuration
from spotwright.config import Config, require_pools
from spotwright.errors import InputError
from spotwright.kinds.kind import Kind, all_kinds, kind_in
from spotwright.kinds.unknown import read_pod_path
from spotwright.manifests.files import PlacedFile, place_text, unmatched_patterns, unplace_text
from spotwright.placing.context import Group, Level, PlaceOptions
from spotwright.placing.documents import References, parse

__all__ = ["TrainJobOption", "object_text", "place", "unplace"]


_NAME = "object"
_BESIDE = "beside"

T = TypeVar("T")


def place(
    obj: T,
    policy: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    beside: Sequence[Any] = (),
    replace_retries: bool = False,
    pod_paths: Sequence[str] = (),
    only: str | Collection[str] = (),
    records: MutableMapping[str, str] | None = None,
) -> T:
    """A copy of the object with the additions of the policy.

    ``policy`` is the path of a ``spotwright.yaml``, a mapping in its shape, or a loaded configuration; by default the file in
    the current folder. ``beside`` are objects that this one refers to (a training runtime). ``pod_paths`` are further pod specs
    to place, as for ``--pod-path``: ``spec.workerGroupSpecs[*].template.spec``. ``only`` names the groups of changes that are
    written, as ``--only`` does: ``placement``, ``retries``, ``checkpoint``; all by default. Findings of level warning are Python
    warnings.
    ``records`` gets the record if it is larger than an annotation may be (32 KiB): keep it with the object, and pass it to
    :func:`unplace`. Raises :class:`InputError` if the object cannot be placed, and its subclass :class:`ConfigError` if there is
    no configuration, or one without pools: the built-in pools are for local runs.
    """
    references = References([document for other in beside for document in parse(object_text(other), _BESIDE)])
    paths = tuple(map(read_pod_path, pod_paths))
    options = PlaceOptions(replace_retries, paths, may_add=False, only=_groups(only))
    text, config = object_text(obj), _config(policy)
    require_pools(config, [text])
    placed = place_text(text, _NAME, config, references, options, records)
    placed.findings += unmatched_patterns(config, placed.roles)
    return _like(obj, placed)


def _groups(only: str | Collection[str]) -> frozenset[Group]:
    """The groups of changes with these names; all for none. Raises :class:`InputError` for another name, as the command does."""
    names = [only] if isinstance(only, str) else [*only]
    known = [group.value for group in Group]
    for name in names:
        if name not in known:
            raise InputError(f"Invalid value for only: {name!r} is not one of {', '.join(map(repr, known))}.")
    return frozenset(map(Group, names or Group))


def unplace(obj: T, *, records: MutableMapping[str, str] | None = None) -> T:
    """A copy of the object without the additions of :func:`place` or ``spotwright place``.

    ``records`` is the mapping that :func:`place` got, or the ``records`` of a file that ``spotwright place --record`` wrote.
    """
    return _like(obj, unplace_text(object_text(obj), _NAME, records))


def _config(policy: Config | Mapping[str, Any] | str | Path | None) -> Config:
    if isinstance(policy, Config):
        return policy
    if isinstance(policy, Mapping):
        return configuration.from_mapping(policy, "policy")
    return configuration.find(Path.cwd(), policy)


def _data(obj: Any) -> Mapping[str, Any]:
    """An object as plain data, in the field names of its API."""
    if isinstance(obj, Mapping):
        return obj
    if hasattr(obj, "openapi_types") and hasattr(obj, "attribute_map"):  # kubernetes, kubeflow.training, kubeflow.katib
        data: Mapping[str, Any] = _client(obj).sanitize_for_serialization(obj)
        return data
    if hasattr(obj, "to_dict"):  # hera, lightkube, kubeflow_trainer_api
        converted = obj.to_dict()
        if isinstance(converted, Mapping):
            return converted
    raise InputError(f"{type(obj).__name__}: expected a dict, or a model of the kubernetes client or a Kubeflow SDK")


def _client(obj: Any) -> Any:
    """The ``ApiClient`` of the model's package."""
    package = type(obj).__module__.split(".models")[0]
    client_class = (
        getattr(import_module(package), "ApiClient", None) or import_module(f"{package}.api_client").ApiClient
    )
    return client_class()


def object_text(obj: Any) -> str:
    """An object as YAML, as :func:`place` reads it. Raises :class:`InputError` for another value."""
    return _text(_data(obj))


def _text(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(json.loads(json.dumps(data, default=str)), sort_keys=False, allow_unicode=True, width=10**6)


def _like(obj: T, placement: PlacedFile) -> T:
    """The placed data as an object of the type of ``obj``; findings become warnings."""
    for finding in placement.findings:
        if finding.level is Level.WARNING:
            warnings.warn(finding.text, stacklevel=3)
    first, *others = parse(placement.text, _NAME)
    if others:
        raise InputError(
            "a placed pipeline has two documents, which one object cannot hold: use spotwright compile, or place its file"
        )
    data = first.get(())
    converted: Any
    if isinstance(obj, dict):
        converted = data
    elif hasattr(obj, "openapi_types"):
        converted = _client(obj).deserialize(_JsonBody(json.dumps(data)), type(obj).__name__)
    else:
        converted = type(obj).from_dict(data)  # type: ignore[attr-defined]
    return converted  # type: ignore[no-any-return]


class _JsonBody:
    """The response object that the client's ``deserialize`` reads: its body as text."""

    def __init__(self, data: str) -> None:
        self.data = data


_GROUP = "trainer.kubeflow.org"
_DEFAULT_RUNTIME = "torch-distributed"  # the SDK's own
_ALIASES = {"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage"}  # of the SDK, for resources
_LOWER = frozenset({"cpu", "memory", *_ALIASES})
_RUN = "SPOTWRIGHT_RUN"


class TrainJobOption:
    """Place the TrainJob that ``TrainerClient().train(..., options=[TrainJobOption(policy, runtime=...)])`` makes.

    ``policy`` is the path of a ``spotwright.yaml``, a mapping in its shape, or a loaded configuration; by default the file of
    the current folder. ``runtime`` is the argument of ``train(runtime=...)``, which the SDK does not pass to options: the name
    of a runtime, which is then read from the cluster, or its manifest as a dict or model. Pass this option last, after ``Name``
    and ``RuntimePatch``. A TrainJob without a name gets no place for checkpoints.

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
    return {
        "apiVersion": kind_in(_GROUP, "TrainJob").api_version,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": spec,
    }


def _resources(trainer: Any) -> dict[str, Any]:
    """The requests of a node, with the SDK's resource names."""
    given = getattr(trainer, "resources_per_node", None) or getattr(
        getattr(trainer, "config", None), "resources_per_node", None
    )
    resources = {}
    for key, value in (given or {}).items():
        name = str(key).lower() if str(key).lower() in _LOWER else str(key)
        resources[_ALIASES.get(name, name)] = value
    return resources


def _runtime(given: Any, backend: Any) -> Mapping[str, Any]:
    """The manifest of the runtime: as given, or read from the cluster like the SDK, the namespace's before the cluster's."""
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
    for kind in _runtimes():
        try:
            if kind.is_cluster_wide:
                manifest = api.get_cluster_custom_object(_GROUP, kind.version, kind.plural, name)
            else:
                manifest = api.get_namespaced_custom_object(_GROUP, kind.version, backend.namespace, kind.plural, name)
        except api_error as error:
            if error.status != 404:
                raise InputError(f"runtime {name} cannot be read: {error.status} {error.reason}") from error
            continue
        return {"apiVersion": kind.api_version, "kind": kind.name, **manifest}
    raise InputError(f"runtime {name} not found; pass the runtime of train(runtime=...)")


def _runtimes() -> list[Kind]:
    """The kinds of runtimes, first that of a namespace."""
    found = [kind for kind in all_kinds().values() if kind.group == _GROUP and kind.page_of_retries]
    return sorted(found, key=lambda kind: kind.is_cluster_wide)


def _set_environment(trainer: Any, environment: Any, name: str) -> set[str]:
    """Set the literal variables on the trainer, and the run's if the job has a name; returns their names."""
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
