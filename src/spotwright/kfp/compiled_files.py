"""Reads compiled pipeline files: KFP's YAML or JSON, one document or two, checked against the protobuf messages.

The messages come from the ``kfp-pipeline-spec`` distribution. Its module is loaded by its path, because ``import kfp``
costs 80 MB and 300 ms, and the switch that avoids this would break the user's own ``import kfp`` in a notebook.

Retry policies of newer SDKs, for which the messages have no field, are kept through parsing. After a refusal the wrong values
are located, with the task's line in the user's file.
"""

from __future__ import annotations

import ast
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
from spotwright.kfp.compiled import Compiled, dag_tasks, group_names, merged_executors, sorted_json
from spotwright.kfp.kfp_settings import RETRY_POLICIES
from spotwright.kfp.placed_record import undo_placement

if TYPE_CHECKING:
    from spotwright.yaml_composer import Composed


__all__ = [
    "Step",
    "line_at",
    "line_of",
    "place_of",
    "put_back_policies",
    "read_compiled",
    "schema_errors",
    "take_out_policies",
]


RetryPolicies = Mapping[tuple[str, str], str]
"""The retry policies of a document, by component (empty: the root) and task."""


def take_out_policies(document: Mapping[str, Any]) -> RetryPolicies:
    """Remove the supported retry policies from a document. Parsing refuses the others with their place."""
    policies: dict[tuple[str, str], str] = {}
    for place, retry in _retries(document):
        if retry.get("policy") in RETRY_POLICIES:
            policies[place] = retry.pop("policy")
    return policies


def put_back_policies(document: Mapping[str, Any], policies: RetryPolicies) -> None:
    """Put back the policies that :func:`take_out_policies` returned."""
    for place, retry in _retries(document):
        if place in policies:
            retry["policy"] = policies[place]


def _retries(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for component, key, task in dag_tasks(document):
        retry = task.get("retryPolicy") if isinstance(task, Mapping) else None
        if isinstance(retry, dict):
            yield (component, key), retry


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
        raise PipelineError(f"{path}: this is only a platform document; the pipeline's document must come before it")
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
            f"{path}: the components {' and '.join(merged.components)} share one executor, a bug of the SDK that compiled this"
            " file, so one gets the other's resources and environment; compile it again, or give the .py file"
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
    from spotwright.yaml_composer import MAX_DEPTH

    try:
        document = json.loads(text)
    except ValueError as error:
        raise PipelineError(f"{path}: not valid JSON: {error}") from error
    except RecursionError:
        document = None  # deeper than Python can read
    if document is None or _is_deeper(document, MAX_DEPTH):
        raise PipelineError(f"{path}: not a compiled pipeline: nested deeper than {MAX_DEPTH} levels")
    return [document]


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether a value has more levels of mappings and lists than these."""
    layer = [value]
    while layer and levels >= 0:
        held = (one.values() if isinstance(one, dict) else one for one in layer)
        layer = [inner for some in held for inner in some if isinstance(inner, dict | list)]
        levels -= 1
    return bool(layer)


def _parse_yaml(path: Path, text: str) -> list[Any]:
    """The documents. Garbage collection is off: it would walk the growing document repeatedly (4x the time)."""
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
    from spotwright.yaml_composer import ComposeError, ScalarNode, events_of, value_of

    tagged = next((event for event in events_of(document.root) if event.tag not in _KNOWN_TAGS), None)
    if tagged is not None:
        raise ComposeError(tagged.start_mark.line + 1, f"the tag {tagged.tag} is not allowed; remove it")
    return value_of(document.root) if isinstance(document.root, ScalarNode) else document.root.data


def _refuse_other_kinds(path: Path, document: Mapping[str, Any]) -> None:
    """Raise :class:`PipelineError` for other kinds of document that users mistake for a compiled pipeline, naming the kind."""
    if str(document.get("apiVersion", "")).startswith("argoproj.io/"):
        raise PipelineError(f"{path}: this is an Argo Workflow, as kfp 1 compiled them; {_COMPILE}")
    if "pipelineSpec" in document:
        inside = _mapping(document["pipelineSpec"])
        if str(inside.get("sdkVersion", "")).startswith("kfp-2."):
            raise PipelineError(
                f"{path}: this is a pipeline job; write the part below its pipelineSpec into a separate file"
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
    """The error for a document that protobuf refused: its first wrong value with the line, else protobuf's message."""
    try:
        at, what = next(schema_errors(data, message.DESCRIPTOR, place))
    except (StopIteration, RecursionError):
        text = _PARSER_STEPS.sub("", (str(error).splitlines() or [type(error).__name__])[0])
        return PipelineError(f"{path}: {'.'.join(place)}{': ' if place else ''}{text}")
    return _error(path, at, what)


def _error(path: Path, at: tuple[Step, ...], what: str) -> PipelineError:

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
            yield f"{name}: {', '.join(newer)} is newer than the installed SDK: left out of its dsl.TaskConfig"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _without_newer_settings(platforms: Any, messages: ModuleType) -> Any:
    """The platforms without the keys of ``pipelineConfig`` that this SDK's messages lack.

    Every SDK adds some (``maxActiveRuns``, ``pipelineVersionConcurrencyLimit``), and all but the workspace concern a server's
    queue of runs: the graph reports them as ignored, so the file is accepted.
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


Step = str | int
"""A key of a mapping, or a number in a list."""

_SchemaError = tuple[tuple[Step, ...], str]
_FREE = ("google.protobuf.Value", "google.protobuf.ListValue")
_STRUCT, _DURATION = "google.protobuf.Struct", "google.protobuf.Duration"
_SECONDS = re.compile(r"-?\d+(\.\d+)?s")
_WORDS = {dict: "a mapping", list: "a list", type(None): "nothing"}


def schema_errors(value: Any, message: Any, path: tuple[Step, ...] = ()) -> Iterator[_SchemaError]:
    """Yield each place at which ``value`` does not fit a message's descriptor, with the expected kind, in the value's order."""
    if message.full_name in _FREE:
        return
    if message.full_name == _DURATION:
        if not (isinstance(value, str) and _SECONDS.fullmatch(value)):
            yield path, f"expected seconds such as '60s', found {_shown(value)}"
    elif not isinstance(value, dict):
        yield path, f"expected a mapping, found {_shown(value)}"
    elif message.full_name != _STRUCT:
        yield from _in_fields(value, message, path)


def _in_fields(value: Mapping[Any, Any], message: Any, path: tuple[Step, ...]) -> Iterator[_SchemaError]:
    fields = {field.json_name: field for field in message.fields}
    names = fields | {field.name: field for field in message.fields}
    for key, item in value.items():
        if key not in names:
            yield (*path, key), f"unknown key, known here: {', '.join(fields) or 'none'}"
        elif item is not None:  # null equals an omitted field
            yield from _in_field(item, names[key], (*path, key))


def _in_field(item: Any, field: Any, path: tuple[Step, ...]) -> Iterator[_SchemaError]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        if not isinstance(item, dict):
            yield path, f"expected a mapping, found {_shown(item)}"
            return
        value_field = field.message_type.fields_by_name["value"]
        for key, each in item.items():
            if isinstance(key, str):
                yield from _in_value(each, value_field, (*path, key))
            else:
                yield (*path, key), f"expected a text as the key, found {_shown(key)}"
    elif not _is_repeated(field):
        yield from _in_value(item, field, path)
    elif not isinstance(item, list):
        yield path, f"expected a list, found {_shown(item)}"
    else:
        for number, each in enumerate(item):
            yield from _in_value(each, field, (*path, number))


def _is_repeated(field: Any) -> bool:
    """Whether a field is a list. Newer versions of protobuf have a property for it, and warn where the label is read."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _in_value(value: Any, field: Any, path: tuple[Step, ...]) -> Iterator[_SchemaError]:
    if field.message_type is not None:
        yield from schema_errors(value, field.message_type, path)
    elif field.enum_type is not None:
        names = [each.name for each in field.enum_type.values]
        if value not in names and not _is_number(value):
            yield path, f"expected one of {', '.join(names)}; found {_shown(value)}"
    elif field.cpp_type == field.CPPTYPE_STRING:
        if not isinstance(value, str):
            yield path, f"expected a text, found {_shown(value)}"
    elif field.cpp_type == field.CPPTYPE_BOOL:
        if not isinstance(value, bool):
            yield path, f"expected true or false, found {_shown(value)}"
    elif not _is_number(value):
        yield path, f"expected a number, found {_shown(value)}"


def _is_number(value: Any) -> bool:
    """Whether a value is a number; protobuf also accepts a number in a string."""
    try:
        return not isinstance(value, bool) and float(value) == float(value)
    except (TypeError, ValueError):
        return False


def _shown(value: Any) -> str:
    text = _WORDS.get(type(value)) or repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


_NUMBERED = re.compile(r"(.+?)-(\d+)")


def line_of(file: str, ir: Mapping[str, Any], path: str) -> int | None:
    """The line of a task, by its path in the pipeline; ``None`` if not found."""
    keys = _keys(ir, path)
    if not keys:
        return None
    try:
        if file.endswith(".py"):
            return _line_of_call(Path(file), keys[-1])
        return _line_in_yaml(Path(file), ir, keys) if file.endswith((".yaml", ".yml")) else None
    except (OSError, ValueError, SyntaxError):
        return None


def line_at(file: Path, path: tuple[str | int, ...]) -> int | None:
    """The line of a value in a YAML file, by its keys from the top; ``None`` if not found."""
    if file.suffix not in (".yaml", ".yml"):
        return None
    try:
        lines = (_line_of_node(document, path) for document in _compose(file))
        return next((line for line in lines if line is not None), None)
    except (OSError, ValueError):
        return None


def _keys(ir: Mapping[str, Any], path: str) -> list[str]:
    """The keys of the tasks on the way to a task, outermost first; a group may have another name than its key."""
    keys: list[str] = []
    definition = ir.get("root") or {}
    for name in path.split("/"):
        tasks = (definition.get("dag") or {}).get("tasks") or {}
        key = next((key for key, shown in group_names(tasks).items() if shown == name), None)
        if key is None:
            return []
        keys.append(key)
        component = (tasks[key].get("componentRef") or {}).get("name")
        definition = (ir.get("components") or {}).get(component) or {}
    return keys


def _compose(file: Path) -> Iterator[Any]:
    import yaml

    with file.open(encoding="utf-8") as text:
        yield from yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _line_in_yaml(file: Path, ir: Mapping[str, Any], keys: list[str]) -> int | None:
    document = next(_compose(file), None)
    place: tuple[str, ...] = ("root",)
    definition = ir.get("root") or {}
    for key in keys[:-1]:
        component = definition["dag"]["tasks"][key]["componentRef"]["name"]
        place, definition = ("components", component), ir["components"][component]
    return _line_of_node(document, (*place, "dag", "tasks", keys[-1]))


def _line_of_node(node: Any, path: tuple[str | int, ...]) -> int | None:
    line = None
    for step in path:
        parts = node.value if isinstance(getattr(node, "value", None), list) else []
        if isinstance(step, int) and node.id == "sequence":
            matches = [(part, part) for part in parts[step : step + 1]]
        else:
            matches = [(key, value) for key, value in parts if key.value == str(step)] if node.id == "mapping" else []
        if not matches:
            return None
        line, node = matches[0][0].start_mark.line + 1, matches[0][1]
    return line


def _line_of_call(file: Path, key: str) -> int | None:
    """The line of the call that makes a task: the second call of ``train`` makes ``train-2``."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    numbered = _NUMBERED.fullmatch(key)
    for name, number in ((key, 1), *([(numbered[1], int(numbered[2]))] if numbered else [])):
        calls = sorted(call.lineno for call in _calls_outside_components(tree) if _sdk_name(call) == name)
        if len(calls) >= number:
            return calls[number - 1]
    return None


def _calls_outside_components(node: ast.AST) -> Iterator[ast.Call]:
    """Every call outside the code of components, in which a call such as ``file.write`` makes no task."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and any(
            "component" in ast.unparse(each) for each in child.decorator_list
        ):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls_outside_components(child)


def _sdk_name(call: ast.Call) -> str:
    """The name that the SDK gives to a task of the called function."""
    function = call.func
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    return name.lower().replace("_", "-")


def place_of(compiled: Compiled, path: str) -> str:
    """The file and, if known, the line of a task in the user's source."""
    line = line_of(compiled.source, compiled.ir, path)
    return compiled.source if line is None else f"{compiled.source}:{line}"
