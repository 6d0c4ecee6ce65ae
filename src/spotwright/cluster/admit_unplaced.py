"""Places a pod whose Job, JobSet, Workflow or training job was created while the webhook was down.

Such an object and its pods have no policy: without this module, its attempts would never be placed. So its owners are read, the
object is placed in memory, and the pod gets its role's placement directly. The object's own retries still limit it, so such a
pod is never refused. A pod is left alone if its object was placed, opts out, fits no pool or is too large to be read, or if the
pod is in a queue of Kueue, whose flavor has chosen its nodes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from spotwright.cluster.admit_objects import (
    ATTEMPT_ANNOTATION,
    Outcome,
    Verdict,
    as_warnings,
    is_ignored,
    is_placed,
    place_as_new,
    policy_of_templates,
    reason_to_leave,
)
from spotwright.cluster.api_defaults import dependent_defaults
from spotwright.cluster.workloads import argo_template, has_policy, task_name
from spotwright.config import Config, require_pools
from spotwright.errors import InputError
from spotwright.kinds.kfp_backend import is_backend_workflow, place_workflow
from spotwright.kinds.kind import Retry, run_kind, run_kinds
from spotwright.kube.object_fields import ARGO_NODE, controller_of, mapping, metadata
from spotwright.manifests.objects import place_object
from spotwright.placing.context import POLICY_ANNOTATION, PlaceContext, RoleReport
from spotwright.placing.patch import Steps
from spotwright.placing.pods import Role, place_pod

__all__ = [
    "LATE",
    "OWNER_KINDS",
    "UNPLACED",
    "is_of_a_run",
    "note_of",
    "noted_unplaced",
    "place_at_pod",
    "why_left",
    "why_unplaced",
    "why_unplaced_retries",
]


OWNER_KINDS: frozenset[tuple[str, str]] = frozenset(
    (kind.group, kind.name) for kind in run_kinds().values() if kind.place is not None
)
"""The controllers, by group and kind, whose pods are placed individually if the object was not. They do not serve traffic."""

_QUEUED = "is in a queue of Kueue"
_NO_ROLE = "its owner's kind does not create pods like this"
_OWN_FIELDS = ("apiVersion", "kind", "metadata", "spec")
_RETRY = re.compile(r"\([0-9]{1,9}\)$")  # the number of a try, at the end of an Argo node's name
_LONGEST_NAME = 100  # characters of a name in a sentence


def is_of_a_run(pod: Mapping[str, Any]) -> bool:
    """Whether a new pod has no policy, and its controller is a run or a part of one."""
    owner = controller_of(pod)
    if pod.get("kind") != "Pod" or owner is None or owner.group_kind not in OWNER_KINDS:
        return False
    return not is_ignored(pod) and POLICY_ANNOTATION not in (metadata(pod).get("annotations") or {})


def why_left(owners: Sequence[Mapping[str, Any]]) -> str:
    """Why the pods of these owners are left alone, as a verdict; empty if the last one, the run, may be placed at its pods."""
    if not owners:
        return "its owner cannot be read"
    if any(is_ignored(owner) for owner in owners):
        return Verdict.IGNORED
    if any(is_placed(owner) or policy_of_templates(owner) for owner in owners):
        return Verdict.ALREADY_PLACED
    return ""


def place_at_pod(
    pod: Mapping[str, Any],
    owners: Sequence[Mapping[str, Any]],
    config: Config,
    beside: Sequence[Mapping[str, Any]],
    *,
    steps: Steps | None = None,
) -> Outcome:
    """Place a pod of an unplaced object, without changing the arguments. ``steps`` limits the work.

    ``owners`` are the pod's, nearest first; the last one is the run. ``beside`` are the objects that placing the run reads.
    The outcome has the placed pod only if a placement exists.
    """
    left = why_left(owners)
    root = {} if left else {name: owners[-1][name] for name in _OWN_FIELDS if name in owners[-1]}
    left = left or reason_to_leave(root, config, beside)[0]
    if left:
        return Outcome(left)
    try:
        role = _role_of(pod, owners, _roles(root, config, beside, steps))
        if role is None or role.policy.spot is None:
            return Outcome(_NO_ROLE if role is None else Verdict.NOTHING_TO_DO)
        if role.queue:
            return Outcome(_QUEUED)
        placed = place_object(pod, config, place=_rules(pod, root, role), steps=steps)
    except InputError as error:
        return Outcome(Verdict.UNPLACEABLE, warnings=as_warnings([f"not placed: {str(error).splitlines()[0]}"]))
    if not placed.patch:
        return Outcome(Verdict.NOTHING_TO_DO)
    return Outcome(Verdict.PLACED, [*placed.patch, *dependent_defaults(pod, placed.data)], placed=placed.data)


def why_unplaced_retries(root: Mapping[str, Any]) -> str:
    """A clause for the pod's reason: the part of the policy that does not apply, because only the owner could carry it."""
    spec, kind = mapping(root.get("spec")), str(root.get("kind"))
    own = [
        f"{name} {spec[name]}" for name in ("backoffLimit", "backoffLimitPerIndex") if isinstance(spec.get(name), int)
    ]
    own += ["podFailurePolicy"] if spec.get("podFailurePolicy") else []
    name = str(metadata(root).get("name", ""))[:_LONGEST_NAME]
    retries = f"its own retries ({', '.join(own)})" if own else "its own retries"
    return (
        f"{kind} {name} was created while the webhook was down, so {retries} limit it instead of the policy's budgets"
    )


def _rules(pod: Mapping[str, Any], root: Mapping[str, Any], role: RoleReport) -> Any:
    """The function that places the pod according to its role."""
    identity = {name: _filled_in(text, pod, root) for name, text in role.identity.items()}

    def place(ctx: PlaceContext) -> None:
        own = Role(role.name, role.policy_path, ctx.at("spec"), ctx.base, role.on_demand_reason, **identity)  # type: ignore[arg-type]
        place_pod(ctx, own, role.policy)

    return place


def _filled_in(text: str, pod: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Argo's value for an expression in a template: the workflow's name, and the digest of the node's."""
    if "{{workflow.name}}" in text:
        return text.replace("{{workflow.name}}", str(metadata(root).get("name", "")))
    if "{{" not in text:
        return text
    node = str((metadata(pod).get("annotations") or {}).get(ARGO_NODE, ""))
    return hashlib.sha256(_RETRY.sub("", node).encode(errors="replace")).hexdigest()[:12]


def _roles(
    root: Mapping[str, Any], config: Config, beside: Sequence[Mapping[str, Any]], steps: Steps | None
) -> Sequence[RoleReport]:
    """The roles of a run, as its placement decides them. Raises :class:`InputError`."""
    if not is_backend_workflow(root):
        return place_as_new(root, config, beside, steps=steps)[1].roles
    require_pools(config)
    tasks: list[RoleReport] = []
    place_object(root, config, place=partial(place_workflow, reports=tasks), steps=steps)
    return tasks


def _role_of(
    pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], every: Sequence[RoleReport]
) -> RoleReport | None:
    """The pod's role in the run; None if the placement has no such role, as for KFP's drivers."""
    root, task = owners[-1], task_name(pod, owners)
    if is_backend_workflow(root):
        return next((role for role in every if task.template in (path.replace("/", ".") for path in role.tasks)), None)
    if run_kind(root).retry is Retry.STEP:
        name = argo_template(pod)
        return next((role for role in every if role.name == name), None)
    named = next((role for role in every if role.name.lower() == task.template.lower()), None)
    return every[0] if named is None and len(every) == 1 else named


UNPLACED = "started unplaced"
LATE = "its admission review timed out or failed"


def why_unplaced(pod: Mapping[str, Any]) -> str:
    """Why a pod with a policy was not pinned to a rung by a review: a clause; empty for all others."""
    labels, annotations = (metadata(pod).get(part) or {} for part in ("labels", "annotations"))
    if ATTEMPT_ANNOTATION in annotations or not has_policy(labels, annotations):
        return ""
    owner = controller_of(pod)
    if owner is None:
        return f"{LATE}; create it again to have it placed"
    if POLICY_ANNOTATION in annotations:
        return f"{LATE}; its next attempt will be placed"
    if owner.kind in run_kinds():
        return f"{LATE}, and so did its owner's: its next attempt will be placed, with the owner's own retries"
    return f"{LATE}, and so did its owner's: create the owner again to have it placed"


def noted_unplaced(notes: Iterable[str], pod: Mapping[str, Any]) -> str:
    """The clause in a run's notes about a pod that a review did not place; empty without one."""
    begin = note_of(pod)
    return next((note.removeprefix(begin) for note in notes if note.startswith(begin)), "")


def note_of(pod: Mapping[str, Any]) -> str:
    """The beginning of a note about a pod that was not placed by a review."""
    return f"pod {metadata(pod).get('name', '')} {UNPLACED}: "
