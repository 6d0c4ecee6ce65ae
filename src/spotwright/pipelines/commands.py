"""The command line of a container component: its command and arguments with every placeholder filled in.

A component says its command once, and what stands in it for inputs and outputs is known only when an attempt starts.
``ConcatPlaceholder`` and ``IfPresentPlaceholder`` are compiled to arguments that are JSON texts. Sources, in
kubeflow/pipelines: ``resolveContainerArgs`` in ``backend/src/v2/driver/util.go``, ``getPlaceholders`` in
``backend/src/v2/component/launcher_v2.go``, ``sdk/python/kfp/dsl/placeholders.py``. A list of artifacts is written as the JSON
list of what is known of each (kubeflow/pipelines#8484); the backend leaves that placeholder as it is.

What stands for a value is never looked at again: a value that holds a placeholder or ``$(NAME)`` arrives as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.errors import PipelineError
from spotwright.pipelines.expansion import expand, expand_environment
from spotwright.pipelines.placeholders import Context
from spotwright.pipelines.remote import path_of
from spotwright.pipelines.spec import Container, TaskSpec
from spotwright.pipelines.values import to_text

__all__ = ["Command", "command_of"]

_PLACEHOLDER = re.compile(r"\{\{\$(?:\.(.+?))?\}\}")
_NAMED = re.compile(r"(inputs|outputs)\.(parameters|artifacts)\[(['\"])(.+?)\3\](?:\.(\w+))?(?:\[(['\"])(.+?)\6\])?$")
_STRUCTURED = ('{"Concat":', '{"IfPresent":')


@dataclass(frozen=True, slots=True)
class Command:
    """What is executed: the image, the command (empty: the image's own), its arguments, and the environment."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]


def command_of(
    task: TaskSpec, container: Container, given: Mapping[str, Any], env: Mapping[str, str], context: Context
) -> Command:
    """Fill in what a container is started with.

    ``given`` is the executor input of the attempt; ``env`` holds further variables of its pod, which ``$(NAME)`` may name.
    Raises :class:`PipelineError` for a placeholder that names no input or output of the component.
    """
    filling = _Filling(task, given, context)
    declared = expand_environment({name: filling.text(text) for name, text in container.env.items()})
    known = {**declared, **env}
    return Command(
        image=filling.text(container.image),
        command=tuple(part for text in container.command for part in filling.parts(text, known)),
        args=tuple(part for text in container.args for part in filling.parts(text, known)),
        env=declared,
    )


class _Filling:
    """Fills the texts of one attempt."""

    def __init__(self, task: TaskSpec, given: Mapping[str, Any], context: Context) -> None:
        self._task, self._given, self._context = task, given, context

    def parts(self, text: str, env: Mapping[str, str]) -> list[str]:
        """The arguments that one written argument stands for: one, or of a condition any number."""
        if not text.lstrip().startswith(_STRUCTURED):
            return [self.text(text, env)]
        try:
            return self._structured(json.loads(text), env)
        except ValueError as error:
            raise self._error(f"{text[:60]!r} is no JSON: {error}") from error

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
            found = item["IfPresent"]
            return self._structured(found.get("Then" if self._is_present(str(found["InputName"])) else "Else"), env)
        raise self._error(f"{json.dumps(item)[:60]} is no placeholder")

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
        found = _NAMED.match(name)
        if found is None:
            known = self._context.value(name)
            return match.group(0) if known is None else known
        where, kind, key, field, metadata = found.group(1, 2, 4, 5, 7)
        if kind == "artifacts":
            return self._of_artifact(where, key, field, metadata)
        if where == "outputs":
            output = self._given["outputs"]["parameters"].get(key)
            if output is None:
                raise self._error(f"{match.group(0)} names no output parameter of it")
            return str(output["outputFile"])
        return self._parameter(key)

    def _parameter(self, name: str) -> str:
        values = self._given["inputs"]["parameterValues"]
        if name not in values and name not in self._task.parameter_specs:
            raise self._error(f"it reads the parameter {name!r}, which it is not given")
        return to_text(values.get(name))

    def _of_artifact(self, where: str, name: str, field: str | None, metadata: str | None) -> str:
        entry = self._given[where]["artifacts"].get(name)
        if entry is None:
            if where == "inputs" and name in self._task.artifact_specs:
                return ""  # optional, and left out
            raise self._error(f"it reads the {where[:-1]} artifact {name!r}, which it does not have")
        if field is None:
            return to_text(entry["artifacts"])  # the list itself, which the SDK writes for Input[List[Artifact]]
        artifact = entry["artifacts"][0] if entry["artifacts"] else {}
        if field == "metadata":
            found = artifact.get("metadata") or {}
            return to_text(found.get(metadata) if metadata is not None else found)
        if field == "path":
            return path_of(str(artifact.get("uri", "")))
        return str(artifact.get(str(field), ""))

    def _error(self, what: str) -> PipelineError:
        return PipelineError(f"task {self._context.task}: its command cannot be made: {what}")
