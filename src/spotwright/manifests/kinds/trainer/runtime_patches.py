"""The fields with which a TrainJob changes the pods of its runtime: three fields in four releases, one for each API server.

All releases have the same apiVersion, and the API server silently drops the field of another release. So the release is
configured (``target.trainer``), else derived from the fields in the document, else the newest; a note reports the last two.
Source: kubeflow/trainer, ``pkg/apis/trainer/v1alpha1/trainjob_types.go`` and ``pkg/runtime/core/trainingruntime.go`` at v2.0.0,
v2.1.0, v2.2.0 and v2.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.rules.context import Level, PlaceContext
from spotwright.manifests.rules.misplaced_fields import POD_FIELDS
from spotwright.manifests.rules.schema import POD, TEMPLATE, TEXT
from spotwright.manifests.yamltext.documents import Path

__all__ = [
    "KUEUE",
    "MANAGER",
    "PATCHES",
    "Patch",
    "TrainerRelease",
    "patch_entries",
    "patches",
    "trainer_release",
    "without_own_entries",
]

MANAGER = "spotwright.dev/placement"
"""The manager of Spotwright's own entry."""

KUEUE = "kueue.x-k8s.io/manager"
"""The manager of the entry in which Kueue writes the settings of its flavors."""

_NEWEST = (2, 3)
_FIELDS = {(2, 0): "podSpecOverrides", (2, 1): "podTemplateOverrides", (2, 2): "runtimePatches"}
_POD = ("template", "spec", "template")  # below a replicated job
_JOBS: Path = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
_GRACE = "terminationGracePeriodSeconds"
_TARGETS = {"targetJobs": [{"name": TEXT}]}
_JOB = {"name": TEXT, "template": {"spec": {"template": TEMPLATE}}}
PATCHES: Mapping[str, Any] = {
    "podSpecOverrides": [{**POD, **_TARGETS}],
    "podTemplateOverrides": [{**TEMPLATE, **_TARGETS}],
    "runtimePatches": [
        {"manager": TEXT, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [_JOB]}}}},
    ],
}
"""The fields of a TrainJob's spec that change pods, of every release."""

_SETTABLE: Mapping[tuple[int, int], frozenset[str]] = {
    (2, 0): frozenset({"containers", "initContainers", "nodeSelector", "serviceAccountName", "tolerations", "volumes"}),
    (2, 1): frozenset({"affinity", "imagePullSecrets"}),
    (2, 2): frozenset(),
    (2, 3): frozenset({_GRACE}),
}


@dataclass(frozen=True, slots=True)
class TrainerRelease:
    """A release of the Trainer, with the differences between TrainJobs."""

    version: tuple[int, int]

    @property
    def field(self) -> str:
        """The field of ``spec`` that changes pods."""
        return _FIELDS[min(self.version, (2, 2))]

    def can_set(self, name: str) -> bool:
        """Whether a field of the pod spec can be set on the TrainJob."""
        return any(name in names for version, names in _SETTABLE.items() if version <= self.version)

    @property
    def has_metadata(self) -> bool:
        """Whether labels and annotations of the pods can be set on the TrainJob."""
        return self.version >= (2, 1)

    def __str__(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


@dataclass(frozen=True, slots=True)
class Patch:
    """The changes of one entry to replicated jobs. ``template`` has their ``metadata`` and ``spec``; ``spec`` is its path."""

    entry: Path
    spec: Path
    manager: str
    jobs: tuple[str, ...]
    template: Mapping[str, Any]


def trainer_release(ctx: PlaceContext) -> TrainerRelease:
    """The release for which the TrainJob is. Raises :class:`ManifestError` if it has a field of another release."""
    used = [version for version, name in _FIELDS.items() if ctx.get("spec", name) is not None]
    target = str(ctx.config.target.get("trainer", ""))
    if target:
        release = TrainerRelease(_version(target))
    else:
        release = TrainerRelease(_used(ctx, used[-1]) if used else _NEWEST)
        reason = f"it has {release.field}" if used else "the newest known"
        text = f"treated as for trainer {release} ({reason}); state yours under target: {{trainer: ...}} in spotwright.yaml"
        ctx.add_finding(Level.NOTE, ctx.at("kind"), text)
    for version in used:
        name = _FIELDS[version]
        if name != release.field:
            text = f"trainer {release} silently drops this field; write it as {release.field}"
            raise ctx.problem(ctx.at("spec", name), text)
    _refuse_unknown(ctx, release)
    return release


def _version(text: str) -> tuple[int, int]:
    parts = [int(part) for part in text.removeprefix("v").split(".")[:2] if part.isdigit()]
    version = (parts[0], parts[1]) if len(parts) > 1 else _NEWEST
    return max((2, 0), min(version, _NEWEST))


def _used(ctx: PlaceContext, version: tuple[int, int]) -> tuple[int, int]:
    """The release whose field is used; only 2.3 has a grace period in ``runtimePatches``."""
    if version == (2, 2) and any(_GRACE in _spec(patch) for patch in patches(ctx, TrainerRelease(version))):
        return (2, 3)
    return version


def _refuse_unknown(ctx: PlaceContext, release: TrainerRelease) -> None:
    for patch in patches(ctx, release):
        for name in _spec(patch):
            if name in POD_FIELDS and not release.can_set(name):
                text = f"trainer {release} drops this field here; set it in the pod template of the runtime"
                raise ctx.problem((*patch.spec, name), text)


def _spec(patch: Patch) -> Mapping[str, Any]:
    return patch.template.get("spec") or {}


def patches(ctx: PlaceContext, release: TrainerRelease) -> Iterator[Patch]:
    """The changes of the document's own entries, in the order in which they are applied."""
    at = ctx.at("spec", release.field)
    for index, entry in enumerate(ctx.editor.get(at) or ()):
        if release.field == "runtimePatches":
            yield from _of_entry(ctx, (*at, index), str(entry.get("manager")))
            continue
        jobs = tuple(str(job.get("name")) for job in entry.get("targetJobs") or ())
        if release.field == "podSpecOverrides":
            spec = {key: value for key, value in entry.items() if key != "targetJobs"}
            yield Patch((*at, index), (*at, index), "", jobs, {"spec": spec})
        else:
            template = {key: entry[key] for key in ("metadata", "spec") if key in entry}
            yield Patch((*at, index), (*at, index, "spec"), "", jobs, template)


def _of_entry(ctx: PlaceContext, entry: Path, manager: str) -> Iterator[Patch]:
    jobs = (*entry, *_JOBS)
    for index, job in enumerate(ctx.editor.get(jobs) or ()):
        pod = (*jobs, index, *_POD)
        template = ctx.editor.get(pod)
        if template is not None:
            yield Patch(entry, (*pod, "spec"), manager, (str(job.get("name")),), template)


def patch_entries(release: TrainerRelease, templates: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries that apply ``templates``, by replicated job, with ``metadata`` and ``spec``."""
    if release.field == "podSpecOverrides":
        return [{"targetJobs": [{"name": job}], **template["spec"]} for job, template in templates.items()]
    if release.field == "podTemplateOverrides":
        return [{"targetJobs": [{"name": job}], **template} for job, template in templates.items()]
    jobs = [{"name": job, "template": {"spec": {"template": dict(template)}}} for job, template in templates.items()]
    return [{"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]


def without_own_entries(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A TrainJob without the entries of :data:`MANAGER`, so that it can be placed again; any other object as it is."""
    spec = data.get("spec")
    own = spec.get("runtimePatches") if isinstance(spec, dict) and data.get("kind") == "TrainJob" else None
    if not isinstance(spec, dict) or not isinstance(own, list):
        return data
    kept = [entry for entry in own if not (isinstance(entry, dict) and entry.get("manager") == MANAGER)]
    rest = {name: value for name, value in spec.items() if name != "runtimePatches"}
    return {**data, "spec": {**rest, "runtimePatches": kept} if kept else rest}
