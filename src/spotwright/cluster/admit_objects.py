"""Decides whether to place a new object or leave it alone, and which warnings its creator gets.

Admission fails open: an object that cannot be placed is created as its user wrote it, with a warning that kubectl shows.
Objects of a placed owner are not placed again: they already carry the placement, except the retries of a TrainJob, which only
the JobSet can have. Updates are decided in :mod:`spotwright.cluster.admit_updates`.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from spotwright.cluster.api_defaults import dependent_defaults, without_defaults
from spotwright.config import Config, require_pools
from spotwright.errors import InputError
from spotwright.kinds.kfp_backend import is_backend_workflow, place_workflow
from spotwright.kinds.kind import Kind, Reads, Retry, kind_in, kind_of
from spotwright.kinds.situation import pod_places
from spotwright.kube.object_fields import Owner, controller_of, mapping
from spotwright.manifests.objects import PlacedObject, place_object
from spotwright.manifests.record import ANNOTATION as PLACED_ANNOTATION
from spotwright.manifests.record import annotations_at
from spotwright.placing.context import POLICY_ANNOTATION, SPOT_LABEL, Finding, Level, name_of
from spotwright.placing.documents import show
from spotwright.placing.patch import Steps, value_at
from spotwright.version import __version__
from spotwright.visible_text import visible

__all__ = [
    "ADMITTED_ANNOTATION",
    "ATTEMPT_ANNOTATION",
    "IGNORE_ANNOTATION",
    "MAX_ALL",
    "MAX_EACH",
    "MOST_REFERENCES",
    "MOST_STEPS",
    "Admission",
    "Outcome",
    "Verdict",
    "admit_object",
    "admitted_by",
    "admitted_mark",
    "as_warnings",
    "has_own_policy",
    "has_placed_templates",
    "is_admitted",
    "is_ignored",
    "is_placed",
    "kept_mark",
    "own_policy",
    "place_as_new",
    "pods_of",
    "policy_of_templates",
    "reason_to_leave",
    "referenced_objects",
    "warnings_of",
]


ADMITTED_ANNOTATION = "spotwright.dev/admitted"
"""The annotation of every object that a webhook has placed: the version, and the digest of the configuration."""

IGNORE_ANNOTATION = "spotwright.dev/ignore"
"""The annotation, with the value ``true``, of objects that are left unchanged, including their pods."""


def admitted_mark(config: Config, by: str = "") -> dict[str, str]:
    """The annotation for an object placed by a configuration. ``by`` names the controller: NAMESPACE/NAME."""
    digest = hashlib.sha256(config.text.encode()).hexdigest()[:12]
    mark = {"v": 1, "spotwright": __version__, "config": digest, **({"by": by} if by else {})}
    return {ADMITTED_ANNOTATION: json.dumps(mark, separators=(",", ":"))}


def admitted_by(data: Mapping[str, Any]) -> str:
    """The controller that placed an object, NAMESPACE/NAME; empty if its annotation does not name one."""
    try:
        mark = json.loads(str(_marks(data).get(ADMITTED_ANNOTATION, "")))
    except ValueError:
        return ""
    return str(mark.get("by", "")) if isinstance(mark, dict) else ""


def is_ignored(data: Mapping[str, Any]) -> bool:
    """Whether an object asks to be left alone."""
    return str(_metadata(data, "annotations").get(IGNORE_ANNOTATION, "")).lower() == "true"


def is_placed(data: Mapping[str, Any]) -> bool:
    """Whether a webhook, or ``spotwright place`` on its file, placed the object itself."""
    return not {ADMITTED_ANNOTATION, PLACED_ANNOTATION}.isdisjoint(_marks(data))


def is_admitted(data: Mapping[str, Any]) -> bool:
    """Whether a webhook has placed the object."""
    return ADMITTED_ANNOTATION in _marks(data)


def kept_mark(data: Mapping[str, Any]) -> dict[str, str]:
    """The webhook's annotation at its current path; empty without one."""
    mark = value_at(data, (*annotations_at(data), ADMITTED_ANNOTATION))
    return {} if mark is None else {ADMITTED_ANNOTATION: str(mark)}


def _marks(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The annotations that hold our marks, and the object's own metadata annotations, where older versions wrote them."""
    own = value_at(data, annotations_at(data))
    return {**_metadata(data, "annotations"), **(own if isinstance(own, dict) else {})}


def _is_trial_job(data: Mapping[str, Any]) -> bool:
    """Whether Katib made an object from a trialSpec, and so with the annotations of its Experiment."""
    owner = controller_of(data)
    return owner is not None and kind_of(owner.api_version, owner.kind).retry is Retry.TRIAL


def has_own_policy(data: Mapping[str, Any]) -> bool:
    """Whether a label or an annotation of the object sets a policy."""
    return bool(own_policy(data))


def own_policy(data: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The label and the annotation with which an object sets a policy, as in its metadata."""
    labels, annotations = _metadata(data, "labels"), _metadata(data, "annotations")
    policy: dict[str, dict[str, str]] = {}
    if SPOT_LABEL in labels:
        policy["labels"] = {SPOT_LABEL: labels[SPOT_LABEL]}
    if POLICY_ANNOTATION in annotations:
        policy["annotations"] = {POLICY_ANNOTATION: annotations[POLICY_ANNOTATION]}
    return policy


def pods_of(data: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """The pod templates of an object, including those without metadata; ``None`` if its kind has no pods."""
    return [mapping(value_at(data, path)) for place, path in pod_places(data) if path and place.is_template] or None


def policy_of_templates(data: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The policy in the first of an object's placed pod templates."""
    placed = (template for template in _pod_templates(data) if POLICY_ANNOTATION in _metadata(template, "annotations"))
    template = next(placed, None)
    return {} if template is None else own_policy({"metadata": template.get("metadata")})


def has_placed_templates(data: Mapping[str, Any]) -> bool:
    """Whether the object has placed pod templates, placed in this object or in its owner.

    All templates must have a policy, except in a Workflow, whose steps may have no pods, and in a SparkApplication, whose
    driver and executors have annotations instead of templates.
    """
    templates = list(_pod_templates(data))
    if templates:
        return all(POLICY_ANNOTATION in _metadata(template, "annotations") for template in templates)
    holders = [  # of a step, and of Spark's executors: inherited policies do not count
        value_at(data, path)
        for place, path in pod_places(data)
        if place.form == "H" and (isinstance(path[-1], int) or path[-1] == "executor")
    ]
    metadata = (mapping(field) for one in holders for field in (mapping(one), mapping(one).get("metadata")))
    return any(POLICY_ANNOTATION in mapping(one.get("annotations")) for one in metadata)


def _pod_templates(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The pod templates of an object."""
    for place, path in pod_places(data):
        if path and place.form == "T":
            yield mapping(value_at(data, path))


def _metadata(data: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    values = value_at(data, ("metadata", field))
    return values if isinstance(values, dict) else {}


MAX_EACH = 255
"""The longest warning, in characters."""

MAX_ALL = 4096
"""The characters of all warnings of one answer together."""

_LONGEST_TEXT = 2_000  # characters of one text, before it is cut into warnings; it may quote user input
_PREFIX = "spotwright: "
_MORE = "{count} more warnings are cut off here; spotwright explain FILE shows all"


def warnings_of(findings: Iterable[Finding]) -> list[str]:
    """The warnings for findings of level warning; notes ask the user for no change."""
    texts = []
    for finding in findings:
        if finding.level is Level.WARNING:
            field = show(finding.path)
            texts.append(f"{field}: {finding.text}" if field else finding.text)
    return as_warnings(list(dict.fromkeys(texts)))


def as_warnings(texts: Sequence[str]) -> list[str]:
    """Texts as warnings within both limits."""
    warnings: list[str] = []
    room = MAX_ALL - MAX_EACH  # the last one may have to count the omitted ones
    for index, text in enumerate(texts):
        lines = textwrap.wrap(visible(text[:_LONGEST_TEXT]), MAX_EACH - len(_PREFIX) - 2, break_on_hyphens=False)
        marked = [
            _PREFIX + line for line in (*lines[:1], *(f"… {line}" for line in lines[1:]))
        ]  # a blank text has none
        if sum(map(len, marked)) > room:
            return [*warnings, _PREFIX + _MORE.format(count=len(texts) - index)]
        room -= sum(map(len, marked))
        warnings += marked
    return warnings


ATTEMPT_ANNOTATION = "spotwright.dev/attempt"
"""The number of the pod's attempt, from 1."""


class Admission(NamedTuple):
    """The decision about a pod: the pools of its rung, or of all rungs if it ``is_open``, and the sentence for people.

    ``is_refused``: it runs no user code and is not an attempt. Without ``pools`` another component decides its rung.
    ``pinned``: the conditions that the review added to each of the pod's required terms, for this attempt only.
    """

    pools: tuple[str, ...] = ()
    is_open: bool = False
    is_refused: bool = False
    why: str = ""
    number: int = 1
    pinned: tuple[tuple[Mapping[str, Any], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer for one object: the operations of a JSON patch, the warnings, and a word for logs and metrics.

    ``placed`` is the placed object without the API server's defaults, if it was placed. ``kept`` is the decision about a pod,
    stored before this answer.
    """

    verdict: str
    patch: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    placed: Mapping[str, Any] | None = None
    rival: str = ""
    kept: Admission | None = None


MOST_STEPS = 12_000
"""The work of one answer, in :class:`~spotwright.placing.patch.Steps`: about 50 ms, or 130 pod templates."""

MOST_REFERENCES = 20
"""The maximum number of objects that placing one object may read; with more references it is left unchanged."""


class Verdict:
    """The words of :attr:`Outcome.verdict`."""

    PLACED = "placed"
    NOTHING_TO_DO = "nothing to do"
    IGNORED = "is marked to be ignored"
    ALREADY_PLACED = "placed already"
    OWNED = "follows its owner"
    NO_POLICY = "sets no policy"
    UNKNOWN_KIND = "kind is not placed"
    UNKNOWN_VERSION = "version is not supported"
    UNPLACEABLE = "cannot be placed"
    TOO_LARGE = "is too large"
    MISSHAPEN = "is not a valid object of an API server"
    NO_CONFIGURATION = "no configuration"
    RESTORED = "applied again"


def admit_object(
    data: Mapping[str, Any],
    config: Config | None,
    beside: Sequence[Mapping[str, Any]] = (),
    by: str = "",
    *,
    steps: Steps | None = None,
) -> Outcome:
    """Place an object that is about to be created; ``data`` is not changed. ``steps`` limits the work.

    ``config`` is the configuration of its namespace, or ``None``. ``beside`` are the existing objects that
    :func:`referenced_objects` names: runtimes and templates, and the owner. ``by`` names this controller.
    """
    verdict, warning = reason_to_leave(data, config, beside)
    rival = admitted_by(data) if by else ""
    if rival not in ("", by):
        return Outcome(
            verdict or Verdict.ALREADY_PLACED, warnings=as_warnings([_two_controllers(rival, by)]), rival=rival
        )
    if verdict or config is None:
        return Outcome(verdict or Verdict.NO_CONFIGURATION, warnings=as_warnings([warning]) if warning else ())
    try:
        marks = {} if is_admitted(data) else admitted_mark(config, by)
        plain, placed = place_as_new(data, config, beside, marks, steps=steps)
    except InputError as error:
        first = str(error).splitlines()[0]
        return Outcome(Verdict.UNPLACEABLE, warnings=as_warnings([f"not placed: {first}"]))
    if not placed.patch:
        return Outcome(Verdict.NOTHING_TO_DO, warnings=warnings_of(placed.findings) if placed.roles else ())
    patch = [*_missing_annotations(data, plain), *placed.patch, *dependent_defaults(data, placed.data)]
    return Outcome(Verdict.PLACED, patch, warnings_of(placed.findings), placed.data)


def place_as_new(
    data: Mapping[str, Any],
    config: Config,
    beside: Sequence[Mapping[str, Any]],
    marks: Mapping[str, str] | None = None,
    *,
    steps: Steps | None = None,
) -> tuple[Mapping[str, Any], PlacedObject]:
    """The user's part of an object, without and with a placement; ``data`` is not changed.

    Raises :class:`InputError` if it cannot be placed.
    """
    require_pools(config)
    plain = _with_policy_of_owner(without_defaults(data), beside)
    rules = place_workflow if is_backend_workflow(plain) else None
    return plain, place_object(plain, config, beside=beside, marks=marks, place=rules, steps=steps)


def reason_to_leave(
    data: Mapping[str, Any], config: Config | None, beside: Sequence[Mapping[str, Any]]
) -> tuple[str, str]:
    """Why an object is left alone, with a warning if its creator should change something; both empty otherwise."""
    api_version, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
    owner = controller_of(data)
    if is_ignored(data) or any(_is_owner(other, owner) and is_ignored(other) for other in beside):
        return Verdict.IGNORED, ""
    record, maker = kind_of(api_version, kind), kind_of(owner.api_version, owner.kind) if owner is not None else None
    if record.place is None or not record.version:
        return Verdict.UNKNOWN_KIND, ""
    if api_version != record.api_version and not record.takes_any_version:
        return Verdict.UNKNOWN_VERSION, f"not placed: {kind} {api_version} is not supported; use {record.api_version}"
    if is_placed(data) and not _is_trial_job(data):
        return Verdict.ALREADY_PLACED, ""
    if kind == "Pod" and (owner is not None or not has_own_policy(data)):
        return Verdict.OWNED if owner is not None else Verdict.NO_POLICY, ""
    if maker is not None and kind in maker.makes:
        return Verdict.OWNED, ""
    if has_placed_templates(data) and not is_backend_workflow(data) and not (maker is not None and maker.hands_down):
        return Verdict.ALREADY_PLACED, _two_policies(data)
    return "" if config is not None else Verdict.NO_CONFIGURATION, ""


def _two_controllers(rival: str, by: str) -> str:
    """A warning about an object that another controller placed, or that was copied with its annotation."""
    return (
        f"already placed by the controller {rival}, so {by} left it unchanged: two controllers serve this namespace, and both"
        " record and evict"
        f" its pods; stop one of them (spotwright controller unregister); if this object is a copy, remove {ADMITTED_ANNOTATION}"
    )


def _two_policies(data: Mapping[str, Any]) -> str:
    """A warning if an object and its pod template have different policies; empty otherwise."""
    own, of_pods = own_policy(data), policy_of_templates(data)
    if not own or all(
        of_pods.get(field, {}).get(key) == text for field, one in own.items() for key, text in one.items()
    ):
        return ""
    return (
        "not placed: it has one policy in its own metadata and another in its pod template, and its pods follow the template's;"
        " remove one of them"
    )


def _with_policy_of_owner(data: Mapping[str, Any], beside: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A TrainJob's JobSet with the TrainJob's policy, or else the policy of its placed pods.

    Trainer copies no metadata of the TrainJob. The policy is read here and is not part of the patch.
    """
    owner = controller_of(data)
    if owner is None or not kind_of(owner.api_version, owner.kind).hands_down or has_own_policy(data):
        return data
    holder = next((other for other in beside if _is_owner(other, owner)), None)
    policy = own_policy(holder) if holder is not None else policy_of_templates(data)
    metadata = dict(data.get("metadata") or {})
    for field, values in policy.items():
        metadata[field] = {**(metadata.get(field) or {}), **values}
    return {**data, "metadata": metadata}


def _missing_annotations(data: Mapping[str, Any], plain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The operation that creates the annotations for our mark, if only the placed copy has any: its owner's."""
    own, copied = (one.get("metadata") or {} for one in (data, plain))
    if copied.get("annotations") is None or own.get("annotations") is not None:
        return []
    return [{"op": "add", "path": "/metadata/annotations", "value": {}}]


def _is_owner(data: Mapping[str, Any], owner: Owner | None) -> bool:
    return owner is not None and (str(data.get("kind", "")), name_of(data.get("metadata"))) == (owner.kind, owner.name)


def referenced_objects(data: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The objects that this one's placement reads, as API version, kind and name: in its namespace or cluster-wide.

    Kinds that begin with ``Cluster`` have no namespace.
    """
    spec, owner = data.get("spec"), controller_of(data)
    record = kind_of(str(data.get("apiVersion", "")), str(data.get("kind", "")))
    references: list[tuple[str, str, str]] = []
    if record.references is not None and isinstance(spec, dict):
        references += [_named(kind_in(record.group, kind), name) for kind, name in record.references(spec)]
    if owner is not None and record.name != "Pod":
        references.append(_named(kind_of(owner.api_version, owner.kind), owner.name))
    return [reference for reference in dict.fromkeys(references) if reference[2]]


def _named(kind: Kind, name: Any) -> tuple[str, str, str]:
    is_read = kind.place is not None and kind.reads is not Reads.NOTHING
    return kind.api_version, kind.name, str(name or "") if is_read else ""
