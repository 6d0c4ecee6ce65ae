"""Compiled pipelines of Kubeflow Pipelines (KFP IR): the two documents of a file, or the PipelineVersion that holds both.

Settings belong to executors, retries to tasks, and policies to the paths of tasks in a run. Each executor gets the placement of
its tasks. The configuration's policies are stored in the file, so that its meaning does not depend on one. Components whose
source imports the checkpoint library get it with their command; components that import Spotwright and would certainly lack it
are refused.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from spotwright.checkpoint_file import (
    FILE_NAME,
    PYTHON,
    checkpoint_file,
    config_map_name,
    imported_names,
    imports_spotwright,
    names_not_in_file,
    uses_pytorch,
)
from spotwright.kfp.kfp_settings import runtime_field
from spotwright.kfp.placed_record import POLICIES
from spotwright.kinds.kfp_tasks import (
    CompiledTask,
    PipelinePaths,
    admin_notes,
    after_interruption,
    backend_of,
    claim_of,
    later_conditions,
    list_tasks,
    lost_nodes_note,
    mapping_at,
    merge_warnings,
    named_constant,
    on_demand_from,
    on_demand_text,
    place_executor,
    policy_of,
    read_work,
    stock_warning,
    write_retries,
)
from spotwright.kinds.kind import Kind, group_of
from spotwright.model.policy import BUILT_IN, Layer, Policy, policy_mapping
from spotwright.placing.context import Group, Level, PlaceContext, RoleReport
from spotwright.placing.document_pair import KIND, PIPELINE, PLATFORMS
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import (
    BY_CONTROLLER,
    POD_FACTS,
    Enforcer,
    Fact,
    Mechanism,
    in_object,
    nothing,
)
from spotwright.placing.environment import (
    LIBRARY_MOUNT,
    LIGHT,
    MAKE_CONFIG_MAP,
    NO_PLACE,
    WAYS,
    WAYS_TO_ALL,
    Delivery,
    delivery,
    installs_only_light,
    installs_spotwright,
    library_lines,
    needs_place,
    starts_executor,
)
from spotwright.placing.patch import value_at
from spotwright.placing.pods import Placed, no_pool_fits
from spotwright.scheduling.ladder import Ladder, build

__all__ = ["FUNCTION", "KINDS", "ImportingComponent", "add_library_to_components", "missing_library"]


_KFP_LIMIT = "task:retryPolicy.maxRetryCount"
_KFP_WAITS: Mapping[str, Fact] = {
    "interruptions.backoff": in_object("task:retryPolicy.backoffDuration"),
    "interruptions.factor": in_object("task:retryPolicy.backoffFactor"),
    "interruptions.max_backoff": nothing("backoffMaxDuration of KFP is a window over all attempts"),
    **dict.fromkeys(("errors.backoff", "errors.factor", "errors.max_backoff"), nothing("KFP has one backoff for both")),
}
_KFP_GRACE = "which gives spotwright.checkpoint this time before SIGTERM; code has about 0.3s after it"
_KFP_AFFINITY = in_object("settings:nodeAffinity", name="required node affinity")
_FACTS: Mapping[str, Fact] = {
    **POD_FACTS,
    **_KFP_WAITS,
    "spot: require": _KFP_AFFINITY,
    "spot: never": _KFP_AFFINITY,
    "spot: prefer": in_object("settings:nodeAffinity", "best effort", name="preferred node affinity"),
    "ladder": in_object("settings:nodeAffinity", "these pools, in any order", name="required node affinity"),
    "interruptions.max": in_object(_KFP_LIMIT, "errors count there too, lost nodes do not"),
    "errors.retries: 0": in_object(
        _KFP_LIMIT, "interruptions count there too", absent=Fact(Enforcer.KIND, note="KFP, by default")
    ),
    "errors.retries": in_object(_KFP_LIMIT, "interruptions count there too"),
    "fall_back_after": in_object(
        "fallback:nodeAffinity", "counts errors too, no lost nodes", name="nodeAffinity", absent=BY_CONTROLLER
    ),
    "pending_timeout": BY_CONTROLLER,
    "grace_period": replace(BY_CONTROLLER, note=_KFP_GRACE, is_reported=True),
    "timeout": in_object("settings:activeDeadlineSeconds", "for each attempt"),
    "checkpoint": in_object("settings:podMetadata", "for code that reads it", name="SPOTWRIGHT_CHECKPOINT"),
    "image_pull_secrets": in_object("settings:imagePullSecret"),
}

_KFP = Mechanism("`target.kfp` up to 2.16, or `target.kfp_retries: always`", _FACTS)

_KFP_STOCK = Mechanism(
    "2.17 as it is installed, or no `target.kfp`",
    {
        **_FACTS,
        "interruptions.max": nothing("a stock KFP 2.17 retries no drain and counts no lost node", is_reported=True),
        "errors.retries: 0": Fact(Enforcer.KIND, note="a stock KFP 2.17, for every task"),
        "fall_back_after": in_object(
            "fallback:nodeAffinity", "counts Argo's Errors alone", name="nodeAffinity", absent=BY_CONTROLLER
        ),
        "errors.retries": nothing("a stock KFP 2.17 retries no error of the code", is_reported=True),
    },
)


FUNCTION = "--function_to_execute"
"""The argument that only Python components have."""

_PYTHON_IMAGE = re.compile(r"(?:^|/)python:(\d+)\.(\d+)(?![\d])")
"""The official Python image, also from a mirror, with the version in its tag."""


@dataclass(frozen=True, slots=True)
class ImportingComponent:
    """A Python component whose source imports Spotwright.

    ``sources``: its source and the modules that are packed into it. ``has_known_shape``: whether lines can be added in front of
    the script that starts the executor. ``is_installed``: whether its ``packages_to_install`` name Spotwright; ``is_light``:
    ``spotwright-train`` alone.
    """

    path: str
    image: str
    sources: Sequence[str]
    has_known_shape: bool
    is_installed: bool
    is_light: bool


def missing_library(component: ImportingComponent, how: Delivery | None, value: str) -> str:
    """Why the code would raise an ImportError, with remedies. Empty without a sign of it."""
    names = {name for source in component.sources for name in imported_names(source)}
    if not names or how is Delivery.IMAGE:
        return ""
    old = _old_python(component.image)
    if old:
        least = ".".join(map(str, PYTHON))
        return (
            f"{component.path}: its code imports spotwright, which needs Python {least}, and its image {component.image} has "
            f"Python {old}: set base_image to python:{least} or later"
        )
    if not component.is_installed and not component.has_known_shape:
        return (
            f"{component.path}: its code imports spotwright, and its command has a shape that cannot be extended: "
            f"add {LIGHT} to its packages_to_install, or {WAYS}"
        )
    brought = "" if component.is_installed else value
    is_whole = not component.is_light if component.is_installed else how in (Delivery.PATH, Delivery.PIP)
    lacking = [] if is_whole and not brought.startswith(LIGHT) else names_not_in_file(names)
    if lacking:
        return (
            f"{component.path}: its code imports {', '.join(lacking)}, and the checkpoint library ({LIGHT}) "
            f"does not have that: add spotwright to its packages_to_install, or {WAYS_TO_ALL}"
        )
    return ""


def _old_python(image: str) -> str:
    """The version of Python in the image's tag, if it is too old for Spotwright."""
    version = _PYTHON_IMAGE.search(image)
    if version is None or (int(version[1]), int(version[2])) >= PYTHON:
        return ""
    return f"{version[1]}.{version[2]}"


_ARCHIVE = re.compile(r"^__KFP_EMBEDDED_ARCHIVE_B64 = '([^']*)'", re.MULTILINE)
_INDEX_OPTION = re.compile(r"--(?:index-url|extra-index-url|trusted-host)\s+\S+")
_STORES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
"""Packages for object stores, by the scheme of the checkpoint's URL."""

_MOST = 120_000
"""Characters of a container as JSON. The driver gets it as one argument, and Linux allows 131072 bytes (``MAX_ARG_STRLEN``)."""


_COPIES = 8
"""Copies of a task's command in the status of its Workflow: in inputs and outputs of the driver and of the nodes around the
task's pod, each twice where every template has retries. Counted on KFP 2.17.0 with Argo 3.7.3."""

_ROOM = 1000
"""Kilobytes of a Workflow's status (Argo's ``MAX_WORKFLOW_SIZE``). KFP's manifests set no database for larger ones, and
compression does not help: the copies are further apart than gzip's window."""


def add_library_to_components(
    ctx: PlaceContext, paths: PipelinePaths, policies: Sequence[tuple[CompiledTask, Policy]]
) -> None:
    """Add the library to each executor whose source imports it, whatever the policy of its tasks."""
    _warn_of_places(ctx, paths, policies)
    how, value = delivery(ctx.config.target)
    if how is Delivery.IMAGE:
        return
    done: dict[str, str] = {}
    sizes: dict[str, float] = {}
    for task, _ in policies:
        if task.label not in done and (size := _add_library(ctx, paths, task, how, value)) is not None:
            done[task.label], sizes[task.label] = task.path, size
    if done and how is Delivery.CONFIG_MAP:
        text = (
            f"{', '.join(done.values())}: the code imports spotwright.checkpoint, and its pods mount the ConfigMap "
            f"{config_map_name()}: make it once in the namespace of the runs: {MAKE_CONFIG_MAP}"
        )
        ctx.add_finding(Level.NOTE, (*paths.pipeline, "pipelineInfo"), text, to_do=True)
    elif done and how in (None, Delivery.EMBEDDED):
        _tell_size(ctx, paths, policies, done, sizes)


def _tell_size(
    ctx: PlaceContext,
    paths: PipelinePaths,
    policies: Sequence[tuple[CompiledTask, Policy]],
    done: Mapping[str, str],
    sizes: Mapping[str, float],
) -> None:
    """Report that the library is in these executors' commands, and warn if a run has no room for it."""
    size = max(sizes.values())
    text = (
        f"{', '.join(done.values())}: the code imports spotwright.checkpoint, so its command holds the library "
        f"({size:.0f} kB); target: {{package: ...}} in spotwright.yaml names another way"
    )
    ctx.add_finding(Level.NOTE, (*paths.pipeline, "pipelineInfo"), text)
    holders = [task for task, _ in policies if task.label in done]
    in_loops = any(task.loops for task in holders)
    if in_loops or _COPIES * sum(sizes[task.label] for task in holders) > _ROOM:
        more = ", and each iteration of a loop again" if in_loops else ""
        text = (
            f"tasks whose commands hold the library: {len(holders)}; each puts {_COPIES * size:.0f} kB into the Workflow "
            f"that KFP makes of the pipeline{more}, and Argo takes {_ROOM} kB: a run with more of them stops without an end "
            f"(seen on KFP 2.17.0); set target: {{package: configmap}} and make the ConfigMap once in the namespace of the runs "
            f"({MAKE_CONFIG_MAP}), or {WAYS}"
        )
        ctx.add_finding(Level.WARNING, (*paths.pipeline, "pipelineInfo"), text)


def _warn_of_places(ctx: PlaceContext, paths: PipelinePaths, policies: Sequence[tuple[CompiledTask, Policy]]) -> None:
    """Warn of tasks whose saves would be lost with the pod, and of stores whose package is not installed."""
    for task, policy in policies:
        if policy.spot is None:
            continue
        container = (*paths.executor(task.label), "container")
        command = "\n".join(str(part) for part in mapping_at(ctx, container).get("command") or ())
        if not needs_place(command):
            continue
        package = _STORES.get((policy.checkpoint or "").partition("://")[0], "")
        if policy.checkpoint is None:
            ctx.add_finding(Level.WARNING, task.at, f"{task.path}: {NO_PLACE}")
        elif package and package not in command:
            text = (
                f"{task.path}: {policy.checkpoint} needs the package {package} in its image or in packages_to_install"
            )
            ctx.add_finding(Level.WARNING, task.at, text)


def _add_library(
    ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask, how: Delivery | None, value: str
) -> float | None:
    """Change the command of a Python component that imports the library; warn of a container that visibly does.

    Returns the kilobytes of the library in the command, 0 if it comes another way; ``None`` without a change.
    """
    container = (*paths.executor(task.label), "container")
    given = mapping_at(ctx, container)
    command, arguments = (
        [str(part) for part in words] if isinstance(words := given.get(field), list) else []
        for field in ("command", "args")
    )
    sources = [source for part in (*command, *arguments) for source in (part, *_archived_sources(part))]
    if not any(imports_spotwright(source) for source in sources):
        return None
    start = next((index for index, part in enumerate(command) if starts_executor(part)), None)
    is_installed = any(installs_spotwright(part) for part in command[:start])
    is_light = installs_only_light("\n".join(command[:start]))
    if start is not None or FUNCTION in arguments:
        component = ImportingComponent(
            task.path, str(given.get("image", "")), sources, start is not None, is_installed, is_light
        )
        problem = missing_library(component, how, value)
        if problem:
            raise ctx.problem((*container, "command"), problem)
    if is_installed:
        return None
    if start is None:
        text = f"{task.path}: its command imports spotwright.checkpoint, and its image must have it: {WAYS}"
        ctx.add_finding(Level.WARNING, container, text)
        return None
    if how is Delivery.CONFIG_MAP:
        _mount(ctx, paths, task)
    library = _library(sources) if how in (None, Delivery.EMBEDDED) else ""
    lines = _lines(how, value, command[:start], library)
    ctx.editor.replace((*container, "command", start), lines + command[start])
    size = len(json.dumps(mapping_at(ctx, container)))
    if size > _MOST:
        raise ctx.problem(
            (*container, "command"),
            f"{task.path}: with the checkpoint library its container has {size} characters, and KFP's driver takes {_MOST}: set "
            f"target: {{package: configmap}} to mount it, {{package: VERSION}} to install it with pip, or {WAYS}",
        )
    return len(library) / 1000


def _mount(ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask) -> None:
    """Mount the ConfigMap of the namespace, once; the name as the SDK writes it, for older backends and for newer ones."""
    at = (*paths.settings(task.label), "configMapAsVolume")
    if all(entry.get("mountPath") != LIBRARY_MOUNT for entry in ctx.editor.get(at) or () if isinstance(entry, dict)):
        name = named_constant("configMapName", config_map_name(), "configMapNameParameter")
        ctx.editor.extend(at, [{"mountPath": LIBRARY_MOUNT, **name}])


def _archived_sources(source: str) -> Iterator[str]:
    """The modules in the archive inside a component's source (``embedded_artifact_path``, notebooks)."""
    archive = _ARCHIVE.search(source)
    if archive is None:
        return
    with (
        contextlib.suppress(
            binascii.Error, tarfile.TarError, OSError, EOFError
        ),  # a run of the pipeline reports the error
        tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive.group(1)))) as files,
    ):
        modules = (files.extractfile(member) for member in files if member.name.endswith((".py", ".ipynb")))
        yield from [module.read().decode(errors="replace") for module in modules if module]


def _library(sources: Iterable[str]) -> str:
    """The library's file for a program with these sources, as an argument of a command."""
    content = checkpoint_file(for_pytorch=any(uses_pytorch(source) for source in sources), compressed=False)
    return base64.b64encode(zlib.compress(content, 9)).decode()


def _lines(how: Delivery | None, value: str, before: Sequence[str], library: str) -> str:
    """Shell lines that make the library importable."""
    if how in (None, Delivery.EMBEDDED):
        return _EMBEDDED.format(name=FILE_NAME, content=library)
    return library_lines(how, value, list(dict.fromkeys(one for part in before for one in _INDEX_OPTION.findall(part))))


_EMBEDDED = """\
if ! python3 -c 'import spotwright.checkpoint' 2>/dev/null; then
spotwright_library=$(mktemp -d)/{name}
python3 -c '
import base64, sys, zlib
open(sys.argv[1], "wb").write(zlib.decompress(base64.b64decode(sys.argv[2])))
' "$spotwright_library" {content}
export PYTHONPATH="$spotwright_library${{PYTHONPATH:+:$PYTHONPATH}}"
fi
"""


_FROZEN = (
    "a run keeps the version with which it was started; a change applies to runs of the next version that is uploaded"
)


def _place_pair(ctx: PlaceContext) -> None:
    if ctx.editor.document.file.endswith(".json") and not ctx.options.only_explain:
        text = "placement needs a second document, which JSON cannot have: compile to YAML"
        raise ctx.problem(PIPELINE, text)
    _place(ctx, PipelinePaths(PIPELINE, PLATFORMS))


def _place_version(ctx: PlaceContext) -> None:
    if isinstance(ctx.get("spec", "pipelineSpec"), dict):
        _place(ctx, PipelinePaths(ctx.at("spec", "pipelineSpec"), ctx.at("spec", "platformSpec", "platforms")))


def _place(ctx: PlaceContext, paths: PipelinePaths) -> None:
    policies = [(task, policy_of(ctx, paths, task)) for task in list_tasks(ctx, paths)]
    by_executor: dict[str, list[tuple[CompiledTask, Policy]]] = {}
    for task, policy in policies:
        by_executor.setdefault(task.label, []).append((task, policy))
    reports = {id(task): _report(ctx, task, policy) for task, policy in policies}
    ctx.roles += reports.values()
    on_spot = False
    merges = merge_warnings(ctx, paths)
    for label, text in merges.items():
        ctx.add_finding(Level.WARNING, paths.executor(label), text)
    for label, uses in by_executor.items():
        _refuse_differing_policies(ctx, uses, merges.get(label, ""))
        if any(policy.spot is not None for _, policy in uses):
            on_spot |= _place_uses(ctx, paths, uses, [reports[id(task)] for task, _ in uses])
    if ctx.writes(Group.CHECKPOINT):
        _tell_claims(ctx, policies)
    _warn_of_void_retries(ctx, paths, [task for task, policy in policies if policy.spot is not None])
    if ctx.writes(Group.CHECKPOINT):
        add_library_to_components(ctx, paths, policies)
    _store_policies(ctx, paths, policies)
    if on_spot and not ctx.options.has_webhook:
        ctx.add_finding(Level.NOTE, (*paths.pipeline, "pipelineInfo"), lost_nodes_note(backend_of(ctx.config.target)))
        text = (
            "a compiled pipeline cannot set a grace period: without the Spotwright controller the policy's grace_period has no "
            "effect, and the code has about 0.3s after SIGTERM (seen on KFP 2.17.0), so it has to save checkpoints as it goes; "
            "the controller gives code with spotwright.checkpoint the grace period before SIGTERM"
        )
        is_set = any(policy.sources.get("grace_period") != BUILT_IN.source for _, policy in policies)
        ctx.add_finding(Level.WARNING if is_set else Level.NOTE, (*paths.pipeline, "pipelineInfo"), text)


def _tell_claims(ctx: PlaceContext, policies: Sequence[tuple[CompiledTask, Policy]]) -> None:
    """Report the claims for these tasks' checkpoints, and whether pods on several nodes mount them at the same time."""
    users: dict[str, list[CompiledTask]] = {}
    for task, policy in policies:
        claim, _ = claim_of(policy.checkpoint or "")
        if policy.spot is not None and claim:
            users.setdefault(claim, []).append(task)
    given = {value_at(one, ("metadata", "name")): one for one in ctx.others("PersistentVolumeClaim")}
    for claim, tasks in users.items():
        modes = value_at(given.get(claim), ("spec", "accessModes")) or ()
        if claim in given and ("ReadWriteMany" in modes or not _is_shared(tasks)):
            continue
        paths = list(dict.fromkeys(task.path for task in tasks))
        shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        text = f"the claim {claim}, for the checkpoints of {shown}, has to be in the namespace of the runs"
        if _is_shared(tasks):
            who = "iterations of a loop" if any(task.loops for task in tasks) else f"pods of {len(paths)} tasks"
            text += f", and {who} mount it, each on its node: make it with accessModes [ReadWriteMany]"
        ctx.add_finding(Level.NOTE, tasks[0].at, text, to_do=True)


def _is_shared(tasks: Sequence[CompiledTask]) -> bool:
    """Whether several pods of these tasks may run at the same time."""
    return any(task.loops for task in tasks) or len({task.path for task in tasks}) > 1


def _warn_of_void_retries(ctx: PlaceContext, paths: PipelinePaths, tasks: Sequence[CompiledTask]) -> None:
    """Warn, once for a pipeline, if the backend's installation does not honour the pipeline's retries."""
    backend = backend_of(ctx.config.target)
    retried = [task for task in tasks if mapping_at(ctx, (*task.at, "retryPolicy")).get("maxRetryCount")]
    if backend.is_stock and retried and not ctx.options.has_webhook:
        ctx.add_finding(
            Level.WARNING, (*paths.pipeline, "pipelineInfo"), stock_warning(backend, len(retried)), to_do=True
        )


def _report(ctx: PlaceContext, task: CompiledTask, policy: Policy) -> RoleReport:
    line = ctx.editor.document.line(task.at)
    report = RoleReport("task", task.path, line, policy, (), {}, frozen=_FROZEN if policy.spot is not None else "")
    report.on_demand_reason = task.on_demand_reason if policy.sources.get("spot") == task.on_demand_reason else ""
    return report


def _refuse_differing_policies(ctx: PlaceContext, uses: Sequence[tuple[CompiledTask, Policy]], merge: str) -> None:
    """Refuse tasks with one executor and different policies: it has one placement. Policies without ``spot`` may differ."""
    (first, first_policy), *others = uses
    for task, policy in others:
        differing = [
            field.name
            for field in fields(Policy)
            if field.name != "sources" and getattr(policy, field.name) != getattr(first_policy, field.name)
        ]
        if differing and (policy.spot is not None or first_policy.spot is not None):
            raise ctx.problem(
                task.at,
                f"the tasks {first.path} and {task.path} share the executor {task.label}, and their policies differ in "
                f"{', '.join(differing)}: {merge or 'set the same policy for both'}",
            )


def _place_uses(
    ctx: PlaceContext, paths: PipelinePaths, uses: Sequence[tuple[CompiledTask, Policy]], reports: Sequence[RoleReport]
) -> bool:
    """Place one executor and write the retries of its tasks; returns whether they may run on spot."""
    tasks, policy = [task for task, _ in uses], uses[0][1]
    settings = paths.settings(tasks[0].label)
    parameter = runtime_field(mapping_at(ctx, settings))
    if parameter:
        text = f"a parameter decides at run time where it runs ({parameter}), so it is left alone"
        ctx.add_finding(Level.WARNING, settings, f"{tasks[0].path}: {text}")
        for report in reports:
            report.after_interruption = text
        return False
    work = read_work(ctx, paths, tasks[0].label)
    ladder = build(work, policy, ctx.config.pools)
    if not ladder.rungs:
        at = _conflicting_path(ctx, paths, tasks[0], ladder)
        raise no_pool_fits(ctx, at, tasks[0].path, tasks[0].path, policy, ladder)
    for text in ladder.warnings(tasks[0].path):
        ctx.add_finding(Level.WARNING, tasks[0].at, f"{tasks[0].path}: {text}")
    tries: dict[Path, int] = {}
    for task, report in zip(tasks, reports, strict=True):
        placed = _placed(policy, ladder, report)
        if task.at not in tries:
            tries[task.at] = write_retries(ctx, task, placed)
    placed, backend = _placed(policy, ladder, reports[0]), backend_of(ctx.config.target)
    first = on_demand_from(ctx, paths, backend, tasks, tries, placed)
    for task, report in zip(tasks, reports, strict=True):
        _anchor(ctx, report, task, settings, falls_back=first is not None)
    for task, report in zip(tasks, reports, strict=True) if placed.on_spot else ():
        moved = on_demand_text(backend, first)
        effect = after_interruption(backend, tries[task.at])
        report.after_interruption = f"{effect}; {moved}" if moved else effect
        report.notes = admin_notes(backend, ctx.config.pools.values())
    later = later_conditions(ctx, backend, placed, first, max(tries.values()))
    place_executor(ctx, paths, tasks, placed, later)
    return placed.on_spot


def _anchor(ctx: PlaceContext, report: RoleReport, task: CompiledTask, settings: Path, *, falls_back: bool) -> None:
    """Report the paths of the fields that enforce a task's policy."""
    report.on_spot = any(ctx.config.pools[name].is_spot for name in report.pools)
    report.mechanism = _KFP_STOCK if backend_of(ctx.config.target).is_stock else _KFP
    report.anchor("task", ctx.editor, task.at)
    report.anchor("settings", ctx.editor, settings)
    if falls_back:
        report.anchor("fallback", ctx.editor, settings)


def _conflicting_path(ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask, ladder: Ladder) -> Path:
    """The field of the pipeline that contradicts the policy; the task itself if several fields do."""
    reasons, settings = " ".join(ladder.refusals.values()), paths.settings(task.label)
    for refusal, path in (
        ("node selector asks for", (*settings, "nodeSelector")),
        ("required node affinity", (*settings, "nodeAffinity")),
        ("it asks for", (*paths.executor(task.label), "container", "resources")),
    ):
        if refusal in reasons and ctx.editor.get(path) is not None:
            return path
    return task.at


def _placed(policy: Policy, ladder: Ladder, report: RoleReport) -> Placed:
    report.pools = tuple(name for rung in ladder.rungs for name in rung.pools)
    report.refusals, report.not_judged = ladder.refusals, ladder.not_judged
    return Placed(policy, ladder, report)


def _store_policies(ctx: PlaceContext, paths: PipelinePaths, policies: Sequence[tuple[CompiledTask, Policy]]) -> None:
    """Store the configuration's policy of each task, where it is in force."""
    stored = {}
    for task, policy in policies:
        default, tasks = ctx.config.layers_for(task.path)
        configured = _merged([*default, *tasks])
        values = {name: value for name, (value, source) in configured.items() if policy.sources.get(name) == source}
        if values and policy.spot is not None:
            stored[task.path] = policy_mapping(values)
    if stored and not ctx.config.is_built_in:
        ctx.editor.add((*paths.platforms, *POLICIES[1:]), json.dumps(stored, separators=(",", ":")))


def _merged(layers: Sequence[Layer]) -> dict[str, tuple[Any, str]]:
    return {name: (value, layer.source) for layer in layers for name, value in layer.values.items()}


_MECHANISMS = (_KFP, _KFP_STOCK)

KINDS = (
    Kind(
        group=group_of(KIND[0]),
        name=KIND[1],
        place=_place_pair,
        mechanisms=_MECHANISMS,
        page="kfp",
        notes=(
            "The pipeline and its platform settings are placed together. Tasks are named by their path "
            "(`inner/train`); tasks that share an executor need the same policy. Importers, `CreatePVC` and "
            "driver pods cannot be placed in a pipeline: `explain` prints the admin's settings.\n"
            "`maxRetryCount` is `interruptions.max` + `errors.retries`: KFP has one count. Set `target.kfp`: the "
            "stock manifests of 2.17 retry neither errors nor drained pods, unless the admin sets the line that "
            "`place` prints (`kfp_retries: always`). A lost node is always tried again, uncounted.\n"
            "From 2.15 on, attempts after `fall_back_after` retries require on-demand.\n"
            "The code lives about 0.3 s after SIGTERM. With the controller, code that uses "
            "`spotwright.checkpoint` gets the grace period first.\n"
            "More than two tasks that carry the checkpoint library can exceed Argo's 1 MB: set `target: {package: "
            "...}`."
        ),
        tried=("Seen on KFP 2.16.1 (Argo 3.7.3) and 2.17.0 (Argo 4.0.5)."),
    ),
    Kind(
        group="pipelines.kubeflow.org", name="PipelineVersion", place=_place_version, mechanisms=_MECHANISMS, page="kfp"
    ),
)
