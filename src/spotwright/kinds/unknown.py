"""Objects of unknown kinds: placed at the paths of ``--pod-path``, otherwise left unchanged with a finding.

Only the fields of the pod spec are placed. The effect of an interruption is unknown, which a finding says. A kind is its group
and its name: another operator's SparkApplication is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from spotwright.errors import InputError
from spotwright.kinds.kind import group_of, kind_of, placed_kind
from spotwright.model.not_judged import NotJudged, Subject
from spotwright.placing.context import Finding, Level, PlaceContext, name_of
from spotwright.placing.documents import Document, Path, show
from spotwright.placing.patch import value_at
from spotwright.placing.pod_spec import POD_FIELDS
from spotwright.placing.pods import PodRole, Role, place_pod
from spotwright.placing.retries import whole_number

__all__ = [
    "duty_of_named",
    "find_pod_specs",
    "likely_pods",
    "pass_through",
    "pattern_text",
    "place_at",
    "read_pod_path",
    "replicas_above",
    "template_of",
    "unjudged",
    "warn_of_version",
]


_ANY = "*"
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+|\*)\]")
_STRUCTURE = frozenset({"pod", "podspec", "podtemplate", "spec", "template"})
"""Steps that do not describe a role: Kubernetes' names, in lower case."""


def read_pod_path(text: str) -> Path:
    """Read a path such as ``spec.worker.template.spec`` or ``spec.tasks[*].template.spec``.

    ``[*]`` is every item of a list, ``*`` as a step every key of a mapping; both are the step ``*``. Raises :class:`InputError`
    for any other text.
    """
    steps = _STEP.findall(text)
    written = "".join(f"[{index}]" if index else f".{name}" for name, index in steps).removeprefix(".")
    if not steps or written != text:
        raise InputError(
            f"--pod-path {text!r}: expected the path of a pod spec, such as spec.template.spec or "
            "spec.workerGroupSpecs[*].template.spec"
        )
    return tuple(_ANY if index == _ANY else int(index) if index else name for name, index in steps)


def find_pod_specs(value: Any, patterns: Sequence[Path], *, may_be_partial: bool = False) -> list[Path]:
    """The paths of the pod specs in an object that match a pattern, in the order of the patterns, none twice.

    A pattern may begin at ``spec``, and may end at the template of the pod instead of its spec. A pod spec has containers.
    ``may_be_partial``: any other field of a pod will do, as in an operator's overrides.
    """
    matches: dict[Path, None] = {}
    for pattern in patterns:
        found = list(_matches(value, pattern)) or list(_matches(value, ("spec", *pattern)))
        for path in found:
            candidates = (path, (*path, "spec"))
            whole = [spec for spec in candidates if _has_containers(value, spec)]
            partial = [spec for spec in candidates if may_be_partial and _has_pod_field(value, spec)]
            matches.update(dict.fromkeys((whole or partial)[:1]))
    return list(matches)


def _has_containers(value: Any, path: Path) -> bool:
    """Whether there is a pod spec with containers at a path."""
    return value_at(value, (*path, "containers")) is not None


def _has_pod_field(value: Any, path: Path) -> bool:
    found = value_at(value, path)
    return isinstance(found, dict) and not POD_FIELDS.isdisjoint(found)


def _matches(value: Any, pattern: Path, path: Path = ()) -> Iterator[Path]:
    """The paths of the values that a pattern leads to."""
    if not pattern:
        yield path
        return
    step, rest = pattern[0], pattern[1:]
    if step == _ANY:
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in children:
            yield from _matches(child, rest, (*path, key))
    else:
        child = value_at(value, (step,))
        if child is not None:
            yield from _matches(child, rest, (*path, step))


def template_of(path: Path) -> Path | None:
    """The pod template around a pod spec that a user names; ``None`` for a bare spec."""
    return path[:-1] if path[-1] == "spec" and len(path) > 1 else None


def duty_of_named(api_version: str, kind: str) -> PodRole:
    """The purpose of pods that a user names: work, unless all pods of the kind serve or run on every node."""
    known = {one.duty for one in kind_of(api_version, kind).places}
    return known.pop() if known in ({PodRole.SERVING}, {PodRole.SYSTEM}) else PodRole.WORKER


def replicas_above(data: Any, path: Path) -> int | None:
    """The largest ``replicas`` of the levels above a pod spec of an unknown kind, or ``None``."""
    counts = [whole_number(value_at(data, (*path[:depth], "replicas"))) for depth in range(len(path))]
    return max((count for count in counts if count is not None), default=None)


def place_at(ctx: PlaceContext, paths: Sequence[Path]) -> None:
    """Place the pod specs at these paths of the object; several become roles with distinct names."""
    roles = [_role(ctx, path, _role_name(ctx, path) if len(paths) > 1 else "") for path in paths]
    placed = [place_pod(ctx, role) for role in roles]
    kind = ctx.get("kind")
    for path, role, each in zip(paths, roles, placed, strict=True):
        each.report.after_interruption = f"unknown: Spotwright does not know what a {kind} does when it loses a pod"
        if role.holder:
            text = f"{role.name}: it has no containers, so the requests of its pods are not known: are the nodes large enough?"
            ctx.add_finding(Level.NOTE, role.spec, text)
        if each.policy.checkpoint and not role.holder:
            _warn_of_checkpoints(ctx, path, role)
    if any(each.on_spot for each in placed):
        ctx.add_finding(Level.WARNING, ctx.at("kind"), f"{kind}: only its pods are placed; set its retries yourself")


_NAMED_FOR_GOOD = frozenset({("apps", "StatefulSet")})
"""Kinds whose recreated pods keep their names, so that each pod has its own place for checkpoints."""


def _role(ctx: PlaceContext, path: Path, name: str) -> Role:
    template = template_of(path)
    policy_path = f"{ctx.name}/{name}" if name else ctx.name
    api_version = str(ctx.get("apiVersion"))
    own = "" if (group_of(api_version), ctx.get("kind")) in _NAMED_FOR_GOOD else str(ctx.get("metadata", "name") or "")
    return Role(
        show(path),
        policy_path,
        ctx.at(*path),
        ctx.at(*template) if template is not None else None,
        holder=not _has_containers(ctx.get(), path),
        run=own or "metadata.name",
        duty=duty_of_named(api_version, str(ctx.get("kind"))),
    )


def _warn_of_checkpoints(ctx: PlaceContext, path: Path, role: Role) -> None:
    """Report pods that share a place for checkpoints, and those whose place is named after a lost pod."""
    if (replicas_above(ctx.get(), path) or 0) > 1 and role.run != "metadata.name":
        text = f"{role.name}: its pods share one place for checkpoints: let the code name a distinct file in it"
        ctx.add_finding(Level.WARNING, role.spec, text)
    if ctx.get("metadata", "generateName") and not ctx.get("metadata", "name"):
        text = f"{role.name}: its place for checkpoints has the name of the pod, and the next pod has another name: replace"
        ctx.add_finding(Level.WARNING, role.spec, f"{text} generateName by metadata.name")


def _role_name(ctx: PlaceContext, path: Path) -> str:
    """The name of a role in policies: that of its item in a list (``small-group``), else the last step that names it."""
    for depth in range(len(path), 0, -1):
        step = path[depth - 1]
        if isinstance(step, int):
            item = ctx.get(*path[:depth], default={})
            own = next((item[key] for key in ("name", "groupName") if isinstance(item.get(key), str)), None)
            return str(own or f"{path[depth - 2]}-{step}").lower()
        if step.lower() not in _STRUCTURE:
            return step.lower()
    return show(path)


def pass_through(document: Document, api_version: str, kind: str, patterns: Sequence[Path]) -> Iterator[Finding]:
    """The finding for an object that stays unchanged: a warning if it has pods, or its kind is placed in another group.

    ``patterns`` are the values of ``--pod-path``, which lead to no pod spec of this object.
    """
    if not kind:
        yield from _no_object(document)
        return
    name = name_of(document.get(("metadata",), {}))
    named = f"{kind} {name}".rstrip()
    text = f"{named} ({api_version}): this kind is not placed; it stays unchanged"
    level = Level.NOTE
    placed = placed_kind(kind)
    if placed is not None and not api_version:
        level, text = (
            Level.WARNING,
            f"{named} has no apiVersion: write {placed.api_version}; it stays unchanged",
        )
    elif kind == "List" or (kind.endswith("List") and document.node(("items",)) is not None):
        text = f"{named} ({api_version}) has no items, or they are not a list: not placed"
    elif placed is not None or (
        not kind_of(api_version, kind).shows_pods_of_another and any(True for _ in likely_pods(document.get((), None)))
    ):
        hint = "name the path of its pod spec with --pod-path"
        if patterns:
            hint = f"no pod spec at {' or '.join(map(pattern_text, patterns))}: {hint}"
        if placed is not None:
            article = "an" if kind[0] in "AEIO" else "a"
            hint = f"{article} {kind} of {placed.api_version} is placed; of this one, {hint}"
        level, text = Level.WARNING, f"{text} ({hint})"
    line = document.line(("kind",))
    left = unjudged(document.get((), None), document.file, line) if level is Level.WARNING else None
    yield Finding(level, document.file, line, ("kind",), text, f"{kind} ({api_version})", not_judged=left)


def pattern_text(pattern: Path) -> str:
    """A pattern of ``--pod-path`` as the user wrote it."""
    return show(pattern).replace(".*", "[*]")


def _no_object(document: Document) -> Iterator[Finding]:
    """The finding for a document that is not a Kubernetes object: a list, a text, an error page, values of a chart."""
    value = document.get((), None)
    what = "has no kind" if isinstance(value, dict) else "is not a mapping"
    text = f"this {what}, so it is not a Kubernetes object; it stays unchanged"
    line = document.line(())
    yield Finding(Level.WARNING, document.file, line, (), text, not_judged=unjudged(value, document.file, line))


def unjudged(value: Any, file: str, line: int) -> NotJudged:
    """An object with unknown pods, or a document that is not an object, as not judged."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not kind:
        return NotJudged(Subject.OBJECT, f"line {line}", "it is not a Kubernetes object", _WHOLE, file, line)
    named = f"{kind} {name_of(value.get('metadata'))}".rstrip()
    found = next((path for path in likely_pods(value)), None)
    at = "PATH" if found is None else pattern_text(tuple(_ANY if isinstance(step, int) else step for step in found))
    if not value.get("apiVersion"):
        return NotJudged(Subject.OBJECT, named, "it has no apiVersion", "write it", file, line)
    return NotJudged(
        Subject.OBJECT, named, "its kind is not known", f"name the path of the pod spec: --pod-path {at}", file, line
    )


_WHOLE = "write the whole object; render charts and patches first"

_ANY_FORM = frozenset({"mutate", "openAPIV3Schema", "validate", "values", "valuesObject"})
"""Fields below which a pod spec is only a schema, a policy's pattern or a chart's value."""

_HOLDERS = ("pod", "spec", "template")


def likely_pods(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of likely pod specs in an object of any kind: a spec or a template with containers that have images."""
    holder = next((step.lower() for step in reversed(path) if isinstance(step, str)), "").removesuffix("s")
    if isinstance(value, dict) and holder.endswith(_HOLDERS) and _are_containers(value.get("containers")):
        yield path
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in _ANY_FORM:
                yield from likely_pods(item, (*path, key))


def _are_containers(given: Any) -> bool:
    items = given if isinstance(given, list) else ()
    names = [value_at(one, (field,)) for one in items for field in ("name", "image")]
    return bool(names) and all(isinstance(name, str) for name in names)


def warn_of_version(ctx: PlaceContext, api_version: str, kind: str) -> None:
    """Warn of a version that API servers do not know; the kind is still placed."""
    record = kind_of(api_version, kind)
    if record.version and api_version != record.api_version and not record.takes_any_version:
        text = f"no API server knows {kind} of {api_version}: write {record.api_version}"
        ctx.add_finding(Level.WARNING, ctx.at("apiVersion"), text)
