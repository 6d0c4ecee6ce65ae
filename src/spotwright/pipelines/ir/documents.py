"""Read compiled pipeline files: KFP's YAML or JSON, one document or two, checked against the protobuf messages.

The messages come from the ``kfp-pipeline-spec`` distribution. Its module is loaded by its path, because ``import kfp``
costs 80 MB and 300 ms, and the switch that avoids this would break the user's own ``import kfp`` in a notebook.
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
from typing import TYPE_CHECKING, Any

from spotwright.errors import PipelineError
from spotwright.pipelines.ir.compiled import Compiled, sorted_json
from spotwright.pipelines.ir.dag_walk import dag_tasks
from spotwright.pipelines.ir.merged_executors import merged_executors
from spotwright.pipelines.ir.newer_sdk import put_back_policies, take_out_policies
from spotwright.pipelines.ir.placed_pipelines import undo_placement

if TYPE_CHECKING:
    from spotwright.pipelines.ir.schema_errors import Step
    from spotwright.yaml_composer import Composed

__all__ = ["read_compiled"]

_MESSAGES = "spotwright._kfp_pipeline_spec_pb2"
_KFP_MESSAGES = "kfp.pipeline_spec.pipeline_spec_pb2"
_SCHEMA_VERSIONS = ("2.0.0", "2.1.0")
_PARSER_STEPS = re.compile(r"(?:Failed to parse \w+ field: )+")  # the end of the message repeats the place
_KNOWN_TAGS = {None, *(f"tag:yaml.org,2002:{name}" for name in ("bool", "float", "int", "map", "null", "seq", "str"))}
_NEWER_PASSTHROUGHS = ("KUBERNETES_RESOURCE_CLAIMS",)  # of taskConfigPassthroughs, after kfp 2.17
_COMPILE = "compile the pipeline with kfp 2: kfp dsl compile --py FILE.py --output FILE.yaml"


def read_compiled(path: Path) -> Compiled:
    """Read a compiled pipeline file. Raises :class:`PipelineError` with the file, the place and the expected value."""
    documents = _parse(path)
    pipelines = [document for document in documents if "platforms" not in document]
    platforms = [document["platforms"] or {} for document in documents if "platforms" in document]
    if not pipelines:
        raise PipelineError(
            f"{path}: this is a platform document alone; the pipeline's own document must stand before it"
        )
    if len(pipelines) > 1 or len(platforms) > 1 or "platforms" in documents[0]:
        raise PipelineError(f"{path}: expected one pipeline document, then at most one platform document")
    _refuse_other_kinds(path, pipelines[0])
    undo_placement(path, pipelines[0], {"platforms": platforms[0] if platforms else {}})
    messages = _load_messages()
    warnings = tuple(f"{path}: {warning}" for warning in _drop_newer_passthroughs(pipelines[0], messages))
    policies = take_out_policies(pipelines[0])
    ir, platform = _check(path, pipelines[0], platforms[0] if platforms else {}, messages)
    put_back_policies(ir, policies)
    for merged in merged_executors(ir):
        raise PipelineError(
            f"{path}: the components {' and '.join(merged.components)} share one executor by an error of the SDK that "
            "compiled this file, so that one has the other's resources and environment; compile it again, or give the .py file"
        )
    return Compiled(ir=ir, platform=platform, source=str(path), pipeline=ir["pipelineInfo"]["name"], warnings=warnings)


def _parse(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        byte, line = error.object[error.start], error.object[: error.start].count(b"\n") + 1
        raise PipelineError(f"{path}:{line}: expected UTF-8 text, found the byte 0x{byte:02x}") from error
    documents = _parse_json(path, text) if path.suffix == ".json" else _parse_yaml(path, text)
    documents = [document for document in documents if document is not None]
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise PipelineError(f"{path}: not a compiled pipeline: expected a mapping with pipelineInfo and root")
    return documents


def _parse_json(path: Path, text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except ValueError as error:
        raise PipelineError(f"{path}: not valid JSON: {error}") from error


def _parse_yaml(path: Path, text: str) -> list[Any]:
    """The documents. Garbage collection is off meanwhile: it would walk the growing document again and again (4x the time)."""
    import yaml

    from spotwright.yaml_composer import MAX_UNFOLDED, ComposeError, compose

    collecting = gc.isenabled()
    gc.disable()
    try:
        return [_data(document) for document in compose(text, max_unfolded=max(MAX_UNFOLDED, len(text)))]
    except ComposeError as error:
        raise PipelineError(f"{path}:{error.line}: not valid YAML: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise PipelineError(f"{place}: not valid YAML: {problem}") from error
    finally:
        if collecting:
            gc.enable()


def _data(document: Composed) -> Any:
    """The plain value of a document. Raises :class:`ComposeError` at a tag, which the SDK refuses to read."""
    from spotwright.yaml_composer import ComposeError, ScalarNode, value_of

    tagged = next((event for event in document.events if getattr(event, "tag", None) not in _KNOWN_TAGS), None)
    if tagged is not None:
        raise ComposeError(tagged.start_mark.line + 1, f"the tag {tagged.tag} is not allowed; remove it")
    return value_of(document.root) if isinstance(document.root, ScalarNode) else document.root.data


def _refuse_other_kinds(path: Path, document: Mapping[str, Any]) -> None:
    """Raise :class:`PipelineError`, with the kind of document, for others that users take for a compiled pipeline."""
    if str(document.get("apiVersion", "")).startswith("argoproj.io/"):
        raise PipelineError(f"{path}: this is an Argo Workflow, as kfp 1 compiled them; {_COMPILE}")
    if "pipelineSpec" in document:
        inside = _mapping(document["pipelineSpec"])
        if str(inside.get("sdkVersion", "")).startswith("kfp-2."):
            raise PipelineError(
                f"{path}: this is a pipeline job; write the part below its pipelineSpec into a file of its own"
            )
        raise PipelineError(f"{path}: this is a pipeline job of kfp 1.8 (v2 compatible); {_COMPILE}")
    if "implementation" in document and "root" not in document:
        raise PipelineError(f"{path}: this is a component, not a pipeline; use it in a @dsl.pipeline function")
    if document.get("apiVersion"):
        raise PipelineError(f"{path}: this is a Kubernetes object ({document.get('kind')}), not a compiled pipeline")
    version = document.get("schemaVersion")
    if version not in _SCHEMA_VERSIONS:
        value = "missing" if version is None else repr(version)
        raise PipelineError(f"{path}: schemaVersion is {value}; expected {' or '.join(_SCHEMA_VERSIONS)}")
    if str(document.get("sdkVersion", "")).startswith("kfp-1."):
        raise PipelineError(f"{path}: this was compiled by {document['sdkVersion']}; {_COMPILE}")


def _check(
    path: Path, document: Mapping[str, Any], platforms: Any, messages: ModuleType
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse both documents into the messages and back: the result has the right types and the canonical names."""
    from google.protobuf import json_format

    def parse(data: Any, message: Any, *place: str) -> Any:
        try:
            return json_format.ParseDict(data, message)
        except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise _schema_error(path, data, message, place, error) from error

    def to_dict(message: Any) -> dict[str, Any]:
        try:
            data: dict[str, Any] = json_format.MessageToDict(message)
        except json_format.SerializeToJsonError as error:
            raise PipelineError(f"{path}: it holds infinity or NaN, which JSON does not have: {error}") from error
        return data

    _drop_task_names(document)
    ir = to_dict(parse(document, messages.PipelineSpec()))
    executors = (ir.get("deploymentSpec") or {}).get("executors") or {}
    if not isinstance(executors, dict):
        raise _error(path, ("deploymentSpec", "executors"), f"expected a mapping, found {executors!r:.60}")
    for label, executor in executors.items():
        message = parse(
            executor, messages.PipelineDeploymentConfig.ExecutorSpec(), "deploymentSpec", "executors", label
        )
        executors[label] = to_dict(message)
    parse({"platforms": _without_newer_settings(platforms, messages)}, messages.PlatformSpec())
    if not (ir.get("pipelineInfo") or {}).get("name"):
        raise PipelineError(f"{path}: pipelineInfo.name is missing: not a compiled pipeline")
    return sorted_json(ir), sorted_json(platforms)


def _schema_error(path: Path, data: Any, message: Any, place: tuple[str, ...], error: Exception) -> PipelineError:
    """The error for a document that protobuf refused: its first wrong value with the line, or else protobuf's own text."""
    from spotwright.pipelines.ir.schema_errors import schema_errors  # only wrong documents need it

    try:
        at, what = next(schema_errors(data, message.DESCRIPTOR, place))
    except (StopIteration, RecursionError):
        text = _PARSER_STEPS.sub("", (str(error).splitlines() or [type(error).__name__])[0])
        return PipelineError(f"{path}: {'.'.join(place)}{': ' if place else ''}{text}")
    return _error(path, at, what)


def _error(path: Path, at: tuple[Step, ...], what: str) -> PipelineError:
    from spotwright.pipelines.ir.source_lines import line_at  # here: for errors alone

    line = line_at(path, at)
    return PipelineError(f"{path if line is None else f'{path}:{line}'}: {'.'.join(map(str, at))}: {what}")


def _drop_task_names(document: Mapping[str, Any]) -> None:
    """Remove ``taskInfo.taskName``, which kfp 2.13 wrote beside the name and every other SDK refuses (pipeline-spec 0.8)."""
    for _, _, task in dag_tasks(document):
        _mapping(_mapping(task).get("taskInfo")).pop("taskName", None)


def _drop_newer_passthroughs(document: Mapping[str, Any], messages: ModuleType) -> Iterator[str]:
    """Remove the settings of later SDKs that components pass to their code (``dsl.TaskConfig``); yield a warning for each."""
    supported = messages.TaskConfigPassthroughType.TaskConfigPassthroughTypeEnum.keys()
    for name, component in _mapping(document.get("components")).items():
        passed = _mapping(component).get("taskConfigPassthroughs")
        fields = [_mapping(each).get("field") for each in passed] if isinstance(passed, list) else []
        newer = [field for field in fields if field in _NEWER_PASSTHROUGHS and field not in supported]
        if newer:
            component["taskConfigPassthroughs"] = [e for e in passed or () if _mapping(e).get("field") not in newer]
            yield f"{name}: {', '.join(newer)} is newer than the SDK here: left out of its dsl.TaskConfig"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _without_newer_settings(platforms: Any, messages: ModuleType) -> Any:
    """The platforms without those keys of ``pipelineConfig`` that the messages of this SDK do not have.

    Every SDK adds some (``maxActiveRuns``, ``pipelineVersionConcurrencyLimit``), and all but the workspace are about a
    server's queue of runs: the graph reports them as ignored, so they are no reason to refuse the file.
    """
    if not isinstance(platforms, Mapping):
        return platforms
    fields = messages.PipelineConfig.DESCRIPTOR.fields
    supported = {name for field in fields for name in (field.name, field.json_name)}

    def reduced(platform: Any) -> Any:
        config = platform.get("pipelineConfig") if isinstance(platform, Mapping) else None
        if not isinstance(config, Mapping):
            return platform
        return {**platform, "pipelineConfig": {key: value for key, value in config.items() if key in supported}}

    return {name: reduced(platform) for name, platform in platforms.items()}


def _load_messages() -> ModuleType:
    """The generated protobuf module; without importing the ``kfp`` package around it, unless that is imported already."""
    loaded = sys.modules.get(_KFP_MESSAGES) or sys.modules.get(_MESSAGES)
    if loaded is not None:
        return loaded
    for entry in sys.path:
        file = Path(entry or ".", "kfp", "pipeline_spec", "pipeline_spec_pb2.py")
        if file.is_file():
            spec = importlib.util.spec_from_file_location(_MESSAGES, file)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                sys.modules[_MESSAGES] = module
                return module
    raise PipelineError("the distribution kfp-pipeline-spec is not installed: pip install kfp-pipeline-spec")
