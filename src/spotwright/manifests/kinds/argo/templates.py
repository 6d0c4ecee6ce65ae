"""The templates of a workflow: which have pods, who calls them, and which fields they inherit.

A template's tolerations, affinity and node selector each replace those of the template that calls it (its boundary, since Argo
3.6), and those replace the workflow's. ``templateDefaults`` are merged into every template before. Source:
argo-workflows, ``workflow/controller/workflowpod.go`` (addSchedulingConstraints), ``operator.go`` (mergedTemplateDefaultsInto),
read at v3.5.11, v3.6.5 and v3.7.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.rules.merging import strategic
from spotwright.manifests.rules.schema import CONTAINER, METADATA, POD, TEXT
from spotwright.manifests.yamltext.documents import Path

__all__ = ["WORKFLOW", "Template", "argo_patch", "argo_version", "code_paths", "effective", "templates", "walk_calls"]

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
    "activeDeadlineSeconds": TEXT,
    "timeout": TEXT,
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
_RUNS_ARGO = {
    "resource": "its pod only watches the object that it created",
    "data": "its pod only lists files for others",
}
_NEWEST = (4, 0)
_PATCH_AT = 2


@dataclass(slots=True)
class Template:
    """One template that has pods. ``callers`` are the paths of the templates that call it."""

    name: str
    path: Path
    kind: str  # container | script | containerSet | resource | data
    on_demand_reason: str = ""
    callers: list[Path] = field(default_factory=list)
    is_entry: bool = False  # it also runs without a caller

    @property
    def runs_code(self) -> bool:
        """Whether its pods run code of the user, not only Argo's own."""
        return self.kind in _RUNS_CODE


@dataclass(frozen=True, slots=True)
class _Call:
    """One step or task: the paths of its template and of itself, and its fields."""

    caller: Path
    path: Path
    step: Mapping[str, Any]


def argo_version(ctx: PlaceContext) -> tuple[int, int]:
    """The version of Argo for which the manifests are: ``target.argo``, else the newest known."""
    parts = str(ctx.config.target.get("argo", "")).removeprefix("v").split(".")
    if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit():
        return int(parts[0]), int(parts[1])
    return _NEWEST


def argo_patch(ctx: PlaceContext) -> int | None:
    """The patch level of ``target.argo``; ``None`` if it names none."""
    parts = str(ctx.config.target.get("argo", "")).split(".")
    return int(parts[2]) if len(parts) > _PATCH_AT and parts[2].isdigit() else None


def templates(ctx: PlaceContext, spec: Path) -> list[Template]:
    """Every template of a workflow's ``spec`` that has pods, inline ones included."""
    all_templates = list(_templates(ctx, spec))
    by_name = {template.name: template for template in all_templates}
    for call in walk_calls(ctx, spec):
        called = by_name.get(str(call.step.get("template")))
        if called is not None and call.caller not in called.callers:
            called.callers.append(call.caller)
    entry = ctx.editor.get((*spec, "entrypoint"))
    handlers = _exit_handlers(ctx, spec)
    for template in all_templates:
        template.is_entry = not template.callers or template.name == entry
        if template.name in handlers:
            template.on_demand_reason = "an exit handler has to run after everything else has ended"
    return all_templates


def walk_calls(ctx: PlaceContext, spec: Path) -> Iterator[_Call]:
    """Every step and task of the workflow, in the order of the file."""
    for index in range(_length(ctx, (*spec, "templates"))):
        yield from _calls_of(ctx, (*spec, "templates", index))


def _calls_of(ctx: PlaceContext, caller: Path) -> Iterator[_Call]:
    places = [(*caller, "dag", "tasks", task) for task in range(_length(ctx, (*caller, "dag", "tasks")))]
    for group in range(_length(ctx, (*caller, "steps"))):
        row = (*caller, "steps", group)
        places += [(*row, step) for step in range(_length(ctx, row))]
    for place in places:
        step = ctx.editor.get(place)
        if isinstance(step, dict):
            yield _Call(caller, place, step)


def _templates(ctx: PlaceContext, spec: Path) -> Iterator[Template]:
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


def _kind(ctx: PlaceContext, path: Path) -> str:
    template = ctx.editor.get(path)
    kinds = (*_RUNS_CODE, *_RUNS_ARGO)
    return next((kind for kind in kinds if isinstance(template, dict) and template.get(kind) is not None), "")


def _reason(ctx: PlaceContext, path: Path, kind: str) -> str:
    if ctx.editor.get((*path, "daemon")) is True:
        return "a daemon serves other steps, and an interruption loses its state"
    return _RUNS_ARGO.get(kind, "")


def _exit_handlers(ctx: PlaceContext, spec: Path) -> set[str]:
    """The names of the templates that exit handlers and lifecycle hooks run, and of all templates that those call."""
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


def effective(ctx: PlaceContext, spec: Path, template: Template) -> dict[str, Any]:
    """The pod that Argo will create for a template, without Argo's own additions: scheduling, containers, metadata.

    Raises :class:`ManifestError` if callers pass down different affinities, of which the template can have only one.
    """
    own = _own(ctx, spec, template.path)
    pod: dict[str, Any] = {
        "tolerations": own["tolerations"] or _inherited(ctx, spec, template, "tolerations"),
        "affinity": own["affinity"] or _inherited(ctx, spec, template, "affinity"),
        "nodeSelector": own["nodeSelector"] or _inherited(ctx, spec, template, "nodeSelector"),
        "imagePullSecrets": ctx.editor.get((*spec, "imagePullSecrets")),
        "metadata": _metadata(ctx, spec, template),
        "containers": _containers(ctx, spec, template),
        "initContainers": ctx.editor.get((*template.path, "initContainers")),
        "volumes": ctx.editor.get((*template.path, "volumes")),
    }
    return {key: value for key, value in pod.items() if value}


def _metadata(ctx: PlaceContext, spec: Path, template: Template) -> Any:
    """The labels and annotations of a pod: those of the workflow, the defaults and the template; later ones override."""
    metadata: Any = {}
    for path in ((*spec, "podMetadata"), (*spec, "templateDefaults", "metadata"), (*template.path, "metadata")):
        metadata = strategic(metadata, ctx.editor.get(path) or {})
    return metadata


def _own(ctx: PlaceContext, spec: Path, path: Path) -> dict[str, Any]:
    """The scheduling fields of a template with the defaults merged in; tolerations are merged by their key."""
    defaults = ctx.editor.get((*spec, "templateDefaults"))
    defaults = defaults or {}
    template = ctx.editor.get(path)
    tolerations = list(template.get("tolerations") or ())
    keys = {item.get("key") for item in tolerations}
    tolerations += [item for item in defaults.get("tolerations") or () if item.get("key") not in keys]
    return {
        "tolerations": tolerations,
        "affinity": strategic(defaults.get("affinity") or {}, template.get("affinity") or {}),
        "nodeSelector": {**(defaults.get("nodeSelector") or {}), **(template.get("nodeSelector") or {})},
    }


def _inherited(ctx: PlaceContext, spec: Path, template: Template, name: str) -> Any:
    """The inherited value of a field that a template does not set: from its callers, else from the workflow."""
    whole = ctx.editor.get((*spec, name))
    inherited = [(path, ctx.editor.get((*path, name)) or whole) for path in template.callers]
    if argo_version(ctx) < (3, 6) or not inherited:
        return whole
    if template.is_entry:
        inherited.append((spec, whole))
    values = [value for _, value in inherited if value]
    if name == "tolerations":
        every = [toleration for value in values for toleration in value]
        return [item for index, item in enumerate(every) if item not in every[:index]]
    if name == "nodeSelector":
        pairs = [set(value.items()) for _, value in ((path, value or {}) for path, value in inherited)]
        return dict(set.intersection(*pairs))
    return _one_affinity(ctx, template, inherited)


def _one_affinity(ctx: PlaceContext, template: Template, inherited: Sequence[tuple[Path, Any]]) -> Any:
    first_path, first = inherited[0]
    for path, value in inherited[1:]:
        if (value or None) != (first or None):
            lines = " and ".join(str(ctx.editor.document.line((*one, "affinity"))) for one in (first_path, path))
            text = (
                f"the callers of template {template.name} pass down different affinities (lines {lines}); "
                "give the template an affinity of its own"
            )
            raise ctx.problem(template.path, text)
    return first


def _containers(ctx: PlaceContext, spec: Path, template: Template) -> list[Any]:
    """The containers of the pod: the user's code first, then sidecars. Argo calls the one of a simple template ``main``."""
    defaults = ctx.editor.get((*spec, "templateDefaults", template.kind)) or {}
    if template.kind in _RUNS_ARGO:
        return []
    containers = [ctx.editor.get(path) for path in code_paths(ctx, template)]
    if template.kind != "containerSet":
        containers = [{**strategic(defaults, container), "name": "main"} for container in containers]
    return [*containers, *(ctx.editor.get((*template.path, "sidecars")) or ())]


def code_paths(ctx: PlaceContext, template: Template) -> list[Path]:
    """The paths of the containers that run the user's code, in the order of :func:`effective`."""
    path = (*template.path, template.kind)
    if template.kind != "containerSet":
        return [path] if template.runs_code else []
    return [(*path, "containers", index) for index in range(_length(ctx, (*path, "containers")))]


def _length(ctx: PlaceContext, path: Path) -> int:
    value = ctx.editor.get(path)
    return len(value) if isinstance(value, list) else 0
