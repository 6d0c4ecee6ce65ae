"""Brings the checkpoint library into the components of a compiled pipeline whose source imports it.

The SDK compiles a Python component to a command that ends with a shell script, which starts the executor, and the component's
source. Lines in front of that script run in the same Python, also in a virtual environment that an earlier part of the command
made (``use_venv``). There the library is written to a temporary file that ``PYTHONPATH`` names, or found in a ConfigMap that is
mounted, or installed by pip with the index options of the component's own packages. An image that has Spotwright keeps its own. A
component that would not find what it imports is refused. Source of the shape:
``_get_command_and_args_for_lightweight_component`` in ``kfp/dsl/component_factory.py``, SDK 2.0 to 2.17.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import json
import re
import shlex
import tarfile
from collections.abc import Iterator, Mapping, Sequence

from spotwright.checkpoint_file import FILE_NAME, checkpoint_file, config_map, imports_spotwright
from spotwright.manifests.kinds.kfp.executor_pods import named_constant
from spotwright.manifests.kinds.kfp.missing_library import FUNCTION, ImportingComponent, missing_library
from spotwright.manifests.kinds.kfp.pipeline_tasks import CompiledTask, PipelinePaths, mapping_at
from spotwright.manifests.rules.checkpoint_library import (
    LIBRARY_MOUNT,
    MAKE_CONFIG_MAP,
    NO_PLACE,
    WAYS,
    Delivery,
    delivery,
    installs_spotwright,
    needs_place,
)
from spotwright.manifests.rules.context import Level, PlaceContext
from spotwright.model.policy import Policy

__all__ = ["add_library_to_components"]

_STARTS_EXECUTOR = re.compile(r"-m\s+kfp(?:\.\w+)*\.executor_main\b")
_ARCHIVE = re.compile(r"^__KFP_EMBEDDED_ARCHIVE_B64 = '([^']*)'", re.MULTILINE)
_INDEX_OPTION = re.compile(r"--(?:index-url|extra-index-url|trusted-host)\s+\S+")
_STORES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
"""Packages that the library needs for an object store, by the scheme of the checkpoint's URL."""

_MOST = 120_000
"""Characters of a container as JSON. The driver gets it as one argument, and Linux allows 131072 bytes (``MAX_ARG_STRLEN``)."""


_COPIES = 8
"""Copies of a task's command in the status of its Workflow: in inputs and outputs of the driver and of the nodes around the
task's pod, each twice where every template has retries. Counted on KFP 2.17.0 with Argo 3.7.3."""

_ROOM = 1000
"""Kilobytes of a Workflow's status (Argo's ``MAX_WORKFLOW_SIZE``). KFP's manifests set no database for what is larger, and
compressing does not help: the copies lie further apart than gzip looks back."""


def add_library_to_components(
    ctx: PlaceContext, paths: PipelinePaths, policies: Sequence[tuple[CompiledTask, Policy]]
) -> None:
    """Bring the library to each executor whose source imports it, whatever the policy of its tasks."""
    _warn_of_places(ctx, paths, policies)
    how, value = delivery(ctx.config.target)
    if how is Delivery.IMAGE:
        return
    done: dict[str, str] = {}
    for task, _ in policies:
        if task.label not in done and _add_library(ctx, paths, task, how, value):
            done[task.label] = task.path
    if done and how is Delivery.CONFIG_MAP:
        text = (
            f"{', '.join(done.values())}: the code imports spotwright.checkpoint, and its pods mount the ConfigMap "
            f"{_shared_name()}: make it once in the namespace of the runs: {MAKE_CONFIG_MAP}"
        )
        ctx.add_finding(Level.NOTE, (*paths.pipeline, "pipelineInfo"), text)
    elif done and how in (None, Delivery.EMBEDDED):
        _tell_size(ctx, paths, policies, done)


def _tell_size(
    ctx: PlaceContext,
    paths: PipelinePaths,
    policies: Sequence[tuple[CompiledTask, Policy]],
    done: Mapping[str, str],
) -> None:
    """Say that the library is in the commands of these executors, and warn where a run of them has no room for that."""
    size = len(base64.b64encode(checkpoint_file())) / 1000
    text = (
        f"{', '.join(done.values())}: the code imports spotwright.checkpoint, so its command holds the library "
        f"({size:.0f} kB); target: {{package: ...}} in spotwright.yaml names another way"
    )
    ctx.add_finding(Level.NOTE, (*paths.pipeline, "pipelineInfo"), text)
    holders = [task for task, _ in policies if task.label in done]
    in_loops = any(task.loops for task in holders)
    if in_loops or len(holders) * _COPIES * size > _ROOM:
        more = ", and each iteration of a loop again" if in_loops else ""
        text = (
            f"tasks whose commands hold the library: {len(holders)}; each puts {_COPIES * size:.0f} kB into the Workflow "
            f"that KFP makes of the pipeline{more}, and Argo takes {_ROOM} kB: a run with more of them stops without an end "
            f"(seen on KFP 2.17.0); set target: {{package: configmap}} and make the ConfigMap once in the namespace of the runs "
            f"({MAKE_CONFIG_MAP}), or {WAYS}"
        )
        ctx.add_finding(Level.WARNING, (*paths.pipeline, "pipelineInfo"), text)


def _warn_of_places(ctx: PlaceContext, paths: PipelinePaths, policies: Sequence[tuple[CompiledTask, Policy]]) -> None:
    """Warn of tasks whose saves would go with the pod, and of stores whose package the command does not install."""
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


def _add_library(ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask, how: Delivery | None, value: str) -> bool:
    """Change the command of a Python component that imports the library; warn of a container that visibly does."""
    container = (*paths.executor(task.label), "container")
    given = mapping_at(ctx, container)
    command = [str(part) for part in given.get("command") or ()]
    arguments = [str(part) for part in given.get("args") or ()]
    sources = [source for part in (*command, *arguments) for source in (part, *_archived_sources(part))]
    if not any(imports_spotwright(source) for source in sources):
        return False
    start = next((index for index, part in enumerate(command) if _STARTS_EXECUTOR.search(part)), None)
    is_installed = any(installs_spotwright(part) for part in command[:start])
    if start is not None or FUNCTION in arguments:
        component = ImportingComponent(task.path, str(given.get("image", "")), sources, start is not None, is_installed)
        problem = missing_library(component, how)
        if problem:
            raise ctx.problem((*container, "command"), problem)
    if is_installed:
        return False
    if start is None:
        text = f"{task.path}: its command imports spotwright.checkpoint, and its image must have it: {WAYS}"
        ctx.add_finding(Level.WARNING, container, text)
        return False
    if how is Delivery.CONFIG_MAP:
        _mount(ctx, paths, task)
    lines = _lines(how, value, command[:start])
    ctx.editor.replace((*container, "command", start), lines + command[start])
    size = len(json.dumps(mapping_at(ctx, container)))
    if size > _MOST:
        raise ctx.problem(
            (*container, "command"),
            f"{task.path}: with the checkpoint library its container has {size} characters, and KFP's driver takes {_MOST}: set "
            f"target: {{package: configmap}} to mount it, {{package: VERSION}} to install it with pip, or {WAYS}",
        )
    return True


def _mount(ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask) -> None:
    """Mount the ConfigMap of the namespace, once; the name as the SDK writes it, for older backends and for newer ones."""
    at = (*paths.settings(task.label), "configMapAsVolume")
    if all(entry.get("mountPath") != LIBRARY_MOUNT for entry in ctx.editor.get(at) or () if isinstance(entry, dict)):
        name = named_constant("configMapName", _shared_name(), "configMapNameParameter")
        ctx.editor.extend(at, [{"mountPath": LIBRARY_MOUNT, **name}])


def _shared_name() -> str:
    return str(config_map()["metadata"]["name"])


def _archived_sources(source: str) -> Iterator[str]:
    """The modules in the archive inside a component's source (``embedded_artifact_path``, notebooks)."""
    archive = _ARCHIVE.search(source)
    if archive is None:
        return
    with (
        contextlib.suppress(
            binascii.Error, tarfile.TarError, OSError, EOFError
        ),  # a run of the pipeline names the error
        tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive.group(1)))) as files,
    ):
        modules = (files.extractfile(member) for member in files if member.name.endswith((".py", ".ipynb")))
        yield from [module.read().decode(errors="replace") for module in modules if module]


def _lines(how: Delivery | None, value: str, before: Sequence[str]) -> str:
    """Shell lines that make the library importable. They keep an image's own ``PYTHONPATH``."""
    if how is Delivery.PATH:
        return f"export PYTHONPATH={shlex.quote(value)}${{PYTHONPATH:+:$PYTHONPATH}}\n"
    if how is Delivery.PIP:
        options = dict.fromkeys(option for part in before for option in _INDEX_OPTION.findall(part))
        pip = "PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet --no-warn-script-location --no-deps"
        return " ".join([pip, *options, shlex.quote(value)]) + "\n"
    if how is Delivery.CONFIG_MAP:
        return _MOUNTED
    return _EMBEDDED.format(name=FILE_NAME, content=base64.b64encode(checkpoint_file()).decode())


_EMBEDDED = """\
if ! python3 -c 'import spotwright.checkpoint' 2>/dev/null; then
spotwright_library=$(mktemp -d)/{name}
python3 -c 'import base64, sys; open(sys.argv[1], "wb").write(base64.b64decode(sys.argv[2]))' "$spotwright_library" {content}
export PYTHONPATH="$spotwright_library${{PYTHONPATH:+:$PYTHONPATH}}"
fi
"""

_MOUNTED = f"""\
if ! python3 -c 'import spotwright.checkpoint' 2>/dev/null; then
export PYTHONPATH="{LIBRARY_MOUNT}/{FILE_NAME}${{PYTHONPATH:+:$PYTHONPATH}}"
fi
"""
