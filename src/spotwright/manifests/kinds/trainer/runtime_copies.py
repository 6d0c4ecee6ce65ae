"""The retries of a TrainJob: its runtime sets them, so a TrainJob that needs others gets a copy of the runtime.

A runtime that the same command places gets the failure policy itself. One that is only referred to may not be changed, because
others use it: a copy is added in front of the TrainJob, as a TrainingRuntime in its namespace, with the failure policy and the
fields that a TrainJob of this release cannot set; ``spec.runtimeRef`` names the copy. The API server fixes ``runtimeRef`` when
the TrainJob is created, and refuses a TrainJob whose runtime is missing. Source: kubeflow/trainer v2.0 to v2.3,
``pkg/apis/trainer/v1alpha1/trainjob_types.go`` and ``pkg/runtime/core``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotwright.manifests.enforcement.mechanisms import Mechanism
from spotwright.manifests.kinds.jobset import SetMember, write_failure_policy
from spotwright.manifests.kinds.trainer.runtime_patches import TrainerRelease
from spotwright.manifests.rules.context import RETRIES_STAY, Group, Level, PlaceContext
from spotwright.manifests.rules.merging import write
from spotwright.manifests.rules.pod_rules import Placed
from spotwright.manifests.rules.retry_bounds import deadline_seconds, seconds_text, whole_number
from spotwright.manifests.yamltext.documents import Document, Path
from spotwright.manifests.yamltext.edits import Editor

__all__ = ["JOBS", "RuntimeCopy", "settle_retries"]

JOBS: Path = ("spec", "template", "spec", "replicatedJobs")
"""The path of the jobs of a runtime."""

_FAILURES: Path = ("spec", "template", "spec", "failurePolicy")
_TRAINER_LABELS = "trainer.kubeflow.org/"
_LONGEST = 63  # characters of a name that every object may have


@dataclass(frozen=True, slots=True)
class RuntimeCopy:
    """The copy of a runtime for one TrainJob. ``ctx`` edits its content."""

    ctx: PlaceContext
    name: str
    namespace: str

    def write(self, job: str, field: str, before: Any, after: Any) -> None:
        """Change a field of a job's pods from ``before`` to ``after``, which the TrainJob cannot set."""
        names = [str(one.get("name")) for one in self.ctx.editor.get(JOBS)]
        write(self.ctx.editor, (*_spec_of(names.index(job)), "template", "spec", field), before, after)

    def add(self, ctx: PlaceContext) -> None:
        """Add the copy in front of the TrainJob, and refer to it there."""
        runtime = self.ctx.editor.document
        labels = runtime.get(("metadata", "labels"), None) or {}
        metadata: dict[str, Any] = {"name": self.name}
        if self.namespace:
            metadata["namespace"] = self.namespace
        kept = {key: value for key, value in labels.items() if str(key).startswith(_TRAINER_LABELS)}
        if kept:
            metadata["labels"] = kept
        value = {
            "apiVersion": runtime.get(("apiVersion",)),
            "kind": "TrainingRuntime",
            "metadata": metadata,
            "spec": self.ctx.editor.result()["spec"],
        }
        at = ctx.at("spec", "runtimeRef")
        if ctx.add is not None and not ctx.add(value):
            text = (
                f"another TrainJob of this name needs a different copy of its runtime ({self.name}): rename one of them"
            )
            raise ctx.problem(at, text)
        kind, name = runtime.get(("kind",)), runtime.get(("metadata", "name"))
        text = f"TrainingRuntime {self.name}, a copy of {kind} {name} with a failure policy, is added in front of this TrainJob"
        ctx.add_finding(Level.NOTE, at, f"{text}; later changes of {name} do not reach it")
        ctx.editor.replace((*at, "name"), self.name)
        if ctx.editor.get((*at, "kind")) is None:
            ctx.editor.add((*at, "kind"), "TrainingRuntime")
        else:
            ctx.editor.replace((*at, "kind"), "TrainingRuntime")


def settle_retries(
    ctx: PlaceContext, release: TrainerRelease, runtime: Document, placed: Mapping[str, Placed]
) -> RuntimeCopy | None:
    """Report what an interruption does to each job on spot; returns the copy of the runtime if one is needed.

    ``placed`` has the decisions for each job of the runtime, by its name.
    """
    spot = {name: one for name, one in placed.items() if one.on_spot}
    if not spot:
        return None
    if not ctx.writes(Group.RETRIES):
        for one in spot.values():
            one.report.after_interruption = RETRIES_STAY
            one.report.mechanism = Mechanism.RUNTIME_DECIDES
        return None
    kind, name = runtime.get(("kind",)), runtime.get(("metadata", "name"))
    failures = runtime.get(_FAILURES, None)
    mechanism = Mechanism.RUNTIME_DECIDES
    replaces = ctx.options.replace_retries and not ctx.is_input(runtime)
    if isinstance(failures, dict) and not replaces:
        sentence = f"the failure policy of {kind} {name} decides"
        _bound(ctx, release, failures, list(spot.values()))
    elif ctx.is_input(runtime):
        sentence = f"the failure policy that is written into {kind} {name} ({runtime.file}) decides"
        mechanism = Mechanism.RUNTIME_PLACED
    elif ctx.add is None:
        sentence = _alone(ctx, kind, name)
    else:
        return _copy(ctx, runtime, spot)
    for one in spot.values():
        one.report.after_interruption = sentence
        one.report.mechanism = mechanism
    return None


def _alone(ctx: PlaceContext, kind: str, name: str) -> str:
    hint = ""
    if kind == "ClusterTrainingRuntime":
        hint = "; if you may not change it, copy it as a TrainingRuntime and name that under spec.runtimeRef"
    text = f"{kind} {name} has no failure policy, and a TrainJob cannot have one: place the runtime too{hint}"
    if not ctx.options.has_webhook:  # it places the JobSet that Trainer makes of the TrainJob
        ctx.add_finding(Level.WARNING, ctx.at("spec", "runtimeRef"), text)
    return "its Job replaces the pod alone, errors counted too (backoffLimit), while the others wait or fail"


def _copy(ctx: PlaceContext, runtime: Document, spot: Mapping[str, Placed]) -> RuntimeCopy | None:
    """A copy of the runtime with the failure policy; none if the runtime has it already."""
    other = replace(ctx, editor=Editor(runtime), base=(), outer=None)
    names = [str(job.get("name")) for job in other.editor.get(JOBS) or ()]
    members = [SetMember(_spec_of(index), name, spot[name]) for index, name in enumerate(names) if name in spot]
    write_failure_policy(other, JOBS[:-1], members, is_alone=len(names) == 1 and _has_one_node(ctx, runtime))
    if not other.editor.changes:
        return None
    copy = RuntimeCopy(other, _name(ctx, runtime), _namespace(ctx))
    _refuse_taken(ctx, copy)
    for one in spot.values():
        one.report.after_interruption += f" (by the added TrainingRuntime {copy.name})"
    return copy


def _has_one_node(ctx: PlaceContext, runtime: Document) -> bool:
    """Whether the Trainer makes one pod of the runtime's job: the TrainJob's number of nodes wins over the runtime's."""
    nodes = ctx.get("spec", "trainer", "numNodes")
    return whole_number(nodes if nodes is not None else runtime.get(("spec", "mlPolicy", "numNodes"), None), 1) == 1


def _spec_of(index: int) -> Path:
    return (*JOBS, index, "template", "spec")


def _name(ctx: PlaceContext, runtime: Document) -> str:
    return f"{ctx.name}-{runtime.get(('metadata', 'name'))}"[:_LONGEST].rstrip("-.")


def _namespace(ctx: PlaceContext) -> str:
    """The namespace of the TrainJob, or of the experiment around it."""
    own = ctx.get("metadata", "namespace")
    outer = ctx.outer.get("metadata", "namespace") if ctx.outer is not None else None
    return str(own or outer or "")


def _refuse_taken(ctx: PlaceContext, copy: RuntimeCopy) -> None:
    existing = ctx.find("TrainingRuntime", copy.name, copy.namespace or None)
    if existing is None:
        return
    text = (
        f"the copy of its runtime would be TrainingRuntime {copy.name}, which exists already "
        f"({existing.file}:{existing.line(('metadata',))}): name that one here, or remove it"
    )
    raise ctx.problem(ctx.at("spec", "runtimeRef"), text)


def _bound(ctx: PlaceContext, release: TrainerRelease, failures: Mapping[str, Any], spot: Sequence[Placed]) -> None:
    """Bound restarts that the runtime does not count by a deadline over the whole TrainJob, which 2.2 and later have."""
    rules = failures.get("rules") or ()
    if not any(str(rule.get("action")).endswith("IgnoreMaxRestarts") for rule in rules):
        return
    path = ctx.at("spec", "activeDeadlineSeconds")
    deadlines = [deadline_seconds(placed.policy) for placed in spot]
    if release.version < (2, 2) or None in deadlines:
        text = (
            "the runtime restarts it without counting: give the policy a timeout (trainer 2.2 and later can bound it)"
        )
        ctx.add_finding(Level.WARNING, ctx.at("spec", "runtimeRef"), text)
        return
    wanted = max(deadline for deadline in deadlines if deadline is not None)
    if ctx.editor.get(path) is None:
        ctx.editor.add(path, wanted)
    elif ctx.editor.get(path) != wanted:
        ctx.add_finding(Level.WARNING, path, f"activeDeadlineSeconds stays; the policy allows {seconds_text(wanted)}")
