"""Where a workflow describes its pods: its templates, who calls them, and what they get from above.

A template's own tolerations, affinity and node selector each replace those of the template that calls it (its boundary, since
Argo 3.6), and those replace the workflow's. ``templateDefaults`` are merged into every template before. Source:
argo-workflows, ``workflow/controller/workflowpod.go`` (addSchedulingConstraints), ``operator.go`` (mergedTemplateDefaultsInto),
read at v3.5.11, v3.6.5 and v3.7.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Path
from spotwright.manifests.edits import clone
from spotwright.manifests.merging import strategic
from spotwright.manifests.shapes import CONTAINER, METADATA, POD, TEXT

__all__ = ["WORKFLOW", "Template", "argo_version", "code_paths", "effective", "templates", "walk_calls"]

_SCHEDULING = {name: POD[name] for name in ("affinity", "nodeSelector", "tolerations")}
_RETRIES = {"limit": TEXT, "retryPolicy": TEXT, "expression": TEXT, "backoff": {}}
_STEP: dict[str, Any] = {
    "name": TEXT,
    "template": TEXT,
    "templateRef": {"name": TEXT, "template": TEXT},
    "onExit": TEXT,
    "hooks": {},
}
_TEMPLATE = {
    **_SCHEDULING,
    "name": TEXT,
    "container": CONTAINER,
    "script": CONTAINER,
    "containerSet": {"containers": [CONTAINER]},
    "sidecars": [CONTAINER],
    "initContainers": [CONTAINER],
    "metadata": METADATA,
    "volumes": [{"name": TEXT}],
    "podSpecPatch": TEXT,
    "retryStrategy": _RETRIES,
    "dag": {"tasks": [_STEP]},
    "steps": [[_STEP]],
    "resource": {"action": TEXT, "manifest": TEXT},
}
_STEP["inline"] = _TEMPLATE
WORKFLOW: Mapping[str, Any] = {
    **_SCHEDULING,
    "entrypoint": TEXT,
    "templates": [_TEMPLATE],
    "templateDefaults": _TEMPLATE,
    "imagePullSecrets": [{"name": TEXT}],
    "podMetadata": METADATA,
    "podSpecPatch": TEXT,
    "retryStrategy": _RETRIES,
    "workflowTemplateRef": {"name": TEXT},
    "onExit": TEXT,
    "hooks": {},
}
"""The fields of a workflow's spec that are read or added to. Source: argo-workflows, ``workflow_types.go``."""

_RUNS_CODE = ("container", "script", "containerSet")
_RUNS_ARGO = {"resource": "its pod only watches the object that it made", "data": "its pod only lists files for others"}
_NEWEST = (4, 0)


@dataclass(slots=True)
class Template:
    """One template that has pods. ``callers`` are the paths of the templates that call it, ``stays`` why it is on on-demand."""

    name: str
    path: Path
    kind: str  # container | script | containerSet | resource | data
    stays: str = ""
    callers: list[Path] = field(default_factory=list)
    is_entry: bool = False  # also reached without a caller

    @property
    def runs_code(self) -> bool:
        """Whether its pods run the user's code, not only Argo's own."""
        return self.kind in _RUNS_CODE


@dataclass(frozen=True, slots=True)
class _Call:
    """One step or task: who makes it, and the template it names or holds."""

    caller: Path
    path: Path
    step: Mapping[str, Any]


def argo_version(ctx: Context) -> tuple[int, int]:
    """The version of Argo that the manifests are for: ``target.argo``, else the newest known."""
    parts = str(ctx.config.target.get("argo", "")).removeprefix("v").split(".")
    if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit():
        return int(parts[0]), int(parts[1])
    return _NEWEST


def templates(ctx: Context, spec: Path) -> list[Template]:
    """Every template of a workflow's ``spec`` that has pods, inline ones included."""
    found = list(_templates(ctx, spec))
    by_name = {template.name: template for template in found}
    for call in walk_calls(ctx, spec):
        called = by_name.get(str(call.step.get("template")))
        if called is not None and call.caller not in called.callers:
            called.callers.append(call.caller)
    entry = ctx.editor.get((*spec, "entrypoint"))
    handlers = _exit_handlers(ctx, spec)
    for template in found:
        template.is_entry = not template.callers or template.name == entry
        if template.name in handlers:
            template.stays = "an exit handler must run when all else has ended"
    return found


def walk_calls(ctx: Context, spec: Path) -> Iterator[_Call]:
    """Every step and task of the workflow, in the order of the file."""
    for index in range(_length(ctx, (*spec, "templates"))):
        yield from _calls_of(ctx, (*spec, "templates", index))


def _calls_of(ctx: Context, caller: Path) -> Iterator[_Call]:
    places = [(*caller, "dag", "tasks", task) for task in range(_length(ctx, (*caller, "dag", "tasks")))]
    for group in range(_length(ctx, (*caller, "steps"))):
        row = (*caller, "steps", group)
        places += [(*row, step) for step in range(_length(ctx, row))]
    for place in places:
        step = ctx.editor.get(place)
        if isinstance(step, dict):
            yield _Call(caller, place, step)


def _templates(ctx: Context, spec: Path) -> Iterator[Template]:
    for index in range(_length(ctx, (*spec, "templates"))):
        path = (*spec, "templates", index)
        name = str(ctx.editor.get((*path, "name"), f"template-{index}"))
        kind = _kind(ctx, path)
        if kind:
            yield Template(name, path, kind, _reason(ctx, path, kind))
        for call in _calls_of(ctx, path):
            inline = (*call.path, "inline")
            kind = _kind(ctx, inline)
            if kind:
                own = f"{name}/{call.step.get('name', 'inline')}"
                yield Template(own, inline, kind, _reason(ctx, inline, kind), [path])


def _kind(ctx: Context, path: Path) -> str:
    template = ctx.editor.get(path)
    kinds = (*_RUNS_CODE, *_RUNS_ARGO)
    return next((kind for kind in kinds if isinstance(template, dict) and template.get(kind) is not None), "")


def _reason(ctx: Context, path: Path, kind: str) -> str:
    if ctx.editor.get((*path, "daemon")) is True:
        return "a daemon serves other steps, and loses what it holds"
    return _RUNS_ARGO.get(kind, "")


def _exit_handlers(ctx: Context, spec: Path) -> set[str]:
    """The names of the templates that exit handlers and lifecycle hooks run, and of all that those call."""
    callees: dict[str, set[str]] = {}
    begin = {str(ctx.editor.get((*spec, "onExit")))} | _hooked(ctx.editor.get((*spec, "hooks")))
    for call in walk_calls(ctx, spec):
        caller = str(ctx.editor.get((*call.caller, "name")))
        callees.setdefault(caller, set()).add(str(call.step.get("template")))
        begin |= {str(call.step.get("onExit"))} | _hooked(call.step.get("hooks"))
    reached: set[str] = set()
    while begin:
        name = begin.pop()
        if name not in reached:
            reached.add(name)
            begin |= callees.get(name, set())
    return reached


def _hooked(hooks: Any) -> set[str]:
    values = hooks.values() if isinstance(hooks, dict) else ()
    return {str(hook.get("template")) for hook in values if isinstance(hook, dict)}


def effective(ctx: Context, spec: Path, template: Template) -> dict[str, Any]:
    """The pod of a template as Argo will make it, without what it adds itself: scheduling, containers, metadata.

    Raises :class:`ManifestError` where callers hand down different affinities, of which the template can be given only one.
    """
    own = _own(ctx, spec, template.path)
    pod: dict[str, Any] = {
        "tolerations": own["tolerations"] or _inherited(ctx, spec, template, "tolerations"),
        "affinity": own["affinity"] or _inherited(ctx, spec, template, "affinity"),
        "nodeSelector": own["nodeSelector"] or _inherited(ctx, spec, template, "nodeSelector"),
        "imagePullSecrets": clone(ctx.editor.get((*spec, "imagePullSecrets"))),
        "metadata": _metadata(ctx, spec, template),
        "containers": _containers(ctx, spec, template),
        "initContainers": clone(ctx.editor.get((*template.path, "initContainers"))),
        "volumes": clone(ctx.editor.get((*template.path, "volumes"))),
    }
    return {key: value for key, value in pod.items() if value}


def _metadata(ctx: Context, spec: Path, template: Template) -> Any:
    """The labels and annotations that a pod gets: the workflow's, the defaults', the template's, the later winning."""
    found: Any = {}
    for path in ((*spec, "podMetadata"), (*spec, "templateDefaults", "metadata"), (*template.path, "metadata")):
        found = strategic(found, ctx.editor.get(path) or {})
    return found


def _own(ctx: Context, spec: Path, path: Path) -> dict[str, Any]:
    """The scheduling fields of a template with the defaults in them; tolerations are joined by their key."""
    defaults = ctx.editor.get((*spec, "templateDefaults"))
    defaults = defaults or {}
    template = ctx.editor.get(path)
    tolerations = list(template.get("tolerations") or ())
    keys = {item.get("key") for item in tolerations}
    tolerations += [item for item in defaults.get("tolerations") or () if item.get("key") not in keys]
    return {
        "tolerations": clone(tolerations),
        "affinity": strategic(defaults.get("affinity") or {}, template.get("affinity") or {}),
        "nodeSelector": {**(defaults.get("nodeSelector") or {}), **(template.get("nodeSelector") or {})},
    }


def _inherited(ctx: Context, spec: Path, template: Template, name: str) -> Any:
    """What a template without a field of its own gets: from its callers, else from the workflow."""
    whole = ctx.editor.get((*spec, name))
    handed = [(path, ctx.editor.get((*path, name)) or whole) for path in template.callers]
    if argo_version(ctx) < (3, 6) or not handed:
        return clone(whole)
    if template.is_entry:
        handed.append((spec, whole))
    values = [value for _, value in handed if value]
    if name == "tolerations":
        every = [toleration for value in values for toleration in value]
        return clone([item for index, item in enumerate(every) if item not in every[:index]])
    if name == "nodeSelector":
        pairs = [set(value.items()) for _, value in ((path, value or {}) for path, value in handed)]
        return dict(set.intersection(*pairs))
    return _one_affinity(ctx, template, handed)


def _one_affinity(ctx: Context, template: Template, handed: Sequence[tuple[Path, Any]]) -> Any:
    first_path, first = handed[0]
    for path, value in handed[1:]:
        if (value or None) != (first or None):
            lines = " and ".join(str(ctx.editor.document.line((*one, "affinity"))) for one in (first_path, path))
            text = (
                f"the callers of template {template.name} hand down different affinities (lines {lines}); "
                "give the template an affinity of its own"
            )
            raise ctx.problem(template.path, text)
    return clone(first)


def _containers(ctx: Context, spec: Path, template: Template) -> list[Any]:
    """The containers of the pod: the user's code first, then sidecars. Argo calls the one of a simple template ``main``."""
    defaults = ctx.editor.get((*spec, "templateDefaults", template.kind)) or {}
    if template.kind in _RUNS_ARGO:
        return []
    found = [ctx.editor.get(path) for path in code_paths(ctx, template)]
    if template.kind != "containerSet":
        found = [{**strategic(defaults, container), "name": "main"} for container in found]
    return clone([*found, *(ctx.editor.get((*template.path, "sidecars")) or ())])


def code_paths(ctx: Context, template: Template) -> list[Path]:
    """The paths of the containers that run the user's code, in the order of :func:`effective`."""
    path = (*template.path, template.kind)
    if template.kind != "containerSet":
        return [path] if template.runs_code else []
    return [(*path, "containers", index) for index in range(_length(ctx, (*path, "containers")))]


def _length(ctx: Context, path: Path) -> int:
    value = ctx.editor.get(path)
    return len(value) if isinstance(value, list) else 0
