"""The work of KFP's launcher around an attempt: inputs, the command line with its placeholders filled in, and outputs.

Placeholders of inputs and outputs have values only when an attempt starts. ``ConcatPlaceholder`` and ``IfPresentPlaceholder``
are compiled to JSON arguments. Sources, in kubeflow/pipelines: ``resolveContainerArgs`` in ``backend/src/v2/driver/util.go``,
``getPlaceholders`` in ``backend/src/v2/component/launcher_v2.go``, ``sdk/python/kfp/dsl/placeholders.py``. A list of artifacts
is written as the JSON list of their records (kubeflow/pipelines#8484); the backend leaves that placeholder unchanged.

A value that replaced a placeholder is not expanded again, even if it contains a placeholder or ``$(NAME)``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.errors import PipelineError
from spotwright.graph import ArtifactSpec, Constant, Container, PodTemplate, TaskContext, TaskSpec
from spotwright.kfp.task_settings import PLACEMENT, TaskConfig, task_config, task_config_of, with_workspace
from spotwright.kfp.values import (
    coerce,
    context_text,
    expand,
    expand_environment,
    fill,
    parse_json,
    parse_text,
    path_of,
    to_text,
    whole_numbers,
)
from spotwright.regular_files import require_regular

__all__ = [
    "ARTIFACTS",
    "EXECUTOR_OUTPUT",
    "PARAMETERS",
    "AttemptOutputs",
    "Command",
    "command_of",
    "executor_input",
    "read_outputs",
]


_LARGEST_OUTPUT = 1_000_000_000  # bytes of an output parameter, which is held in memory
_PLACEHOLDER = re.compile(r"\{\{\$(?:\.(.+?))?\}\}")
_NAMED = re.compile(r"(inputs|outputs)\.(parameters|artifacts)\[(['\"])(.+?)\3\](?:\.(\w+))?(?:\[(['\"])(.+?)\6\])?$")
_STRUCTURED = ('{"Concat":', '{"IfPresent":')


class Command(NamedTuple):
    """A filled-in command: the image, the command (empty: the image's own), its arguments, and the environment."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]


def command_of(
    task: TaskSpec, container: Container, given: Mapping[str, Any], env: Mapping[str, str], context: TaskContext
) -> Command:
    """Fill in the command, arguments and environment with which a container starts.

    ``given`` is the executor input of the attempt; ``env`` holds further variables of its pod, which ``$(NAME)`` may name.
    Raises :class:`PipelineError` for a placeholder that names no input or output of the component.
    """
    filler = _Filler(task, given, context)
    declared = expand_environment({name: filler.text(text) for name, text in container.env.items()})
    variables = {**declared, **env}
    return Command(
        image=filler.text(container.image),
        command=tuple(part for text in container.command for part in filler.parts(text, variables)),
        args=tuple(part for text in container.args for part in filler.parts(text, variables)),
        env=declared,
    )


class _Filler:
    """Fills in the texts of one attempt."""

    def __init__(self, task: TaskSpec, given: Mapping[str, Any], context: TaskContext) -> None:
        self._task, self._given, self._context = task, given, context

    def parts(self, text: str, env: Mapping[str, str]) -> list[str]:
        """The arguments that replace one compiled argument: one, or any number for ``IfPresentPlaceholder``."""
        if not text.lstrip().startswith(_STRUCTURED):
            return [self.text(text, env)]
        try:
            return self._structured(json.loads(text), env)
        except ValueError as error:
            raise self._error(f"{text[:60]!r} is not valid JSON: {error}") from error

    def _structured(self, item: Any, env: Mapping[str, str]) -> list[str]:
        if item is None:
            return []
        if isinstance(item, str):
            return [self.text(item, env)]
        if isinstance(item, list):
            return [part for each in item for part in self._structured(each, env)]
        if isinstance(item, Mapping) and "Concat" in item:
            return ["".join(self._structured(item["Concat"], env))]
        if isinstance(item, Mapping) and "IfPresent" in item:
            condition = item["IfPresent"]
            branch = "Then" if self._is_present(str(condition["InputName"])) else "Else"
            return self._structured(condition.get(branch), env)
        raise self._error(f"{json.dumps(item)[:60]} is not a placeholder")

    def _is_present(self, name: str) -> bool:
        inputs = self._given["inputs"]
        return inputs["parameterValues"].get(name) is not None or name in inputs["artifacts"]

    def text(self, text: str, env: Mapping[str, str] | None = None) -> str:
        """One text with its placeholders filled in and, with ``env``, its ``$(NAME)`` expanded."""
        pieces, at = [], 0
        for match in _PLACEHOLDER.finditer(text):
            pieces += [self._written(text[at : match.start()], env), self._value(match)]
            at = match.end()
        return "".join([*pieces, self._written(text[at:], env)])

    @staticmethod
    def _written(text: str, env: Mapping[str, str] | None) -> str:
        return text if env is None else expand(text, env)

    def _value(self, match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return json.dumps(self._given)
        if name == "outputs.output_file":
            return str(self._given["outputs"]["outputFile"])
        named = _NAMED.match(name)
        if named is None:
            known = context_text(self._context, name)
            return match.group(0) if known is None else known
        direction, kind, key, field, metadata = named.group(1, 2, 4, 5, 7)
        if kind == "artifacts":
            return self._of_artifact(direction, key, field, metadata)
        if direction == "outputs":
            output = self._given["outputs"]["parameters"].get(key)
            if output is None:
                raise self._error(f"{match.group(0)} is not one of its output parameters")
            return str(output["outputFile"])
        return self._parameter(key)

    def _parameter(self, name: str) -> str:
        values = self._given["inputs"]["parameterValues"]
        if name not in values and name not in self._task.parameter_specs:
            raise self._error(f"it reads the parameter {name!r}, which it does not receive")
        return to_text(values.get(name))

    def _of_artifact(self, direction: str, name: str, field: str | None, metadata: str | None) -> str:
        entry = self._given[direction]["artifacts"].get(name)
        if entry is None:
            if direction == "inputs" and name in self._task.artifact_specs:
                return ""  # optional and omitted
            raise self._error(f"it reads the {direction[:-1]} artifact {name!r}, which it does not have")
        if field is None:
            return to_text(entry["artifacts"])  # the list itself, which the SDK writes for Input[List[Artifact]]
        artifact = entry["artifacts"][0] if entry["artifacts"] else {}
        if field == "metadata":
            all_metadata = artifact.get("metadata") or {}
            return to_text(all_metadata.get(metadata) if metadata is not None else all_metadata)
        if field == "path":
            return path_of(str(artifact.get("uri", "")))
        return str(artifact.get(str(field), ""))

    def _error(self, what: str) -> PipelineError:
        return PipelineError(f"task {self._context.task}: cannot build its command: {what}")


EXECUTOR_OUTPUT = "executor_output.json"
PARAMETERS = "parameters"
ARTIFACTS = "artifacts"


class AttemptOutputs(NamedTuple):
    """The outputs of an attempt: values by name, artifacts as plain dicts by name, and the names of missing outputs.

    ``notes`` are the reasons why some outputs are missing. ``accepted_by_kfp``: the KFP backend would count them as complete,
    which it does if a component without output parameters exits with 0 and leaves no ``executor_output.json``; the next task
    then reads half-written artifacts (seen on KFP 2.17.0; with an output parameter the task fails there).
    """

    parameters: Mapping[str, Any]
    artifacts: Mapping[str, Mapping[str, Any]]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    accepted_by_kfp: bool = False


def read_outputs(task: TaskSpec, out_dir: str, roots: tuple[str, ...] = ()) -> AttemptOutputs:
    """Read the outputs of a task's attempt below ``out_dir``.

    ``executor_output.json`` comes first, then the file of an ``OutputPath`` parameter, as in ``collectOutputParameters`` of the
    launcher. Every declared parameter without a value is missing. Without a complete ``executor_output.json`` all declared
    outputs are missing, or, if none is declared, the file itself as ``executor_output``: the SDK writes it whenever the
    function returned, so without it the code ended otherwise (``sys.exit(0)``). Containers need not write it.

    A declared artifact without a file is *not* missing: ``uploadOutputArtifacts`` of the launcher accepts it too ("We allow
    components to not produce output files"). One with a ``custom_path`` is at its usual path already:
    :mod:`spotwright.local.supervisor.custom_paths`. An address that the code set itself must be remote, or below ``out_dir`` or
    one of the absolute ``roots`` (the run's folder); with any other the artifact is missing.
    """
    written = Path(out_dir, EXECUTOR_OUTPUT)
    output, note = _read_executor_output(written)
    if output is None and isinstance(task.executor, Container | PodTemplate) and not written.exists():
        output = {}
    if output is None:
        declared = (*task.outputs.parameters, *task.outputs.artifacts) or ("executor_output",)
        accepted = not task.outputs.parameters and not os.path.lexists(written)
        return AttemptOutputs({}, {}, declared, (note,), accepted_by_kfp=accepted)
    notes: list[str] = []
    parameters = _read_parameters(task, output.get("parameterValues"), out_dir, notes)
    artifacts = _read_artifacts(task, output.get("artifacts"), (out_dir, *roots), notes)
    missing = [name for name in task.outputs.parameters if name not in parameters]
    missing += [name for name in task.outputs.artifacts if name not in artifacts]
    return AttemptOutputs(parameters, artifacts, tuple(missing), tuple(notes))


def _read_executor_output(path: Path) -> tuple[Mapping[str, Any] | None, str]:
    try:
        output = parse_json(_read(path))
    except FileNotFoundError:
        return None, f"{EXECUTOR_OUTPUT} was not written: the function did not return"
    except (OSError, ValueError, RecursionError) as error:
        return None, f"{EXECUTOR_OUTPUT} cannot be read: {error}"
    if not isinstance(output, dict):
        return None, f"{EXECUTOR_OUTPUT} is not a JSON object"
    return output, ""


def _read(path: Path) -> bytes:
    """The content of a regular file. Raises ``OSError`` for pipes, which would never end, and for too large files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (it is a descriptor)
        require_regular(os.fstat(descriptor), _LARGEST_OUTPUT)
        return file.read(_LARGEST_OUTPUT)


def _read_parameters(task: TaskSpec, returned: Any, out_dir: str, notes: list[str]) -> dict[str, Any]:
    given = returned if isinstance(returned, Mapping) else {}
    values: dict[str, Any] = {}
    for name, spec in task.outputs.parameters.items():
        value = given.get(name)
        if value is None:
            value = _read_output_file(Path(out_dir, PARAMETERS, name), name, spec.type, notes)
        if value is not None:
            values[name] = _as_declared(value, spec.type)
    return values


def _as_declared(value: Any, kind: str) -> Any:
    try:
        return coerce(value, kind)
    except ValueError:
        return whole_numbers(value)  # the backend keeps a value of a wrong type; a task that reads it fails


def _read_output_file(path: Path, name: str, kind: str, notes: list[str]) -> Any:
    try:
        return parse_text(_read(path).decode("utf-8"), kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{name}: its file cannot be read: {error}")
        return None


def _read_artifacts(
    task: TaskSpec, returned: Any, roots: tuple[str, ...], notes: list[str]
) -> dict[str, Mapping[str, Any]]:
    given = returned if isinstance(returned, Mapping) else {}
    artifacts: dict[str, Mapping[str, Any]] = {}
    for name, spec in task.outputs.artifacts.items():
        artifact = _first(given.get(name))
        own_path = f"{roots[0]}/{ARTIFACTS}/{name}"
        uri = artifact.get("uri") if isinstance(artifact.get("uri"), str) and artifact.get("uri") else own_path
        if not any(_is_within(str(uri), root) for root in roots):
            notes.append(
                f"{name}: its address {uri} is outside the run's folder; use a remote address, or write below its path"
            )
            continue
        artifacts[name] = _artifact(name, spec, str(uri).removeprefix("file://"), artifact.get("metadata"))
    return artifacts


def _first(entry: Any) -> Mapping[str, Any]:
    entries = entry.get("artifacts") if isinstance(entry, Mapping) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, Mapping) else {}


def _artifact(name: str, spec: ArtifactSpec, uri: str, metadata: Any) -> dict[str, Any]:
    """The record of an artifact: metadata of the code is merged into the declared (``mergeRuntimeArtifacts``)."""
    own = metadata if isinstance(metadata, Mapping) else {}
    return {
        "name": name,
        "type": {"schemaTitle": spec.schema, "schemaVersion": spec.version},
        "uri": uri,
        "metadata": {**spec.metadata, **whole_numbers(own)},
    }


def _is_within(uri: str, root: str) -> bool:
    """Whether an address is remote or below a folder. Links above the artifact are followed; the artifact may be a link.

    Addresses must not contain ``..``: remote ones become paths too.
    """
    scheme, sign, rest = uri.partition("://")
    if sign and ".." in rest.split("/"):
        return False
    if sign and scheme != "file":
        return True
    parent, name = os.path.split(os.path.normpath(rest if sign else uri))
    path, folder = os.path.join(os.path.realpath(parent), name), os.path.realpath(root)  # noqa: PTH118 (may be no path at all)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


_WORKSPACE = "{{$.workspace_path}}"


def executor_input(
    task: TaskSpec,
    parameters: Mapping[str, Any],
    artifacts: Mapping[str, Any],
    out_dir: str,
    context: TaskContext,
) -> dict[str, Any]:
    """Build the executor input of one attempt.

    ``parameters`` and ``artifacts`` are the resolved values of the task's sources: constants as compiled (their placeholders
    are filled in here, also inside longer texts), ``None`` for an omitted input. An artifact is a plain dict
    or a list of them. ``out_dir`` is the absolute path below which the component writes all outputs.

    Raises :class:`PipelineError` for a value of another type than declared, and for a missing one.
    """
    values = _values(task, parameters, artifacts, context)
    return {
        "inputs": {"parameterValues": values, "artifacts": _input_artifacts(task, artifacts)},
        "outputs": {
            "parameters": {name: {"outputFile": f"{out_dir}/{PARAMETERS}/{name}"} for name in task.outputs.parameters},
            "artifacts": {
                name: {"artifacts": [_provision(name, spec, out_dir)]} for name, spec in task.outputs.artifacts.items()
            },
            "outputFile": f"{out_dir}/{EXECUTOR_OUTPUT}",
        },
    }


def _provision(name: str, spec: ArtifactSpec, out_dir: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": {"schemaTitle": spec.schema, "schemaVersion": spec.version},
        "uri": f"{out_dir}/{ARTIFACTS}/{name}",
        "metadata": dict(spec.metadata),
    }


def _values(
    task: TaskSpec, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
) -> dict[str, Any]:
    """The values of parameters: constants come last, because their placeholders may refer to the others."""
    visible = {name: value for name, value in parameters.items() if not name.startswith(PLACEMENT)}
    constants = [name for name in visible if isinstance(task.parameters.get(name), Constant)]
    values = {name: _coerced(task, name, value) for name, value in visible.items() if name not in constants}
    values = {name: value for name, value in values.items() if value is not None}

    others = dict(values)
    for name in constants:
        values[name] = _coerced(task, name, fill(visible[name], others, artifacts, context))
    values = {name: _with_workspace(value, context.workspace) for name, value in values.items()}
    config = task_config_of(task)
    if config.inputs:
        values |= dict.fromkeys(config.inputs, _config(config, values, context))
    for name, spec in task.parameter_specs.items():
        if name not in values and not spec.optional and not spec.has_default:
            raise PipelineError(f"task {context.task}: its input {name} got no value, and it has no default")
    return values


def _config(config: TaskConfig, values: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """The value of a ``dsl.TaskConfig`` input; it replaces any other value of that input."""
    if any(context.workspace and isinstance(value, str) and context.workspace in value for value in values.values()):
        return with_workspace(config.values, config.passed, context.run)
    return dict(config.values) or task_config(config.passed, {}, {}, {})


def _with_workspace(value: Any, workspace: str) -> Any:
    """The value with the workspace's placeholder filled in: a text from a nested pipeline may still hold it."""
    return value.replace(_WORKSPACE, workspace) if workspace and isinstance(value, str) else value


def _coerced(task: TaskSpec, name: str, value: Any) -> Any:
    """The value of an input as its declared type. Raises :class:`PipelineError`."""
    spec = task.parameter_specs.get(name)
    if spec is None or value is None:
        return value
    try:
        coerced = coerce(value, spec.type)
        spec.check(coerced)
    except ValueError as error:
        raise PipelineError(f"task {task.name}: its input {name}: {error}") from error
    return coerced


def _input_artifacts(task: TaskSpec, artifacts: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in artifacts.items():
        if value is not None:
            given[name] = {"artifacts": [dict(item) for item in (value if isinstance(value, list) else [value])]}
    for name, spec in task.artifact_specs.items():
        if name not in given and not spec.optional:
            raise PipelineError(f"task {task.name}: its input artifact {name} got no value")
    return given
