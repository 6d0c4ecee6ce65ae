"""Make the command line of a container component: its command and arguments with every placeholder filled in.

The placeholders of inputs and outputs have values only when an attempt starts.
``ConcatPlaceholder`` and ``IfPresentPlaceholder`` are compiled to arguments that are JSON texts. Sources, in
kubeflow/pipelines: ``resolveContainerArgs`` in ``backend/src/v2/driver/util.go``, ``getPlaceholders`` in
``backend/src/v2/component/launcher_v2.go``, ``sdk/python/kfp/dsl/placeholders.py``. A list of artifacts is written as the JSON
list of their records (kubeflow/pipelines#8484); the backend leaves that placeholder as it is.

A value that replaced a placeholder is not expanded again: one that holds a placeholder or ``$(NAME)`` arrives as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from spotwright.errors import PipelineError
from spotwright.graph import Container, TaskContext, TaskSpec
from spotwright.pipelines.values.artifact_paths import path_of
from spotwright.pipelines.values.expansion import expand, expand_environment
from spotwright.pipelines.values.parameter_values import to_text
from spotwright.pipelines.values.placeholders import context_text

__all__ = ["Command", "command_of"]

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
                raise self._error(f"{match.group(0)} names none of its output parameters")
            return str(output["outputFile"])
        return self._parameter(key)

    def _parameter(self, name: str) -> str:
        values = self._given["inputs"]["parameterValues"]
        if name not in values and name not in self._task.parameter_specs:
            raise self._error(f"it reads the parameter {name!r}, which it is not given")
        return to_text(values.get(name))

    def _of_artifact(self, direction: str, name: str, field: str | None, metadata: str | None) -> str:
        entry = self._given[direction]["artifacts"].get(name)
        if entry is None:
            if direction == "inputs" and name in self._task.artifact_specs:
                return ""  # optional, and left out
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
        return PipelineError(f"task {self._context.task}: its command cannot be made: {what}")
