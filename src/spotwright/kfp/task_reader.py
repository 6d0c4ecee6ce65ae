"""Read one task of a DAG from the intermediate representation: its wiring and its executor.

Unsupported features are recorded with the task's path, so that one error names all of a pipeline's. A document that contradicts
itself is refused at the first contradiction. Executors are Python components of any 2.x SDK, containers, PVC steps and
importers. An archive of files inside a component (``embedded_artifact_path``, notebooks) must not have members that leave its
folder.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from spotwright.graph import (
    ArtifactSpec,
    Constant,
    Container,
    DagInput,
    FinalStatus,
    Loop,
    OneOf,
    OutputSource,
    OutputSpecs,
    ParameterSpec,
    Source,
    TaskOutput,
    TaskSpec,
)
from spotwright.kfp.compiled import PVC_IMAGES
from spotwright.kfp.executors import Importer, PvcStep, PythonComponent
from spotwright.kfp.ir_pass import IrPass
from spotwright.kfp.kfp_settings import read_policy_text, read_retry
from spotwright.kfp.task_settings import TaskConfig, TaskSettings, read_passthrough, read_settings
from spotwright.kfp.values import KINDS, RELATIVE, coerce, is_relative, whole_numbers
from spotwright.links_below import leads_to
from spotwright.model.policy import Layer, PolicyValueError
from spotwright.model.quantities import parse_quantity

if TYPE_CHECKING:
    import tarfile

    from spotwright.kfp.cel import CelCondition


__all__ = [
    "Unsupported",
    "component_of",
    "drop_stray_inputs",
    "escaping_member",
    "read_condition_of",
    "read_executor",
    "read_importer",
    "read_input_specs",
    "read_loop",
    "read_output_sources",
    "read_output_specs",
    "read_policy",
    "read_sources",
    "read_task",
    "upstream_of",
]


_CHANNEL, _FIELD, _LOOP = "pipelinechannel--", "-subvar-", "-loop-item"
_SELECTOR = re.compile(r"""parseJson\(string_value\)((?:\["[^"\\]*"\]|\['[^'\\]*'\]|\[\d+\])+)""")
_STEP = re.compile(r"""\[(?:"([^"]*)"|'([^']*)'|(\d+))\]""")

Names = Mapping[str, str]
"""The names of the tasks of a DAG, by their keys in the document."""


def read_sources(
    ir_pass: IrPass, names: Names, task: Mapping[str, Any], specs: Mapping[str, ParameterSpec], path: str
) -> tuple[dict[str, Source], dict[str, Source]]:
    """The sources of a task's parameters and of its artifacts, by input."""
    inputs = task.get("inputs") or {}
    parameters: dict[str, Source] = {}
    for name, given in (inputs.get("parameters") or {}).items():
        source = _parameter_source(ir_pass, names, name, given, specs.get(name), path)
        if given.get("parameterExpressionSelector"):
            source = _selected(ir_pass, name, given["parameterExpressionSelector"], source, path)
        parameters[name] = source
    artifacts: dict[str, Source] = {}
    for name, given in (inputs.get("artifacts") or {}).items():
        if "componentInputArtifact" in given:
            artifacts[name] = DagInput(given["componentInputArtifact"])
        else:
            artifacts[name] = _output(names, given.get("taskOutputArtifact") or {}, "outputArtifactKey")
    return parameters, artifacts


def _parameter_source(
    ir_pass: IrPass, names: Names, name: str, given: Mapping[str, Any], spec: ParameterSpec | None, path: str
) -> Source:
    if "componentInputParameter" in given:
        return DagInput(given["componentInputParameter"])
    if "taskOutputParameter" in given:
        return _output(names, given["taskOutputParameter"], "outputParameterKey")
    if "taskFinalStatus" in given:
        producer = str(given["taskFinalStatus"].get("producerTask") or "")
        return FinalStatus(names.get(producer, producer))
    value = given.get("runtimeValue") or {}
    if "constant" not in value:
        raise ir_pass.error(f"task {path}", f"its input {name} has a source that this version does not support")
    constant = value["constant"]
    if spec is None:
        return Constant(whole_numbers(constant))
    try:
        value = coerce(constant, spec.type)
        if not (isinstance(value, str) and "{{$." in value):
            spec.check(value)
    except ValueError as error:
        raise ir_pass.error(f"task {path}", f"its input {name}: {error}") from error
    return Constant(value)


def _output(names: Names, given: Mapping[str, Any], key: str, task: str = "producerTask") -> TaskOutput:
    producer = str(given.get(task) or "")
    return TaskOutput(names.get(producer, producer), str(given.get(key) or ""))


def _selected(ir_pass: IrPass, name: str, expression: str, source: Source, path: str) -> Source:
    """A part of a loop's item, ``item.field``. Source of the form: ``pipeline_spec_builder.py`` of the SDK.

    Inside a condition, newer SDKs select the field from the field itself, which would fail on a cluster.
    """
    match = _SELECTOR.fullmatch(expression.strip())
    if match is None or not isinstance(source, DagInput):
        ir_pass.refuse(path, f"its input {name} is selected by the expression {expression!r}, which is not supported")
        return source
    steps = tuple(int(number) if number else double or single for double, single, number in _STEP.findall(match[1]))
    is_field_already = len(steps) == 1 and source.name.endswith(f"{_FIELD}{steps[0]}")
    return DagInput(source.name, () if is_field_already else steps)


def upstream_of(names: Names, task: Mapping[str, Any], *sources: Mapping[str, Source]) -> tuple[str, ...]:
    """The sorted names of the tasks that a task waits for: named ones, and sources of outputs or status."""
    upstream = {names.get(key, key) for key in task.get("dependentTasks") or ()}
    for group in sources:
        upstream.update(source.task for source in group.values() if isinstance(source, TaskOutput | FinalStatus))
    return tuple(sorted(upstream))


def read_condition_of(ir_pass: IrPass, task: Mapping[str, Any], path: str) -> CelCondition | None:
    """The condition of a task; ``None`` if it always runs."""
    trigger = task.get("triggerPolicy") or {}
    if isinstance(trigger.get("strategy"), int):  # protobuf keeps the number of an unknown value
        ir_pass.refuse(path, f"its triggerPolicy has the unknown strategy {trigger['strategy']}")
    text = trigger.get("condition")
    if not text:
        return None
    from spotwright.kfp.cel import read_condition  # most pipelines have no condition

    try:
        return read_condition(str(text))
    except ValueError as error:
        ir_pass.refuse(path, f"its condition {error}")
        return None


def read_loop(ir_pass: IrPass, task: Mapping[str, Any], path: str) -> Loop | None:
    """The loop of a task; ``None`` without one. Raises :class:`PipelineError` for an iterator without items."""
    over_parameters, over_artifacts = task.get("parameterIterator"), task.get("artifactIterator")
    if over_parameters and over_artifacts:
        raise ir_pass.error(f"task {path}", "parameterIterator and artifactIterator cannot both be there")
    iterator = over_parameters or over_artifacts
    if not iterator:
        return None
    items = iterator.get("items") or {}
    name = str(items.get("inputParameter") or items.get("inputArtifact") or "")
    if not iterator.get("itemInput") or not (name or "raw" in items):
        raise ir_pass.error(f"task {path}", "its iterator lacks its items, or the input for each item")
    limit = int((task.get("iteratorPolicy") or {}).get("parallelismLimit") or 0)
    raw = () if name else _raw_items(ir_pass, str(items["raw"]), path)
    return Loop(str(iterator["itemInput"]), name, raw, over_artifacts is not None, limit)


def _raw_items(ir_pass: IrPass, text: str, path: str) -> tuple[Any, ...]:
    try:
        items = json.loads(text)
    except ValueError as error:
        raise ir_pass.error(f"task {path}", f"the items of its loop are not valid JSON: {error}") from error
    if not isinstance(items, list):
        raise ir_pass.error(f"task {path}", "the items of its loop are not a list")
    return tuple(items)


def drop_stray_inputs(task: TaskSpec, of_dag: Mapping[str, ParameterSpec]) -> TaskSpec:
    """A loop, condition or exit handler without the inputs that the compiler adds by mistake.

    If a string inside such a group contains an inner loop's item, or a field of the group's own item, the compiler makes the
    group read that value from the outer pipeline, which lacks it (kfp 2.17.0, ``pipeline_spec_builder.py``). The inner loop
    supplies its item; the field is read from the item here.
    """
    if task.dag is None:
        return task
    strays = [
        name
        for name, source in task.parameters.items()
        if isinstance(source, DagInput)
        and source.name not in of_dag
        and name == f"{_CHANNEL}{source.name}"
        and _LOOP in name
    ]
    if not strays:
        return task
    parameters = {name: source for name, source in task.parameters.items() if name not in strays}
    specs = {n: replace(spec, optional=True) if n in strays else spec for n, spec in task.parameter_specs.items()}
    loop = task.loop
    if loop is not None:
        item = f"{loop.item}{_FIELD}"
        fields = {
            name: name.removeprefix(item) for name in strays if name.startswith(item) and _LOOP not in name[len(item) :]
        }
        loop = replace(loop, fields=fields)
    return replace(task, parameters=parameters, parameter_specs=specs, loop=loop)


def read_output_sources(
    ir_pass: IrPass, names: Names, outputs: Mapping[str, Any], place: str
) -> tuple[dict[str, OutputSource], dict[str, OutputSource]]:
    """The sources of a DAG's own outputs, parameters and artifacts."""
    parameters: dict[str, OutputSource] = {}
    for name, selection in (outputs.get("parameters") or {}).items():
        several = (selection.get("valueFromOneof") or {}).get("parameterSelectors")
        one = [selection["valueFromParameter"]] if selection.get("valueFromParameter") else []
        parameters[name] = _selection(
            ir_pass, names, several or one, "outputParameterKey", f"{place}: its output {name}"
        )
    artifacts: dict[str, OutputSource] = {}
    for name, selection in (outputs.get("artifacts") or {}).items():
        several = selection.get("artifactSelectors") or []
        artifacts[name] = _selection(ir_pass, names, several, "outputArtifactKey", f"{place}: its output {name}")
    return parameters, artifacts


def _selection(ir_pass: IrPass, names: Names, given: list[Mapping[str, Any]], key: str, place: str) -> OutputSource:
    outputs = tuple(_output(names, each, key, "producerSubtask") for each in given)
    if not outputs:
        raise ir_pass.error(place, "no task produces it")
    return outputs[0] if len(outputs) == 1 else OneOf(outputs)


_MOST_MEMBERS = 100_000  # of an archive: a component's files are a few
_ARCHIVE = re.compile(r"^__KFP_EMBEDDED_ARCHIVE_B64 = '([^']*)'", re.MULTILINE)


def escaping_member(module: str) -> str | None:
    """The first member of a component's archive that would leave its folder; ``None`` without one, or without an archive.

    Raises ``ValueError`` for an archive that cannot be read.
    """
    found = _ARCHIVE.search(module)
    if found is None:
        return None
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(found.group(1), validate=True))) as archive:
            return next(_escaping(archive), None)
    except (binascii.Error, tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(f"the archive of its files cannot be read: {error}") from error


def _escaping(archive: tarfile.TarFile) -> Iterator[str]:
    """The members that would be written outside the folder, through earlier links."""
    links: dict[tuple[str, ...], str] = {}
    for count, member in enumerate(archive):
        name = member.name.rstrip("/")
        folder = leads_to(posixpath.dirname(name), links)
        places = [folder, leads_to(name, {} if member.issym() else links)]
        if member.issym() and folder is not None:
            target = (*folder, posixpath.basename(name))
            places.append(leads_to("/".join((*folder, member.linkname)), links))
            links[target] = member.linkname
        elif member.islnk():
            places.append(leads_to(member.linkname, links))
        is_absolute = member.issym() and member.linkname.startswith("/")
        if member.isdev() or is_absolute or name.startswith("/") or None in places or count >= _MOST_MEMBERS:
            yield member.name


_STARTS_EXECUTOR = re.compile(r"-m\s+(kfp(?:\.\w+)*)\.executor_main\b")
_PIP_INSTALL = re.compile(r"-m\s+pip\s+install\s+")
_KFP_ITSELF = re.compile(r"kfp([=<>!~@\[ ]|$)")
_VALUE_OPTIONS = {"--index-url": "urls", "-i": "urls", "--extra-index-url": "urls", "--trusted-host": "hosts"}
_INSTALLED_WITH_KFP = ("typing-extensions",)
_KINDS = "expected a container or an importer"


class Unsupported(Exception):
    """The executor is of a kind that cannot run here; the text names the kind and the fix."""


def read_executor(
    executor: Mapping[str, Any], kubernetes: Mapping[str, Any] | None = None
) -> PythonComponent | Container | PvcStep:
    """Read a non-importer of ``deploymentSpec.executors``; all but Python components and PVC steps are containers.

    ``kubernetes`` are its settings in the platform document. Raises :class:`Unsupported` for other kinds of executors.
    """
    container = executor.get("container")
    if container is None:
        raise Unsupported(f"an executor of the kind {', '.join(sorted(executor)) or 'nothing'}; {_KINDS}")
    command = tuple(str(part) for part in container.get("command") or ())
    args = tuple(str(part) for part in container.get("args") or ())
    image = str(container.get("image") or "")
    start = next((index for index, part in enumerate(command) if _STARTS_EXECUTOR.search(part)), None)
    if image in PVC_IMAGES:
        return PvcStep(creates=PVC_IMAGES[image])
    if start is None:
        return _read_container(command, args, image, container.get("env") or (), kubernetes or {})
    module = _STARTS_EXECUTOR.search(command[start])
    if module and module.group(1).startswith("kfp.v2"):
        raise Unsupported("a Python component compiled by kfp 1; compile the pipeline again with kfp 2")
    return _read_python_component(command, args, start, image, container.get("env") or ())


def read_importer(importer: Mapping[str, Any], definition: Mapping[str, Any]) -> Importer:
    """Read an importer and its component.

    Raises :class:`Unsupported` for one without an artifact or address, or with a relative path.
    """
    outputs = list(((definition.get("outputDefinitions") or {}).get("artifacts") or {}).items())
    if len(outputs) != 1:
        raise Unsupported("an importer without an artifact")
    address = importer.get("artifactUri") or {}
    parameter = address.get("runtimeParameter")
    uri = f"{{{{$.inputs.parameters['{parameter}']}}}}" if parameter else str(address.get("constant") or "")
    if not uri:
        raise Unsupported("an importer without an address: its artifactUri has neither constant nor runtimeParameter")
    if not parameter and "{{$" not in uri and is_relative(uri):
        raise Unsupported(f"an importer whose address, {uri}, {RELATIVE}")
    name, output = outputs[0]
    schema = importer.get("typeSchema") or output.get("artifactType") or {}
    return Importer(
        output=name,
        uri=uri,
        schema=str(schema.get("schemaTitle") or "system.Artifact"),
        version=str(schema.get("schemaVersion") or "0.0.1"),
        metadata=whole_numbers(importer.get("metadata") or {}),
    )


def _read_container(
    command: Sequence[str], args: Sequence[str], image: str, env: Any, kubernetes: Mapping[str, Any]
) -> Container:
    if not image:
        raise Unsupported("a container component without an image")
    security, shared = kubernetes.get("securityContext") or {}, kubernetes.get("enabledSharedMemory")
    try:
        user, group = (None if security.get(key) is None else int(security[key]) for key in ("runAsUser", "runAsGroup"))
        memory = None if shared is None else int(parse_quantity(str(shared.get("size") or 0)))
    except (ValueError, TypeError, AttributeError) as error:
        raise Unsupported(
            f"a container whose securityContext or enabledSharedMemory cannot be read: {error}"
        ) from error
    return Container(
        image,
        tuple(command),
        tuple(args),
        _environment(env),
        pull=str(kubernetes.get("imagePullPolicy") or ""),
        user=user,
        group=group,
        non_root=bool(security.get("runAsNonRoot")),
        shared_memory=memory,
    )


def _environment(env: Any) -> dict[str, str]:
    return {str(entry["name"]): str(entry.get("value", "")) for entry in env}


def _read_python_component(
    command: Sequence[str], args: Sequence[str], start: int, image: str, env: Any
) -> PythonComponent:
    function = _option(args, "--function_to_execute")
    if start + 1 >= len(command) or not function:
        raise Unsupported("a Python component whose source or function is missing from its command")
    module = command[start + 1]
    if re.search(r"^from kfp\.v2", module, re.MULTILINE):
        raise Unsupported("a Python component compiled by kfp 1; compile the pipeline again with kfp 2")
    _check_archive(module)
    if not re.search(rf"\b{re.escape(function)}\b", module):
        raise Unsupported(f"a Python component whose source does not define its function {function!r}")
    packages, kfp, urls, hosts = _read_installs(" ".join(command[:start]))
    return PythonComponent(
        module=module,
        function=function,
        packages=packages,
        index_urls=urls,
        trusted_hosts=hosts,
        env=_environment(env),
        image=image,
        kfp=kfp,
        command=tuple(command),
    )


def _check_archive(module: str) -> None:
    try:
        member = escaping_member(module)
    except ValueError as error:
        raise Unsupported(str(error)) from error
    if member is not None:
        raise Unsupported(f"the archive of its files has the member {member!r}, which points outside the archive")


def _option(args: Sequence[str], name: str) -> str:
    for index, arg in enumerate(args):
        if arg == name and index + 1 < len(args):
            return args[index + 1]
        if arg.startswith(f"{name}="):
            return arg.partition("=")[2]
    return ""


@lru_cache(maxsize=256)
def _read_installs(script: str) -> tuple[tuple[str, ...], str, tuple[str, ...], tuple[str, ...]]:
    """The packages, the SDK's own requirement, the index addresses and trusted hosts of every pip line of the script."""
    packages: list[str] = []
    urls: dict[str, None] = {}
    hosts: dict[str, None] = {}
    kfp = ""
    for match in _PIP_INSTALL.finditer(script):
        words = iter(_words(script[match.end() :].partition("\n")[0]))
        requirements: list[str] = []
        for word in words:
            if word in _VALUE_OPTIONS:
                (urls if _VALUE_OPTIONS[word] == "urls" else hosts)[next(words, "")] = None
            elif not word.startswith("-"):
                requirements.append(word)
        sdk = next((word for word in requirements if _KFP_ITSELF.match(word)), "")
        kfp = kfp or sdk
        packages += [
            word for word in requirements if word != sdk and not (sdk and word.startswith(_INSTALLED_WITH_KFP))
        ]
    return tuple(packages), kfp, tuple(urls), tuple(hosts)


def _words(line: str) -> list[str]:
    """The arguments of one pip command of a shell line. The SDK writes each requirement as a Python ``repr``."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("&|;"):
            break
        words.append(word)
    return words


_FINAL_STATUS, _CONFIG = "TASK_FINAL_STATUS", "TASK_CONFIG"


def component_of(ir_pass: IrPass, task: Mapping[str, Any], path: str) -> tuple[str, Mapping[str, Any]]:
    """The name and the definition of a task's component. Raises :class:`PipelineError` when it is missing."""
    name = (task.get("componentRef") or {}).get("name") or ""
    components = ir_pass.ir.get("components") or {}
    if name not in components:
        raise ir_pass.error(f"task {path}", f"its component {name!r} is not in components")
    return name, components[name]


def read_task(
    ir_pass: IrPass,
    names: Mapping[str, str],
    key: str,
    task: Mapping[str, Any],
    component: tuple[str, Mapping[str, Any]],
    path: str,
) -> TaskSpec | None:
    """Read one task; ``None`` if it uses an unsupported feature, which ``ir_pass`` records.

    ``names`` are the names of the tasks around it, by their keys in the document; ``key`` is its own.
    """
    before = len(ir_pass.unsupported)
    component_name, definition = component
    specs = read_input_specs(ir_pass, definition, path)
    outputs = read_output_specs(ir_pass, definition, path)
    executor, settings, policy = _read_executor(ir_pass, definition, path)
    parameters, artifacts = read_sources(ir_pass, names, task, specs[0], path)
    condition, loop = read_condition_of(ir_pass, task, path), read_loop(ir_pass, task, path)
    if loop is not None and executor is not None:
        ir_pass.refuse(path, "a loop over a component that is not a pipeline; write it as a dsl.ParallelFor")
    if len(ir_pass.unsupported) > before:
        return None
    for dangling in sorted(settings.inputs - set(parameters)):
        raise ir_pass.error(f"task {path}", f"its resources read the input {dangling!r}, which it does not receive")
    parameters |= {name: _renamed(source, names) for name, source in settings.sources.items()}
    caching = task.get("cachingOptions") or {}
    trigger = task.get("triggerPolicy") or {}
    return TaskSpec(
        name=names[key],
        component=component_name,
        dag=None if executor else component_name,
        executor=executor,
        parameters=parameters,
        artifacts=artifacts,
        after=upstream_of(names, task, parameters, artifacts),
        after_all=trigger.get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED",
        condition=condition,
        loop=loop,
        parameter_specs=specs[0],
        artifact_specs=specs[1],
        outputs=outputs,
        requests=settings.requests,
        limits=settings.limits,
        retry=_read_retry(ir_pass, task, settings, path),
        policy=policy,
        caching=bool(caching.get("enableCache")) and not _depends_on_run(parameters),
        cache_key=str(caching.get("cacheKey") or ""),
        constraints=settings.constraints,
        display_name=str((task.get("taskInfo") or {}).get("name") or key),
        labels=settings.labels,
        annotations=settings.annotations,
        pod_config=settings.pod_config,
        deferred=settings.deferred,
        extension=_task_config(settings, definition),
    )


def _renamed(source: Source, names: Mapping[str, str]) -> Source:
    return replace(source, task=names.get(source.task, source.task)) if isinstance(source, TaskOutput) else source


def _task_config(settings: TaskSettings, definition: Mapping[str, Any]) -> TaskConfig | None:
    parameters = (definition.get("inputDefinitions") or {}).get("parameters") or {}
    inputs = tuple(name for name, raw in parameters.items() if raw.get("parameterType") == _CONFIG)
    return TaskConfig(settings.passed, settings.config, inputs) if settings.passed.given or inputs else None


def _depends_on_run(parameters: Mapping[str, Source]) -> bool:
    """Whether a constant contains a placeholder that differs in every run, so that results cannot be shared."""
    text = json.dumps([source.value for source in parameters.values() if isinstance(source, Constant)])
    return "{{$.pipeline_" in text or "{{$.workspace_path" in text


def _read_executor(
    ir_pass: IrPass, definition: Mapping[str, Any], path: str
) -> tuple[PythonComponent | Container | Importer | PvcStep | None, TaskSettings, Layer | None]:
    if "dag" in definition:
        return None, TaskSettings(), None
    label = str(definition.get("executorLabel") or "")
    raw = ir_pass.executor(label, path)
    if "importer" in raw:
        return _read_importer(ir_pass, raw["importer"], definition, path), TaskSettings(), None
    kubernetes = ir_pass.setting("kubernetes", label)
    passed = read_passthrough(definition)
    key = (id(raw), id(kubernetes) if kubernetes else 0, passed)
    if key not in ir_pass.executors:
        try:
            executor = read_executor(raw, kubernetes)
        except Unsupported as error:
            ir_pass.refuse(path, str(error))
            return None, TaskSettings(), None
        try:
            settings = read_settings(raw.get("container") or {}, kubernetes, passed)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            what = f"its resources or kubernetes settings cannot be read: {error}"
            raise ir_pass.error(f"task {path}", what) from error
        if not passed.env and not isinstance(executor, PvcStep):
            executor = replace(executor, env={})
        if isinstance(executor, Container):  # only a container can have another user
            settings = replace(settings, ignored=tuple(key for key in settings.ignored if key != "securityContext"))
        ir_pass.executors[key] = executor, settings
    executor, settings = ir_pass.executors[key]
    ir_pass.ignored.update(dict.fromkeys(settings.ignored))
    policy = read_policy(ir_pass, ir_pass.setting("spotwright", label), f"task {path}")
    return executor, settings, policy


def _read_importer(
    ir_pass: IrPass, importer: Mapping[str, Any], definition: Mapping[str, Any], path: str
) -> Importer | None:
    try:
        return read_importer(importer, definition)
    except Unsupported as error:
        ir_pass.refuse(path, str(error))
        return None


def _read_retry(ir_pass: IrPass, task: Mapping[str, Any], settings: TaskSettings, path: str) -> Layer | None:
    try:
        return read_retry(task.get("retryPolicy"), settings.timeout)
    except ValueError as error:
        raise ir_pass.error(f"task {path}", f"its retryPolicy cannot be read: {error}") from error


def read_policy(ir_pass: IrPass, entry: Mapping[str, Any], place: str) -> Layer | None:
    """Read the policy that a compiled pipeline carries as one JSON text under ``policy``; ``None`` when it has none."""
    if "policy" not in entry:
        return None
    try:
        return read_policy_text(entry["policy"])
    except PolicyValueError as error:
        raise ir_pass.error(place, f"platforms.spotwright: {error}") from error
    except (ValueError, TypeError) as error:
        raise ir_pass.error(place, f"platforms.spotwright: its policy is not valid JSON: {error}") from error


def read_input_specs(
    ir_pass: IrPass, definition: Mapping[str, Any], path: str
) -> tuple[dict[str, ParameterSpec], dict[str, ArtifactSpec]]:
    """The declared inputs of a component."""
    inputs = definition.get("inputDefinitions") or {}
    return _parameter_specs(ir_pass, inputs, path), _artifact_specs(inputs)


def read_output_specs(ir_pass: IrPass, definition: Mapping[str, Any], path: str) -> OutputSpecs:
    """The declared outputs of a component. Their names become file names, so they may hold no slash."""
    outputs = definition.get("outputDefinitions") or {}
    specs = OutputSpecs(_parameter_specs(ir_pass, outputs, path), _artifact_specs(outputs))
    for name in (*specs.parameters, *specs.artifacts):
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            raise ir_pass.error(f"task {path}" if path else "root", f"its output {name!r} cannot be a file name")
    for name, spec in specs.artifacts.items():
        if spec.is_list and "dag" not in definition:
            ir_pass.refuse(
                path, f"its output {name} is a list of artifacts, which only a pipeline can have (dsl.Collected)"
            )
    return specs


def _parameter_specs(ir_pass: IrPass, group: Mapping[str, Any], path: str) -> dict[str, ParameterSpec]:
    parameters = group.get("parameters") or {}
    if id(parameters) in ir_pass.parameter_specs:
        return ir_pass.parameter_specs[id(parameters)]
    specs = {}
    for name, raw in parameters.items():
        kind = str(raw.get("parameterType") or raw.get("type") or "")
        supplied = {_CONFIG: True, _FINAL_STATUS: False}.get(
            kind
        )  # the engine supplies a config; a status needs a source
        kind = kind if supplied is None else "STRUCT"
        place = f"task {path}" if path else "root"
        if kind not in KINDS:
            raise ir_pass.error(place, f"parameter {name} has the unknown type {kind!r}")
        default = raw.get("defaultValue")
        try:
            specs[name] = ParameterSpec(
                type=kind,
                optional=bool(raw.get("isOptional")) if supplied is None else supplied,
                has_default="defaultValue" in raw,
                default=None if default is None else coerce(default, kind),
                description=str(raw.get("description") or ""),
                literals=tuple(coerce(each, kind) for each in raw.get("literals") or ()),
            )
            specs[name].check(specs[name].default)
        except ValueError as error:
            raise ir_pass.error(place, f"the default of parameter {name}: {error}") from error
    if specs:
        ir_pass.parameter_specs[id(parameters)] = specs
    return specs


def _artifact_specs(group: Mapping[str, Any]) -> dict[str, ArtifactSpec]:
    specs = {}
    for name, raw in (group.get("artifacts") or {}).items():
        kind = raw.get("artifactType") or {}
        specs[name] = ArtifactSpec(
            schema=str(kind.get("schemaTitle") or "system.Artifact"),
            version=str(kind.get("schemaVersion") or "0.0.1"),
            is_list=bool(raw.get("isArtifactList")),
            optional=bool(raw.get("isOptional")),
            metadata=whole_numbers(raw.get("metadata") or {}),
            description=str(raw.get("description") or ""),
        )
    return specs
