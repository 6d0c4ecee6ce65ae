"""How often a TrainJob is tried again: its runtime says so, and a TrainJob that needs another answer gets a runtime of its own.

A runtime that the same command places gets the answer itself. One that is only referred to is not ours to change, and others use
it: a copy of it is added in front of the TrainJob, as a TrainingRuntime in its namespace, with the failure policy in it and the
fields that no TrainJob of its release can set; ``spec.runtimeRef`` names the copy. The API server fixes ``runtimeRef`` when the
TrainJob is made, and refuses one whose runtime is not there. Source: kubeflow/trainer v2.0 to v2.3,
``pkg/apis/trainer/v1alpha1/trainjob_types.go`` and ``pkg/runtime/core``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotwright.manifests.bounds import deadline_seconds, spoken
from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Document, Path
from spotwright.manifests.edits import Editor
from spotwright.manifests.kinds.jobset import Member, settle_gang
from spotwright.manifests.kinds.trainjob_patches import Generation
from spotwright.manifests.merging import write
from spotwright.manifests.pods import Placed

__all__ = ["JOBS", "Copy", "settle_retries"]

JOBS: Path = ("spec", "template", "spec", "replicatedJobs")
"""Where a runtime has its jobs."""

_FAILURES: Path = ("spec", "template", "spec", "failurePolicy")
_OURS = "trainer.kubeflow.org/"
_LONGEST = 63  # letters of a name that is safe everywhere


@dataclass(frozen=True, slots=True)
class Copy:
    """The runtime that a TrainJob gets for itself. ``ctx`` edits what it will say."""

    ctx: Context
    name: str
    namespace: str

    def write(self, job: str, field: str, before: Any, after: Any) -> None:
        """Make ``after`` of a field of the pods of a job, which the TrainJob cannot set."""
        names = [str(one.get("name")) for one in self.ctx.editor.get(JOBS)]
        write(self.ctx.editor, (*_spec_of(names.index(job)), "template", "spec", field), before, after)

    def add(self, ctx: Context) -> None:
        """Put it in front of the TrainJob, which refers to it from now on."""
        runtime = self.ctx.editor.document
        labels = runtime.get(("metadata", "labels"), None) or {}
        metadata: dict[str, Any] = {"name": self.name}
        if self.namespace:
            metadata["namespace"] = self.namespace
        kept = {key: value for key, value in labels.items() if str(key).startswith(_OURS)}
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
            text = f"another TrainJob of this name needs another copy of its runtime ({self.name}): give one of them another name"
            raise ctx.problem(at, text)
        kind, name = runtime.get(("kind",)), runtime.get(("metadata", "name"))
        text = f"TrainingRuntime {self.name}, a copy of {kind} {name} with a failure policy, is added in front of it"
        ctx.say(Level.NOTE, at, f"{text}; what is changed in {name} later does not reach it")
        ctx.editor.replace((*at, "name"), self.name)
        if ctx.editor.get((*at, "kind")) is None:
            ctx.editor.add((*at, "kind"), "TrainingRuntime")
        else:
            ctx.editor.replace((*at, "kind"), "TrainingRuntime")


def settle_retries(ctx: Context, known: Generation, runtime: Document, placed: Mapping[str, Placed]) -> Copy | None:
    """Say of each job on spot what an interruption does to it; the copy of the runtime where it takes one.

    ``placed``: how each job of the runtime was placed, by its name.
    """
    spot = {name: one for name, one in placed.items() if one.on_spot}
    if not spot:
        return None
    kind, name = runtime.get(("kind",)), runtime.get(("metadata", "name"))
    failures = runtime.get(_FAILURES, None)
    replaces = ctx.options.replace_retries and not ctx.is_input(runtime)
    if isinstance(failures, dict) and not replaces:
        sentence = f"what the failure policy of {kind} {name} says"
        _bound(ctx, known, failures, list(spot.values()))
    elif ctx.is_input(runtime):
        sentence = f"what the failure policy says that {kind} {name} ({runtime.file}) is given"
    elif ctx.add is None:
        sentence = _alone(ctx, kind, name)
    else:
        return _copy(ctx, runtime, spot)
    for one in spot.values():
        one.report.after_interruption = sentence
    return None


def _alone(ctx: Context, kind: str, name: str) -> str:
    clone = ""
    if kind == "ClusterTrainingRuntime":
        clone = "; one that is not yours to change you copy as a TrainingRuntime, and name it under spec.runtimeRef"
    text = f"{kind} {name} has no failure policy, and a TrainJob can have none: place the runtime as well{clone}"
    ctx.say(Level.WARNING, ctx.at("spec", "runtimeRef"), text)
    return "its Job makes the pod again alone, errors counted with it (backoffLimit), and the others wait or fail"


def _copy(ctx: Context, runtime: Document, spot: Mapping[str, Placed]) -> Copy | None:
    """A copy of the runtime with the failure policy in it; none where the runtime already says all of it."""
    other = replace(ctx, editor=Editor(runtime), base=(), around=None)
    names = [str(job.get("name")) for job in other.editor.get(JOBS) or ()]
    members = [Member(_spec_of(index), name, spot[name]) for index, name in enumerate(names) if name in spot]
    settle_gang(other, JOBS[:-1], members)
    if not other.editor.changes:
        return None
    copy = Copy(other, _name(ctx, runtime), _namespace(ctx))
    _refuse_taken(ctx, copy)
    for one in spot.values():
        one.report.after_interruption += f" (TrainingRuntime {copy.name}, which is added, says so)"
    return copy


def _spec_of(index: int) -> Path:
    return (*JOBS, index, "template", "spec")


def _name(ctx: Context, runtime: Document) -> str:
    return f"{ctx.name}-{runtime.get(('metadata', 'name'))}"[:_LONGEST].rstrip("-.")


def _namespace(ctx: Context) -> str:
    """That of the TrainJob, or of the experiment around it."""
    own = ctx.get("metadata", "namespace")
    around = ctx.around.get("metadata", "namespace") if ctx.around is not None else None
    return str(own or around or "")


def _refuse_taken(ctx: Context, copy: Copy) -> None:
    there = ctx.find("TrainingRuntime", copy.name, copy.namespace or None)
    if there is None:
        return
    text = (
        f"a copy of its runtime would be TrainingRuntime {copy.name}, which is there already "
        f"({there.file}:{there.line(('metadata',))}): name that one here, or take it out"
    )
    raise ctx.problem(ctx.at("spec", "runtimeRef"), text)


def _bound(ctx: Context, known: Generation, failures: Mapping[str, Any], spot: Sequence[Placed]) -> None:
    """Restarts that are not counted need an end: a deadline over the whole TrainJob, which 2.2 and later have."""
    rules = failures.get("rules") or ()
    if not any(str(rule.get("action")).endswith("IgnoreMaxRestarts") for rule in rules):
        return
    path = ctx.at("spec", "activeDeadlineSeconds")
    deadlines = [deadline_seconds(placed.policy) for placed in spot]
    if known.version < (2, 2) or None in deadlines:
        text = "the runtime starts it again without counting: give the policy a timeout (trainer 2.2 and later can bound it)"
        ctx.say(Level.WARNING, ctx.at("spec", "runtimeRef"), text)
        return
    wanted = max(deadline for deadline in deadlines if deadline is not None)
    if ctx.editor.get(path) is None:
        ctx.editor.add(path, wanted)
    elif ctx.editor.get(path) != wanted:
        ctx.say(Level.NOTE, path, f"activeDeadlineSeconds stays; the policy allows {spoken(wanted)}")
