"""Compiled pipeline files: KFP's YAML or JSON, one document or two, checked against the protobuf messages.

The messages come from the ``kfp-pipeline-spec`` distribution. Its module is loaded by its place, because ``import kfp``
costs 80 MB and 300 ms, and the switch that avoids this would cripple the user's own ``import kfp`` in a notebook.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from spotwright.errors import PipelineError
from spotwright.pipelines.compiled import Compiled, sorted_json
from spotwright.pipelines.kinds import Step, misfits
from spotwright.pipelines.labels import merged_executors
from spotwright.pipelines.newer import put_back, take_out
from spotwright.pipelines.placed import as_written
from spotwright.pipelines.places import line_at

__all__ = ["read_compiled"]

_MESSAGES = "spotwright._kfp_pipeline_spec_pb2"
_KFP_MESSAGES = "kfp.pipeline_spec.pipeline_spec_pb2"
_SCHEMA_VERSIONS = ("2.0.0", "2.1.0")
_PARSER_STEPS = re.compile(r"(?:Failed to parse \w+ field: )+")  # the place follows at the end of the message
_ALIAS = re.compile(r"(?m)[\s\[,]\*\w+\s*(?:$|[,\]}])")
_MOST_VALUES = 1_000_000  # that a file may have through aliases; those that are written out are no matter
_NEWER = ("KUBERNETES_RESOURCE_CLAIMS",)  # of taskConfigPassthroughs, beyond kfp 2.17
_COMPILE = "compile the pipeline with kfp 2: kfp dsl compile --py FILE.py --output FILE.yaml"


def read_compiled(path: Path) -> Compiled:
    """Read a compiled pipeline file. Raises :class:`PipelineError` with the file, the place and what was expected."""
    documents = _parse(path)
    pipelines = [document for document in documents if "platforms" not in document]
    platforms = [document["platforms"] or {} for document in documents if "platforms" in document]
    if not pipelines:
        raise PipelineError(
            f"{path}: this is a platform document alone; the pipeline's own document must stand before it"
        )
    if len(pipelines) > 1 or len(platforms) > 1 or "platforms" in documents[0]:
        raise PipelineError(f"{path}: expected one pipeline document, then at most one platform document")
    _refuse_strangers(path, pipelines[0])
    as_written(path, pipelines[0], {"platforms": platforms[0] if platforms else {}})
    messages = _load_messages()
    newer = tuple(f"{path}: {said}" for said in _drop_newer_settings(pipelines[0], messages))
    retries = take_out(pipelines[0])
    ir, platform = _check(path, pipelines[0], platforms[0] if platforms else {}, messages)
    put_back(ir, retries)
    for names in merged_executors(ir):
        raise PipelineError(
            f"{path}: the components {' and '.join(names)} share one executor by an error of the SDK that compiled this "
            "file, so that one has the other's resources and environment; compile it again, or give the .py file"
        )
    return Compiled(ir=ir, platform=platform, source=str(path), pipeline=ir["pipelineInfo"]["name"], warnings=newer)


def _parse(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path}: cannot be read: {error}") from error
    documents = _parse_json(path, text) if path.suffix == ".json" else _parse_yaml(path, text)
    documents = [document for document in documents if document is not None]
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise PipelineError(f"{path}: this is no compiled pipeline: expected a mapping with pipelineInfo and root")
    return documents


def _parse_json(path: Path, text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except ValueError as error:
        raise PipelineError(f"{path}: this is no JSON: {error}") from error


def _parse_yaml(path: Path, text: str) -> list[Any]:
    """The collector is off meanwhile: it would walk the growing document again and again (a quarter of the time is left)."""
    import yaml

    collecting = gc.isenabled()
    gc.disable()
    try:
        documents = list(yaml.load_all(text, Loader=_loader()))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise PipelineError(f"{place}: this is no YAML: {problem}") from error
    finally:
        if collecting:
            gc.enable()
    if _ALIAS.search(text) and _size(documents, {}) > max(_MOST_VALUES, len(text)):
        raise PipelineError(f"{path}: its anchors stand for more than {_MOST_VALUES:,} values; write out what is meant")
    return documents


def _loader() -> Any:
    """PyYAML's safe loader, which does not take a key that stands twice: only the second would count."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002 - as PyYAML has it
            keys = [key.value for key, _ in node.value]
            merges = any(key.tag.endswith(":merge") for key, _ in node.value)
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(mapping) < len(keys) and not merges:
                twice = next(key for key, _ in reversed(node.value) if keys.count(key.value) > 1)
                raise yaml.MarkedYAMLError(
                    problem=f"the key {twice.value!r} stands twice", problem_mark=twice.start_mark
                )
            return mapping

    return Loader


def _size(value: Any, known: dict[int, int]) -> int:
    """How many values this is once every alias stands for its own copy. What holds itself is endless."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = sys.maxsize
        known[id(value)] = 1 + sum(
            _size(each, known) for each in (value.values() if isinstance(value, dict) else value)
        )
    return known[id(value)]


def _refuse_strangers(path: Path, document: Mapping[str, Any]) -> None:
    """Name the documents that users mistake for a compiled pipeline."""
    if str(document.get("apiVersion", "")).startswith("argoproj.io/"):
        raise PipelineError(f"{path}: this is an Argo Workflow, as kfp 1 compiled them; {_COMPILE}")
    if "pipelineSpec" in document:
        inside = _mapping(document["pipelineSpec"])
        if str(inside.get("sdkVersion", "")).startswith("kfp-2."):
            raise PipelineError(
                f"{path}: this is a pipeline job; put what stands below its pipelineSpec into a file of its own"
            )
        raise PipelineError(f"{path}: this is a pipeline job of kfp 1.8 (v2 compatible); {_COMPILE}")
    if "implementation" in document and "root" not in document:
        raise PipelineError(f"{path}: this is a component, not a pipeline; use it in a @dsl.pipeline function")
    if document.get("apiVersion"):
        raise PipelineError(f"{path}: this is a Kubernetes object ({document.get('kind')}), not a compiled pipeline")
    version = document.get("schemaVersion")
    if version not in _SCHEMA_VERSIONS:
        raise PipelineError(f"{path}: schemaVersion is {version!r}; expected {' or '.join(_SCHEMA_VERSIONS)}")
    if str(document.get("sdkVersion", "")).startswith("kfp-1."):
        raise PipelineError(f"{path}: this was compiled by {document['sdkVersion']}; {_COMPILE}")


def _check(
    path: Path, document: Mapping[str, Any], platforms: Any, messages: ModuleType
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse into the messages and back: what comes out has the right types and the canonical names."""
    from google.protobuf import json_format

    def parse(data: Any, message: Any, *place: str) -> Any:
        try:
            return json_format.ParseDict(data, message)
        except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise _misfit(path, data, message, place, error) from error

    def written(message: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json_format.MessageToDict(message)
        except json_format.SerializeToJsonError as error:
            raise PipelineError(
                f"{path}: a number in it is infinite or none, which JSON cannot hold: {error}"
            ) from error
        return found

    _drop_task_names(document)
    ir = written(parse(document, messages.PipelineSpec()))
    executors = (ir.get("deploymentSpec") or {}).get("executors") or {}
    if not isinstance(executors, dict):
        raise _error(path, ("deploymentSpec", "executors"), f"expected a mapping, found {executors!r:.60}")
    for label, executor in executors.items():
        known = parse(executor, messages.PipelineDeploymentConfig.ExecutorSpec(), "deploymentSpec", "executors", label)
        executors[label] = written(known)
    parse({"platforms": _of_this_sdk(platforms, messages)}, messages.PlatformSpec())
    if not (ir.get("pipelineInfo") or {}).get("name"):
        raise PipelineError(f"{path}: pipelineInfo.name is missing: this is no compiled pipeline")
    return sorted_json(ir), sorted_json(platforms)


def _misfit(path: Path, data: Any, message: Any, place: tuple[str, ...], error: Exception) -> PipelineError:
    """The error for what protobuf has refused: its first place with the line, or else what protobuf says."""
    try:
        at, what = next(misfits(data, message.DESCRIPTOR, place))
    except (StopIteration, RecursionError):
        said = _PARSER_STEPS.sub("", (str(error).splitlines() or [type(error).__name__])[0])
        return PipelineError(f"{path}: {'.'.join(place)}{': ' if place else ''}{said}")
    return _error(path, at, what)


def _error(path: Path, at: tuple[Step, ...], what: str) -> PipelineError:
    line = line_at(path, at)
    return PipelineError(f"{path if line is None else f'{path}:{line}'}: {'.'.join(map(str, at))}: {what}")


def _drop_task_names(document: Mapping[str, Any]) -> None:
    """Take out ``taskInfo.taskName``, which kfp 2.13 wrote beside the name and every other SDK refuses (pipeline-spec 0.8)."""
    for definition in (document.get("root"), *_mapping(document.get("components")).values()):
        for task in _mapping(_mapping(_mapping(definition).get("dag")).get("tasks")).values():
            _mapping(_mapping(task).get("taskInfo")).pop("taskName", None)


def _drop_newer_settings(document: Mapping[str, Any], messages: ModuleType) -> Iterator[str]:
    """Take out what components of later SDKs pass to their code and this one does not know, and say so of each."""
    known = messages.TaskConfigPassthroughType.TaskConfigPassthroughTypeEnum.keys()
    for name, component in _mapping(document.get("components")).items():
        passed = _mapping(component).get("taskConfigPassthroughs")
        fields = [_mapping(each).get("field") for each in passed] if isinstance(passed, list) else []
        newer = [field for field in fields if field in _NEWER and field not in known]
        if newer:
            component["taskConfigPassthroughs"] = [e for e in passed or () if _mapping(e).get("field") not in newer]
            yield f"{name}: {', '.join(newer)} is newer than the SDK here: left out of its dsl.TaskConfig"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _of_this_sdk(platforms: Any, messages: ModuleType) -> Any:
    """The platforms without what their ``pipelineConfig`` has beyond the messages of this SDK.

    Settings come there with every SDK (``maxActiveRuns``, ``pipelineVersionConcurrencyLimit``), and all but the workspace
    are about a server's queue of runs: the graph names them as left out, so they are no reason to refuse the file.
    """
    if not isinstance(platforms, Mapping):
        return platforms
    fields = messages.PipelineConfig.DESCRIPTOR.fields
    known = {name for field in fields for name in (field.name, field.json_name)}

    def kept(platform: Any) -> Any:
        config = platform.get("pipelineConfig") if isinstance(platform, Mapping) else None
        if not isinstance(config, Mapping):
            return platform
        return {**platform, "pipelineConfig": {key: value for key, value in config.items() if key in known}}

    return {name: kept(platform) for name, platform in platforms.items()}


def _load_messages() -> ModuleType:
    """The generated protobuf module, without the ``kfp`` package around it unless that is already here."""
    loaded = sys.modules.get(_KFP_MESSAGES) or sys.modules.get(_MESSAGES)
    if loaded is not None:
        return loaded
    for entry in sys.path:
        place = Path(entry or ".", "kfp", "pipeline_spec", "pipeline_spec_pb2.py")
        if place.is_file():
            spec = importlib.util.spec_from_file_location(_MESSAGES, place)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                sys.modules[_MESSAGES] = module
                return module
    raise PipelineError("the distribution kfp-pipeline-spec is not installed: pip install kfp-pipeline-spec")
