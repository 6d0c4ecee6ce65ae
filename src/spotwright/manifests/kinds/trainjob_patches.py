"""How a TrainJob changes the pods of its runtime: three fields in four releases, of which the API server knows one.

Every release has the same apiVersion, and a field of another one is dropped without a word. So the release is asked for
(``target.trainer``), else read off the fields that the document has, else the newest is taken, and the last two are said aloud.
Source: kubeflow/trainer, ``pkg/apis/trainer/v1alpha1/trainjob_types.go`` and ``pkg/runtime/core/trainingruntime.go`` at v2.0.0,
v2.1.0, v2.2.0 and v2.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Path
from spotwright.manifests.levels import POD_FIELDS
from spotwright.manifests.shapes import POD, TEMPLATE, TEXT

__all__ = ["KUEUE", "MANAGER", "PATCHES", "Generation", "Patch", "generation", "items", "patches"]

MANAGER = "spotwright.dev/placement"
"""The manager of the one entry that is ours."""

KUEUE = "kueue.x-k8s.io/manager"
"""The manager under which Kueue writes what the flavors say."""

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
class Generation:
    """A release of the Trainer, as far as TrainJobs differ."""

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
    """What one entry says of replicated jobs. ``template`` holds ``metadata`` and ``spec``."""

    entry: Path
    spec: Path  # where the pod spec's fields stand
    manager: str
    jobs: tuple[str, ...]
    template: Mapping[str, Any]


def generation(ctx: Context) -> Generation:
    """The release that the TrainJob is for. Raises :class:`ManifestError` where it has a field of another one."""
    used = [version for version, name in _FIELDS.items() if ctx.get("spec", name) is not None]
    target = str(ctx.config.target.get("trainer", ""))
    if target:
        known = Generation(_version(target))
    else:
        known = Generation(_used(ctx, used[-1]) if used else _NEWEST)
        why = f"its {known.field} says so" if used else "the newest that is known"
        text = f"taken as of trainer {known} ({why}); name yours under target: {{trainer: ...}} in spotwright.yaml"
        ctx.say(Level.NOTE, ctx.at("kind"), text)
    for version in used:
        name = _FIELDS[version]
        if name != known.field:
            text = f"trainer {known} drops this field without a word; write it as {known.field}"
            raise ctx.problem(ctx.at("spec", name), text)
    _refuse_unknown(ctx, known)
    return known


def _version(text: str) -> tuple[int, int]:
    parts = [int(part) for part in text.removeprefix("v").split(".")[:2] if part.isdigit()]
    found = (parts[0], parts[1]) if len(parts) > 1 else _NEWEST
    return max((2, 0), min(found, _NEWEST))


def _used(ctx: Context, version: tuple[int, int]) -> tuple[int, int]:
    """Only 2.3 knows a grace period in ``runtimePatches``."""
    if version == (2, 2) and any(_GRACE in _spec(patch) for patch in patches(ctx, Generation(version))):
        return (2, 3)
    return version


def _refuse_unknown(ctx: Context, known: Generation) -> None:
    for patch in patches(ctx, known):
        for name in _spec(patch):
            if name in POD_FIELDS and not known.can_set(name):
                text = f"trainer {known} drops this field here; it belongs to the pod template of the runtime"
                raise ctx.problem((*patch.spec, name), text)


def _spec(patch: Patch) -> Mapping[str, Any]:
    return patch.template.get("spec") or {}


def patches(ctx: Context, known: Generation) -> Iterator[Patch]:
    """What the document's own entries say, in the order in which they are applied."""
    at = ctx.at("spec", known.field)
    for index, entry in enumerate(ctx.editor.get(at) or ()):
        if known.field == "runtimePatches":
            yield from _of_entry(ctx, (*at, index), str(entry.get("manager")))
            continue
        jobs = tuple(str(job.get("name")) for job in entry.get("targetJobs") or ())
        if known.field == "podSpecOverrides":
            spec = {key: value for key, value in entry.items() if key != "targetJobs"}
            yield Patch((*at, index), (*at, index), "", jobs, {"spec": spec})
        else:
            template = {key: entry[key] for key in ("metadata", "spec") if key in entry}
            yield Patch((*at, index), (*at, index, "spec"), "", jobs, template)


def _of_entry(ctx: Context, entry: Path, manager: str) -> Iterator[Patch]:
    jobs = (*entry, *_JOBS)
    for index, job in enumerate(ctx.editor.get(jobs) or ()):
        pod = (*jobs, index, *_POD)
        template = ctx.editor.get(pod)
        if template is not None:
            yield Patch(entry, (*pod, "spec"), manager, (str(job.get("name")),), template)


def items(known: Generation, templates: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries that change pods of replicated jobs as ``templates`` say: by job, with ``metadata`` and ``spec``."""
    if known.field == "podSpecOverrides":
        return [{"targetJobs": [{"name": job}], **template["spec"]} for job, template in templates.items()]
    if known.field == "podTemplateOverrides":
        return [{"targetJobs": [{"name": job}], **template} for job, template in templates.items()]
    jobs = [{"name": job, "template": {"spec": {"template": dict(template)}}} for job, template in templates.items()]
    return [{"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]
