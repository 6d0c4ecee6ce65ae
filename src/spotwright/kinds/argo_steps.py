"""The templates of a workflow: which have pods, who calls them, which fields they inherit, and how their fields are written.

A template's tolerations, affinity and node selector each replace the fields of the template that calls it (its boundary, since
Argo 3.6), which replace the workflow's. ``templateDefaults`` are first merged into every template. Source:
argo-workflows, ``workflow/controller/workflowpod.go`` (addSchedulingConstraints), ``operator.go`` (mergedTemplateDefaultsInto),
read at v3.5.11, v3.6.5 and v3.7.1.

``retryStrategy`` has one count for all endings, and an expression that distinguishes interruptions from errors. The policy's
``timeout`` becomes ``activeDeadlineSeconds``, which bounds each pod of a template's retries separately. ``podSpecPatch``, a
patch of the pod spec in a string, holds the fields that Argo lacks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeAlias

from spotwright.config import Config
from spotwright.kinds.job import REFUSED
from spotwright.kinds.katib import parse_marked
from spotwright.kinds.kind import PodLevels
from spotwright.kube.object_fields import mapping
from spotwright.kube.pod import TERMS
from spotwright.model.policy import BUILT_IN, Backoff, Policy
from spotwright.placing.affinity import conditions_from_attempt
from spotwright.placing.context import MOST_RETRIES, Level, OwnRetries, PlaceContext
from spotwright.placing.documents import Document, Path
from spotwright.placing.enforcement import Anchor
from spotwright.placing.merging import strategic
from spotwright.placing.patch import Splice, value_at
from spotwright.placing.pod_change import PodChange, with_terms
from spotwright.placing.pod_spec import CONTAINER, METADATA, POD, TEXT, check_value
from spotwright.placing.pods import Placed
from spotwright.placing.retries import seconds_text, write_unless_set
from spotwright.placing.yaml_writer import apply, block
from spotwright.scheduling.budgets import MAX_MOVES

__all__ = [
    "NEWEST",
    "TEMPLATES",
    "WORKFLOW",
    "Retries",
    "Template",
    "add_to_patch",
    "anchor_given_deadline",
    "argo_patch",
    "argo_version",
    "code_paths",
    "effective",
    "from_attempt",
    "has_pods",
    "hooked",
    "own_retries",
    "read_patch",
    "sends_object",
    "strategy_at",
    "templates",
    "walk_calls",
    "write_deadline",
    "write_retries",
]


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
NEWEST = (4, 0)
"""The newest version of Argo that is known."""

_SENDS = ("create", "apply", "replace")  # actions of a resource template that send a whole object
_PATCH_AT = 2

Get: TypeAlias = Callable[[Path], Any]
"""The value at a path of a document, or ``None``."""


TEMPLATES = ("templates.*", "templates.*.steps.*.*.inline", "templates.*.dag.tasks.*.inline")
"""The paths of a workflow's templates below its ``spec``: named ones, and those inside a step or a task."""


def has_pods(template: Any) -> bool:
    """Whether a template has pods, the user's or Argo's, and does not only call others."""
    return _kind_of(template) != ""


def sends_object(resource: Any) -> bool:
    """Whether a template's ``resource`` sends its manifest, a string, to the API server as a whole object."""
    is_given = isinstance(resource, dict) and isinstance(resource.get("manifest"), str)
    return is_given and resource.get("action") in _SENDS


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
        """Whether its pods run the user's code, not only Argo's."""
        return self.kind in _RUNS_CODE


@dataclass(frozen=True, slots=True)
class _Call:
    """One step or task: the paths of its template and of itself, and its fields."""

    caller: Path
    path: Path
    step: Mapping[str, Any]


def argo_version(config: Config) -> tuple[int, int]:
    """The manifests' version of Argo: ``target.argo``, else the newest known."""
    parts = str(config.target.get("argo", "")).removeprefix("v").split(".")
    if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit():
        return int(parts[0]), int(parts[1])
    return NEWEST


def argo_patch(ctx: PlaceContext) -> int | None:
    """The patch level of ``target.argo``; ``None`` if it names none."""
    parts = str(ctx.config.target.get("argo", "")).split(".")
    return int(parts[2]) if len(parts) > _PATCH_AT and parts[2].isdigit() else None


def templates(get: Get, spec: Path) -> list[Template]:
    """Every template of a workflow's ``spec`` that has pods, inline ones included."""
    all_templates = list(_templates(get, spec))
    by_name = {template.name: template for template in all_templates}
    for call in walk_calls(get, spec):
        called = by_name.get(str(call.step.get("template")))
        if called is not None and call.caller not in called.callers:
            called.callers.append(call.caller)
    entry = get((*spec, "entrypoint"))
    handlers = _exit_handlers(get, spec)
    for template in all_templates:
        template.is_entry = not template.callers or template.name == entry
        if template.name in handlers:
            template.on_demand_reason = "an exit handler has to run after everything else has ended"
    return all_templates


def walk_calls(get: Get, spec: Path) -> Iterator[_Call]:
    """Every step and task of the workflow, in the order of the file."""
    for index in range(_length(get, (*spec, "templates"))):
        yield from _calls_of(get, (*spec, "templates", index))


def _calls_of(get: Get, caller: Path) -> Iterator[_Call]:
    places = [(*caller, "dag", "tasks", task) for task in range(_length(get, (*caller, "dag", "tasks")))]
    for group in range(_length(get, (*caller, "steps"))):
        row = (*caller, "steps", group)
        places += [(*row, step) for step in range(_length(get, row))]
    for place in places:
        step = get(place)
        if isinstance(step, dict):
            yield _Call(caller, place, step)


def _templates(get: Get, spec: Path) -> Iterator[Template]:
    for index in range(_length(get, (*spec, "templates"))):
        path = (*spec, "templates", index)
        name = str(get((*path, "name")) or f"template-{index}")
        kind = _kind(get, path)
        if kind:
            yield Template(name, path, kind, _reason(get, path, kind))
        for call in _calls_of(get, path):
            inline = (*call.path, "inline")
            kind = _kind(get, inline)
            if kind:
                own = f"{name}/{call.step.get('name', 'inline')}"
                yield Template(own, inline, kind, _reason(get, inline, kind), [path])


def _kind(get: Get, path: Path) -> str:
    return _kind_of(get(path))


def _kind_of(template: Any) -> str:
    kinds = (*_RUNS_CODE, *_RUNS_ARGO)
    return next((kind for kind in kinds if isinstance(template, dict) and template.get(kind) is not None), "")


def _reason(get: Get, path: Path, kind: str) -> str:
    if get((*path, "daemon")) is True:
        return "a daemon serves other steps, and an interruption loses its state"
    return _RUNS_ARGO.get(kind, "")


def _exit_handlers(get: Get, spec: Path) -> set[str]:
    """The names of the templates that exit handlers and lifecycle hooks run, with all their callees."""
    callees: dict[str, set[str]] = {}
    begin = {str(get((*spec, "onExit")))} | hooked(get((*spec, "hooks")))
    for call in walk_calls(get, spec):
        caller = str(get((*call.caller, "name")))
        callees.setdefault(caller, set()).add(str(call.step.get("template")))
        begin |= {str(call.step.get("onExit"))} | hooked(call.step.get("hooks"))
    reached: set[str] = set()
    while begin:
        name = begin.pop()
        if name not in reached:
            reached.add(name)
            begin |= callees.get(name, set())
    return reached


def hooked(hooks: Any) -> set[str]:
    """The names of the templates that lifecycle hooks run."""
    values = hooks.values() if isinstance(hooks, dict) else ()
    return {str(hook.get("template")) for hook in values if isinstance(hook, dict)}


def effective(
    get: Get,
    spec: Path,
    template: Template,
    version: tuple[int, int],
    refuse: Callable[[Path, Path], None] = lambda *_: None,
) -> PodLevels:
    """The pod that Argo will create for a template of the workflow at ``spec``, without its own additions.

    Callers may pass down different affinities, but the template can have only one: ``refuse`` gets the paths of two, and the
    first one counts.
    """
    parts = {
        "tolerations": _tolerations(get, spec, template, version),
        "affinity": _affinity(get, spec, template, version, refuse),
        "nodeSelector": _selector(get, spec, template, version),
    }
    pod: dict[str, Any] = {
        **{name: value for name, (value, _) in parts.items()},
        "imagePullSecrets": get((*spec, "imagePullSecrets")),
        "priorityClassName": get((*template.path, "priorityClassName"))
        or get((*spec, "templateDefaults", "priorityClassName"))
        or get((*spec, "podPriorityClassName")),
        "containers": _containers(get, spec, template),
        "initContainers": get((*template.path, "initContainers")),
        "volumes": get((*template.path, "volumes")),
    }
    where = {path: at for _, places in parts.values() for path, at in places.items()}
    given = {key: value for key, value in pod.items() if value}
    return PodLevels(template.path, "H", given, _metadata(get, spec, template), where)


def _metadata(get: Get, spec: Path, template: Template) -> Any:
    """The labels and annotations of a pod: from the workflow, the defaults and the template; later ones override."""
    metadata: Any = {}
    for path in ((*spec, "podMetadata"), (*spec, "templateDefaults", "metadata"), (*template.path, "metadata")):
        metadata = strategic(metadata, get(path) or {})
    return metadata


def _callers(get: Get, spec: Path, template: Template, version: tuple[int, int], name: str) -> list[Path]:
    """The levels from which a template inherits an unset field, callers before the workflow; empty before 3.6."""
    if version < (3, 6) or not template.callers:
        return []
    levels = [path if get((*path, name)) else spec for path in template.callers]
    return [*levels, spec] if template.is_entry else levels


def _tolerations(
    get: Get, spec: Path, template: Template, version: tuple[int, int]
) -> tuple[list[Any], dict[Path, Path]]:
    """The tolerations of a template and the defaults, merged by key; without any, those of all levels that pass some down."""

    def listed(level: Path) -> list[tuple[Any, Path]]:
        path = (*level, "tolerations")
        return [(get((*path, index)), (*path, index)) for index in range(_length(get, path))]

    found = listed(template.path)
    keys = [mapping(one).get("key") for one, _ in found]
    found += [pair for pair in listed((*spec, "templateDefaults")) if mapping(pair[0]).get("key") not in keys]
    if not found:
        levels = _callers(get, spec, template, version, "tolerations")
        for pair in (pair for level in levels for pair in listed(level)):
            found += [pair] if all(pair[0] != one for one, _ in found) else []
        found = found if levels else listed(spec)
    where: dict[Path, Path] = {("tolerations", index): path for index, (_, path) in enumerate(found)}
    return [one for one, _ in found], {("tolerations",): found[0][1][:-1], **where} if found else {}


def _selector(
    get: Get, spec: Path, template: Template, version: tuple[int, int]
) -> tuple[dict[str, Any], dict[Path, Path]]:
    """The node selector of a template over the defaults'; without any, the common part of all that are passed down."""

    def of(level: Path) -> dict[str, tuple[Any, Path]]:
        path = (*level, "nodeSelector")
        return {key: (value, (*path, key)) for key, value in mapping(get(path)).items()}

    found = {**of((*spec, "templateDefaults")), **of(template.path)}
    if not found:
        found, *others = map(of, _callers(get, spec, template, version, "nodeSelector") or [spec])
        for other in others:
            found = {key: one for key, one in found.items() if other.get(key, ())[:1] == one[:1]}
    where: dict[Path, Path] = {("nodeSelector", key): path for key, (_, path) in found.items()}
    first = next((path[:-1] for path in where.values()), spec)
    return {key: value for key, (value, _) in found.items()}, {("nodeSelector",): first, **where} if found else {}


def _affinity(
    get: Get, spec: Path, template: Template, version: tuple[int, int], refuse: Callable[[Path, Path], None]
) -> tuple[Any, dict[Path, Path]]:
    """The affinity of a template merged into the defaults'; without any, the one that its callers pass down."""
    own, defaults = ((*level, "affinity") for level in (template.path, (*spec, "templateDefaults")))
    if value := strategic(get(defaults) or {}, get(own) or {}):
        return value, {("affinity",): own if get(own) else defaults}
    first, *others = [(*level, "affinity") for level in _callers(get, spec, template, version, "affinity") or [spec]]
    for path, level in zip(others, [*template.callers[1:], spec], strict=False):
        if (get(path) or None) != (get(first) or None):
            refuse((*template.callers[0], "affinity"), (*level, "affinity"))
    return get(first), {("affinity",): first}


def _containers(get: Get, spec: Path, template: Template) -> list[Any]:
    """The containers of the pod: the user's code first, then sidecars. Argo names a simple template's ``main``."""
    defaults = get((*spec, "templateDefaults", template.kind)) or {}
    if template.kind in _RUNS_ARGO:
        return []
    containers = [get(path) for path in code_paths(get, template)]
    if template.kind != "containerSet":
        containers = [{**mapping(strategic(defaults, container)), "name": "main"} for container in containers]
    sidecars = (*template.path, "sidecars")
    return [*containers, *(get((*sidecars, index)) for index in range(_length(get, sidecars)))]


def code_paths(get: Get, template: Template) -> list[Path]:
    """The paths of the containers that run the user's code, in the order of :func:`effective`."""
    path = (*template.path, template.kind)
    if template.kind != "containerSet":
        return [path] if template.runs_code else []
    return [(*path, "containers", index) for index in range(_length(get, (*path, "containers")))]


def _length(get: Get, path: Path) -> int:
    value = get(path)
    return len(value) if isinstance(value, list) else 0


def strategy_at(get: Get, spec: Path, template: Path) -> Path | None:
    """The retry strategy in force for a template: its own, the defaults' or the workflow's; ``None`` without one."""
    paths = ((*level, "retryStrategy") for level in (template, (*spec, "templateDefaults"), spec))
    return next((path for path in paths if get(path) is not None), None)


# Messages of interrupted pods: graceful shutdown of the kubelet, a deleted pod, memory pressure of the node, a node that went
# before the pod ran, containers that got SIGTERM or SIGKILL (one that exceeds its own memory says OOMKilled instead), and
# containers that a kubelet did not find after its node had started again (a program that ends with 255 says Error instead).
_MESSAGES = (
    "imminent node shutdown|node is shutting down|pod deleted|low on resource|PodInitializing|ContainerCreating"
    "|neither main nor wait container|Error .exit code 1(37|43)|Unknown .exit code 255"
)

_NOT_REFUSED = f"lastRetry.exitCode != '{REFUSED}'"

_EFFECTS = {
    "Always": "Always retries it after an interruption",
    "OnError": "OnError does not retry it after a drain, which ends as Failed with exit code 143 (seen on Argo 4.0.5)",
    "OnFailure": "OnFailure retries it after a drain, but not where Argo records 'pod deleted' (seen on Argo 3.7.3)",
}
"""The effect of each ``retryPolicy`` after a drain or a delete; after a delete it is a race which of the two Argo records."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries in force: whether there are any, their limit (``None``: unknown), and a sentence for the report.

    ``own_at``: the path of the level with the user's own ``retryStrategy``, if that stays.
    """

    is_retried: bool
    limit: int | None
    sentence: str
    own_at: Path | None = None


def own_retries(ctx: PlaceContext, spec: Path, template: Path) -> OwnRetries | None:
    """The retries of a template's strategy; ``None`` without one: Argo does not retry by default.

    A strategy without a limit is unlimited. A limit that is a parameter is unknown here and counts as unlimited too.
    """
    own = strategy_at(ctx.editor.get, spec, template)
    if own is None:
        return None
    limit = str(ctx.editor.get((*own, "limit")))
    return OwnRetries(int(limit) if _COUNT.fullmatch(limit) else MOST_RETRIES, "its own retryStrategy")


def write_retries(ctx: PlaceContext, at: Path, own: Path | None, placed: Placed) -> Retries:
    """Write the policy's retries at ``at``, unless the user has set their ``own``, there or at a level above."""
    policy = placed.policy
    if own is not None and not ctx.options.replace_retries:
        return _keep(ctx, own, policy)
    wanted = _strategy(ctx, at, policy, on_spot=placed.on_spot)
    if not wanted:
        what = "an interruption" if placed.on_spot else "only a drain can interrupt it, which"
        return Retries(is_retried=False, limit=0, sentence=f"{what} ends the step: it has no retries")
    for path, value in _leaves(wanted):
        write_unless_set(ctx, (*at, *path), value)
    if ctx.editor.get((*at, "backoff", "maxDuration")) is not None:
        ctx.add_finding(
            Level.WARNING, (*at, "backoff", "maxDuration"), "maxDuration stays; it bounds all attempts together"
        )
    limit = int(wanted["limit"])
    if placed.on_spot:
        sentence = f"Argo retries it, at most {policy.max_interruptions} times"
    else:
        sentence = f"only a drain can interrupt it: Argo retries it, at most {limit} times, errors counted too"
    return Retries(is_retried=True, limit=limit, sentence=sentence)


def _leaves(value: Mapping[str, Any], path: Path = ()) -> list[tuple[Path, Any]]:
    """The scalars inside a mapping with their paths."""
    leaves: list[tuple[Path, Any]] = []
    for key, item in value.items():
        leaves += _leaves(item, (*path, key)) if isinstance(item, dict) else [((*path, key), item)]
    return leaves


_EXPRESSIONS = (3, 2)  # the first version of Argo whose retries have an expression
_COUNT = re.compile("[0-9]{1,9}")  # of tries: Python refuses to read thousands of digits


def _keep(ctx: PlaceContext, path: Path, policy: Policy) -> Retries:
    """Keep the user's own strategy and report an interruption's effect under it."""
    strategy = ctx.editor.get(path)
    if ctx.options.has_webhook and argo_version(ctx.config) >= _EXPRESSIONS:
        strategy = _end_at_refusals(ctx, path, strategy)
    by_default = "Always" if strategy.get("expression") and argo_version(ctx.config) >= (3, 5) else "OnFailure"
    kind = str(strategy.get("retryPolicy") or by_default)
    limit = strategy.get("limit")
    number = int(limit) if _COUNT.fullmatch(str(limit)) else None
    effect = _EFFECTS.get(kind, f"{kind} misses some interruptions")
    effect += f", at most {limit} times, errors counted too" if limit is not None else ", without a bound"
    text = f"your retryStrategy stays: {effect}; --replace-retries replaces it by the policy's"
    ctx.add_finding(Level.WARNING, path, text)
    if number is not None and number < policy.fall_back_after and policy.fall_back_after < policy.max_interruptions:
        ctx.add_finding(
            Level.WARNING,
            path,
            f"with limit {limit}, the fallback to on-demand after {policy.fall_back_after} interruptions is never reached",
        )
    return Retries(is_retried=True, limit=number, sentence=effect, own_at=path[:-1])


def _end_at_refusals(ctx: PlaceContext, path: Path, strategy: Mapping[str, Any]) -> Mapping[str, Any]:
    """Exclude refusals from the user's own retries; returns the changed strategy."""
    own = strategy.get("expression")
    if own is None:
        ctx.editor.add((*path, "expression"), _NOT_REFUSED)
    elif _NOT_REFUSED not in str(own):
        ctx.editor.replace((*path, "expression"), f"({own}) && {_NOT_REFUSED}")
    return dict(ctx.editor.get(path))


def _strategy(ctx: PlaceContext, at: Path, policy: Policy, *, on_spot: bool) -> dict[str, Any]:
    limit = (policy.max_interruptions if on_spot else 0) + policy.retries
    if not limit and not (on_spot and ctx.options.has_webhook):
        return {}
    if ctx.options.has_webhook:
        limit += MAX_MOVES
    strategy: dict[str, Any] = {"limit": str(limit), "retryPolicy": "Always"}
    expression = _expression(ctx, at, policy) if on_spot else _NOT_REFUSED if ctx.options.has_webhook else ""
    if expression:
        strategy["expression"] = expression
    wait = policy.interruption_backoff if on_spot else policy.error_backoff
    if wait.first > 0:
        factor = "interruptions.factor" if on_spot else "errors.factor"
        level = Level.NOTE if policy.sources.get(factor) == BUILT_IN.source else Level.WARNING
        strategy["backoff"] = _backoff(ctx, at, wait, limit, level)
    return strategy


def _expression(ctx: PlaceContext, at: Path, policy: Policy) -> str:
    version = argo_version(ctx.config)
    if version < _EXPRESSIONS:
        ctx.add_finding(
            Level.WARNING,
            at,
            "Argo before 3.2 has no expression for retries, so errors of the code are retried too",
        )
        return ""
    if version < (3, 5):
        interrupted = "lastRetry.status == 'Error' || lastRetry.exitCode in ['-1', '137', '143', '255']"
    else:
        interrupted = f"lastRetry.message matches '{_MESSAGES}'"
    if not policy.retries:
        return interrupted
    if ctx.options.has_webhook:
        return _NOT_REFUSED
    first = "the first retry" if policy.retries == 1 else f"one of the first {policy.retries} retries"
    ctx.add_finding(
        Level.WARNING, at, f"Argo counts interruptions and errors together: an error is retried only as {first}"
    )
    return f"{interrupted} || asInt(retries) < {policy.retries}"


def _backoff(ctx: PlaceContext, at: Path, wait: Backoff, limit: int, level: Level) -> dict[str, Any]:
    """The backoff: Argo's factor is a whole number, and only 3.7 and later have a cap; before, the factor is smaller.

    ``level``: severity of the finding about a changed factor.
    """
    factor = max(1, round(wait.factor))
    backoff = {"duration": _duration(wait.first)}
    if argo_version(ctx.config) >= (3, 7):
        backoff |= {"factor": str(factor), "cap": _duration(wait.max_backoff)}
    else:
        while factor > 1 and wait.first * float(factor) ** (limit - 1) > wait.max_backoff:
            factor -= 1
        backoff["factor"] = str(factor)
    if factor != wait.factor:
        ctx.add_finding(
            level, at, f"waits grow by the factor {factor} instead of {wait.factor:g}, which Argo cannot do here"
        )
    return backoff


def _duration(seconds: float) -> str:
    return f"{max(1, math.ceil(seconds))}s"


def read_patch(ctx: PlaceContext, path: Path) -> dict[str, Any]:
    """The patch at ``path`` as data, or empty. Raises :class:`ManifestError` if it is not a mapping."""
    document = _parsed(ctx, path)
    if document is None:
        return {}
    patch: dict[str, Any] = document.get(())
    check_value(ctx, path, patch, POD)
    return patch


def _parsed(ctx: PlaceContext, path: Path) -> Document | None:
    text = ctx.editor.get(path)
    if not isinstance(text, str) or not text.strip():
        return None
    documents = _patches(text, f"{ctx.editor.document.file}:{ctx.editor.document.line(path)}: podSpecPatch")
    if len(documents) != 1 or not isinstance(documents[0].get(()), Mapping):
        raise ctx.problem(path, "expected a patch of a pod spec in JSON or YAML")
    return documents[0]


@lru_cache(maxsize=64)
def _patches(text: str, file: str) -> Sequence[Document]:
    """The documents of a patch; cached, because a patch is read for every field that it could override."""
    return parse_marked(text, file)


def add_to_patch(ctx: PlaceContext, path: Path, fields: Mapping[str, Any], default: Path | None = None) -> None:
    """Add fields to the patch at ``path``, which lacks them.

    Without a patch, the one at ``default`` applies. The new patch hides it, so it repeats the default's fields.
    """
    own = _parsed(ctx, path)
    document = own or (_parsed(ctx, default) if default is not None else None)
    if document is None:
        _write(ctx, path, "\n".join(block(dict(fields), 0)) + "\n")
        return
    changes = [_above(document, fields)]
    changed = apply(document.text, changes)
    if [current.get(()) for current in parse_marked(changed, document.file)] != [{**fields, **document.get(())}]:
        raise ctx.problem(path, f"{', '.join(fields)} cannot be added here; write the patch as YAML, one field a line")
    if own is None:
        _write(ctx, path, changed)
    else:
        ctx.editor.embed(path, changed, changes)


def _write(ctx: PlaceContext, path: Path, text: str) -> None:
    if ctx.editor.get(path) is None:
        ctx.editor.add(path, text)
    else:
        ctx.editor.replace(path, text)


def _above(document: Document, fields: Mapping[str, Any]) -> Splice:
    text, root = document.text, document.root
    if text.lstrip().startswith("{"):
        comma = ", " if document.get(()) else ""
        return Splice(text.index("{") + 1, json.dumps(fields)[1:-1] + comma)
    column = root.start_mark.column
    lines = block(dict(fields), column)
    return Splice(root.start_mark.index, "\n".join(lines).lstrip(" ") + "\n" + " " * column)


def from_attempt(attempt: int, affinity: Any, conditions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The affinity of a patch that adds ``conditions`` to ``affinity`` from an attempt on, counted from 0.

    A patch replaces all terms of the affinity, so it repeats the existing ones.
    """

    def choose(early: str, late: str) -> str:
        return f"{{{{=asInt(retries) < {attempt} ? '{early}' : '{late}'}}}}"

    later = PodChange(required=tuple(conditions_from_attempt(conditions, choose)))
    value: Any = with_terms(value_at({"affinity": affinity}, TERMS) or (), later)
    for step in reversed(TERMS[1:]):
        value = {step: value}
    return dict(value)


_FIELD = "activeDeadlineSeconds"


def write_deadline(
    ctx: PlaceContext, template: Template, placed: Placed, defaults: Path, patches: Sequence[Path]
) -> None:
    """Write the deadline of a template's pods unless the template, the ``defaults`` or one of the ``patches`` has one."""
    timeout = placed.policy.timeout
    if timeout is None or not template.runs_code or ctx.editor.get((*template.path, "daemon")) is True:
        return
    wanted, at = math.ceil(timeout), (*template.path, _FIELD)
    limited = next((path for path in (template.path, defaults) if ctx.editor.get((*path, "timeout")) is not None), None)
    if limited is not None:
        placed.report.anchor("limit", ctx.editor, limited)
        text = f"its own timeout {ctx.editor.get((*limited, 'timeout'))} stays: Argo prefers it to {_FIELD}"
        text += f"; the policy allows {seconds_text(wanted)}"
        ctx.add_finding(Level.WARNING, (*limited, "timeout"), f"{template.name}: {text}")
        return
    patched = next((path for path in reversed(patches) if read_patch(ctx, path).get(_FIELD) is not None), None)
    if patched is not None:
        patch = read_patch(ctx, patched)
        placed.report.anchors["deadline"] = Anchor((), partial(value_at, patch), partial(value_at, patch))
        _report_own(ctx, template, patched, patch[_FIELD], wanted)
        return
    inherited = ctx.editor.get((*defaults, _FIELD))
    if ctx.editor.get(at) is None and inherited is not None and not ctx.options.replace_retries:
        placed.report.anchor("deadline", ctx.editor, defaults)
        _report_own(ctx, template, (*defaults, _FIELD), inherited, wanted, " (--replace-retries)")
        return
    in_force = write_unless_set(ctx, at, wanted)
    placed.report.anchor("deadline", ctx.editor, template.path)
    _report_own(ctx, template, at, in_force, wanted, " (--replace-retries)")
    if placed.on_spot and argo_version(ctx.config) < (3, 5):
        text = "Argo before 3.5 shows retries no message of a deadline: a timeout counts as an interruption"
        ctx.add_finding(Level.WARNING, at, f"{template.name}: {text}")


def anchor_given_deadline(ctx: PlaceContext, template: Template, placed: Placed, defaults: Path) -> bool:
    """Whether a template or its ``defaults`` bound each attempt; then ``explain`` shows that field."""
    for path in (template.path, defaults):
        for name, key in (("limit", "timeout"), ("deadline", _FIELD)):
            if ctx.editor.get((*path, key)) is not None:
                placed.report.anchor(name, ctx.editor, path)
                return True
        patch = read_patch(ctx, (*path, "podSpecPatch"))
        if patch.get(_FIELD) is not None:
            placed.report.anchors["deadline"] = Anchor((), partial(value_at, patch), partial(value_at, patch))
            return True
    return False


def _report_own(
    ctx: PlaceContext, template: Template, path: Path, in_force: object, wanted: int, advice: str = ""
) -> None:
    """Warn of a user's deadline that differs from the policy's timeout."""
    if str(in_force) != str(wanted):
        text = f"{_FIELD} {in_force} stays; the policy allows {seconds_text(wanted)}{advice}"
        ctx.add_finding(Level.WARNING, path, f"{template.name}: {text}")
