"""Place one object that comes as data by the rules for files; the result is a JSON patch.

There is no record for ``unplace``, because the object's source has the original bytes. Marks, the caller's annotations, are
added only with a change. Values of a role's policy that the user set without effect are reported, as for files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spotwright.config import Config
from spotwright.kinds.kind import PlaceObject, kind_of
from spotwright.kinds.unknown import warn_of_version
from spotwright.manifests.record import annotations_at
from spotwright.model.policy import BUILT_IN, Deadline, Policy
from spotwright.model.quantities import format_duration
from spotwright.placing.context import (
    AddDocument,
    Finding,
    Group,
    Level,
    PlaceContext,
    PlaceOptions,
    RoleReport,
    name_of,
)
from spotwright.placing.documents import References
from spotwright.placing.enforcement import NODES_ONLY, Enforcer
from spotwright.placing.patch import Editor, Steps, data_document, json_patch
from spotwright.placing.pod_spec import METADATA, check
from spotwright.placing.retries import no_interruption_text

__all__ = ["ObjectRules", "PlacedObject", "place_object", "policy_values", "settle"]


_DERIVED = (BUILT_IN.source, "interruptions.max")
"""Sources of values that the user did not set."""


def settle(roles: Sequence[RoleReport], file: str, options: PlaceOptions) -> Iterator[Finding]:
    """Report the user's policy values without effect on an object's roles, equal ones together.

    No report if only some groups of changes are written. The roles keep the enforcers of all values for ``explain``, else only
    of the user's values.
    """
    if options.only != frozenset(Group):
        return
    without: dict[str, list[RoleReport]] = {}
    for role in roles:
        unset = (*_DERIVED, role.own_retries)
        own = [name for name, source in role.policy.sources.items() if source not in unset]
        own = [name for name in own if not (options.has_webhook and name in HELD_BY_WEBHOOK)]
        role.settle([*BUILT_IN.values, "fall_back_after", *own] if options.only_explain else own)
        lost = [f"{name} ({role.policy.sources[name]})" for name in own if _is_lost(role, name, options)]
        if lost:
            without.setdefault(f"{', '.join(lost)} {'has' if len(lost) == 1 else 'have'} no effect here", []).append(
                role
            )
    for text, among in without.items():
        names = ", ".join(dict.fromkeys(role.policy_path for role in among[:_NAMED]))
        more = f" and {len(among) - _NAMED} more" if len(among) > _NAMED else ""
        yield Finding(Level.WARNING, file, among[0].line, (), f"{names}{more}: {text}; see `spotwright explain`", text)


HELD_BY_WEBHOOK = frozenset(
    {"spot", "ladder", "fall_back_after", "interruptions.max", "errors.retries", "grace_period"}
)
"""The fields of a policy that a webhook of pods enforces attempt by attempt."""

_NAMED = 3  # roles whose names a finding has


_HELD_BY_JOB_SET = frozenset({"pending_timeout", "timeout"})
"""The fields enforced on a TrainJob by its JobSet, which a webhook places when Trainer creates it."""


def _is_lost(role: RoleReport, name: str, options: PlaceOptions) -> bool:
    enforced = role.enforcement[name]
    is_kept = enforced.by in (Enforcer.OBJECT, Enforcer.KIND)
    if options.has_webhook:
        of_runtime = role.mechanism.is_of_another
        is_kept |= enforced.by is Enforcer.CONTROLLER or (of_runtime and name in _HELD_BY_JOB_SET)
    return role.policy.spot is not None and not is_kept and not enforced.is_silent


def policy_values(policy: Policy) -> Iterator[tuple[str, str, str]]:
    """Every value of a policy with its source, by the names of the configuration."""
    interruptions, errors = policy.interruption_backoff, policy.error_backoff
    values: dict[str, Any] = {
        "spot": policy.spot,
        "ladder": ", ".join(policy.ladder) if policy.ladder is not None else None,
        "interruptions.max": policy.max_interruptions,
        "interruptions.backoff": _short(interruptions.first),
        "interruptions.factor": f"{interruptions.factor:g}",
        "interruptions.max_backoff": _short(interruptions.max_backoff),
        "errors.retries": policy.retries,
        "errors.backoff": _short(errors.first),
        "errors.factor": f"{errors.factor:g}",
        "errors.max_backoff": _short(errors.max_backoff),
        "fall_back_after": policy.fall_back_after,
        "pending_timeout": _short(policy.pending_timeout),
        "deadline": _deadline_text(policy.deadline),
        "expected_duration": _short(policy.expected_duration),
        "grace_period": _short(policy.grace_period),
        "timeout": _short(policy.timeout),
        "checkpoint": policy.checkpoint,
        "image_pull_secrets": ", ".join(policy.image_pull_secrets) or None,
    }
    for name, value in values.items():
        if value is not None:
            yield name, str(value), policy.sources.get(name, BUILT_IN.source)


def _short(seconds: float | None) -> str | None:
    """A duration without empty parts: ``10m`` and not ``10m00s``."""
    if seconds is None:
        return None
    text = format_duration(seconds)
    return text.replace("h00m", "h") if text.endswith("h00m") else text.removesuffix("00s") if "m" in text else text


def _deadline_text(deadline: Deadline | None) -> str | None:
    if deadline is None:
        return None
    when = f"{_short(deadline.after)} after the start" if deadline.after is not None else f"at {deadline.at:.0f}"
    return f"{when}, best-effort" if deadline.best_effort else when


@dataclass(frozen=True, slots=True)
class ObjectRules:
    """The inputs of an object's placement beside the object, shared by all objects of one command or configuration.

    ``add`` adds a document in front of the object; ``None`` if that is impossible.
    """

    config: Config
    references: References
    options: PlaceOptions
    add: AddDocument | None = None

    def apply(self, place: PlaceObject, editor: Editor, findings: list[Finding], roles: list[RoleReport]) -> None:
        """Place the object of an editor; append its findings and the reports of its roles. Raises :class:`ManifestError`."""
        before = len(roles)
        ctx = PlaceContext(
            editor,
            self.config,
            self.references.find,
            self.options,
            findings=findings,
            roles=roles,
            find_all=self.references.find_all,
            is_input=self.references.is_input,
            add=self.add,
            is_queued=_is_queued,
        )
        check(ctx, ctx.at("metadata"), METADATA)
        hook = ctx.hook
        if hook:  # it runs once, and again only as its author says
            ctx.options = replace(self.options, only=self.options.only & {Group.PLACEMENT})
        warn_of_version(ctx, str(ctx.get("apiVersion", default="")), str(ctx.get("kind", default="")))
        place(ctx)
        for role in roles[before:]:
            if hook and role.on_demand_reason == hook:
                role.mechanism = NODES_ONLY
                role.after_interruption = no_interruption_text(role.policy)
        findings += settle(roles[before:], editor.document.file, self.options)


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """The outcome for one object: the operations of a JSON patch, the object with them, the findings and the roles' reports.

    Without operations the object is unchanged.
    """

    patch: list[dict[str, Any]]
    data: Mapping[str, Any]
    findings: list[Finding] = field(default_factory=list)
    roles: list[RoleReport] = field(default_factory=list)


def place_object(
    data: Mapping[str, Any],
    config: Config,
    *,
    beside: Sequence[Mapping[str, Any]] = (),
    marks: Mapping[str, str] | None = None,
    place: PlaceObject | None = None,
    options: PlaceOptions | None = None,
    steps: Steps | None = None,
) -> PlacedObject:
    """Place one object; ``data`` is not changed. Raises :class:`ManifestError` and :class:`ConfigError` as for files.

    ``beside`` are objects that this one refers to (a training runtime). ``place`` replaces the rules of the object's kind. A
    kind without rules has an empty patch. ``steps`` limits the work: beyond it :class:`TooMuchWork` is raised.
    """
    rules_of_kind = place or kind_of(str(data.get("apiVersion", "")), str(data.get("kind", ""))).place
    if rules_of_kind is None:
        return PlacedObject([], data)
    editor = Editor(data_document(data, _name(data)), steps=steps or Steps())
    for name, text in (marks or {}).items():
        editor.add((*annotations_at(data), name), text)
    marked = editor.changes
    references = References([data_document(other, _name(other)) for other in beside])
    rules = ObjectRules(config, references, options or PlaceOptions(may_add=False, has_webhook=True))
    placed = PlacedObject([], data)
    rules.apply(rules_of_kind, editor, placed.findings, placed.roles)
    if editor.changes == marked:
        return placed
    return PlacedObject(json_patch(editor), editor.result(), placed.findings, placed.roles)


def _is_queued(api_version: str, kind: str) -> bool:
    return kind_of(api_version, kind).is_queued


def _name(data: Mapping[str, Any]) -> str:
    return f"{data.get('kind', 'object')} {name_of(data.get('metadata'))}".strip()
