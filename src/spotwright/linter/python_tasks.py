"""Pipelines in Python, read as the compiled pipelines that they would become, so that one form of a rule serves both.

The body of each pipeline is followed call by call, into functions of the same file that set tasks up. No code runs: only
constants are known, a computed value becomes a placeholder, and a task passed to a function of another file is left out,
because that function may set anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spotwright.kfp.dsl_compiler import KUBERNETES, METHODS, is_of_kubernetes
from spotwright.kinds.kind import product
from spotwright.linter.python_source import (
    PythonFile,
    components_code,
    in_components,
    keyword,
    name_of_call,
    pipelines_in,
)
from spotwright.linter.subjects import Pipeline
from spotwright.placing.context import SPOT_LABEL
from spotwright.placing.document_pair import EXECUTORS, PIPELINE, PLATFORMS
from spotwright.placing.documents import Path

__all__ = ["python_pipelines"]

_ORDER = ("after", "ignore_upstream_failure")  # methods of a task that do not affect its pod
_PREEMPTIBLE = "use_preemptible_nodepool"  # of kfp 1
_WISHES = ("never", "prefer", "require")
_COMPUTED = "{{...}}"
"""Stands for a value that the file computes."""

_DEEPEST = 8
_MOST_CALLS = 10_000
"""Calls that are followed in one pipeline: functions may call each other in a circle."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """Where the parts of a pipeline are set: the line of the call for each path."""

    file: str
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        return next(self.lines[path[:size]] for size in range(len(path), -1, -1) if path[:size] in self.lines)

    def show(self, _path: Path) -> str:
        return ""  # Python has no paths of fields

    def get(self, _path: Path, default: Any = None) -> Any:
        return default


def python_pipelines(file: PythonFile) -> Iterator[Pipeline]:
    """The pipelines of a file, and each function that sets up tasks which no pipeline of the file hands to it."""
    if not file.uses_kfp:
        return
    inside = in_components(file)
    functions = {
        node.name: node
        for node in file.nodes
        if isinstance(node, ast.FunctionDef) and node.body and id(node.body[0]) not in inside
    }
    pipelines = pipelines_in(file)
    code = components_code(file)
    constants = _constants(file.tree.body)
    entered: set[str] = set()
    for name, function in pipelines.items():
        yield _Reader(file, functions, pipelines, constants, entered, code).pipeline(name, function)
    for name, function in functions.items():
        if name not in entered and name not in pipelines:
            yield _Reader(file, functions, pipelines, constants, entered, code).pipeline(name, function)


def _constants(body: Iterable[ast.stmt]) -> dict[str, Any]:
    """The names of a module that are assigned once."""
    found: dict[str, Any] = {}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        for target in targets:
            if isinstance(node, ast.Assign) and isinstance(target, ast.Name):
                found[target.id] = _COMPUTED if target.id in found else _value(node.value, found)
    return found


@dataclass(slots=True, eq=False)
class _Task:
    """One task: its name, the line that makes it, and what the calls set, in the form of the compiled pipeline."""

    name: str
    line: int
    kubernetes: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    retry: dict[str, Any] | None = None
    lines: dict[Path, int] = field(default_factory=dict)  # below one of three keys: settings, container, task
    is_open: bool = False  # a function of another file may set it up too
    code: str = ""  # the source of its component, where the file has it
    times: int | None = 1  # parallel runs, by the loops around it; None: the file does not say
    claim: Mapping[str, Any] | None = None  # of a task that makes a volume claim: what it asks for

    @property
    def has_code(self) -> bool:
        """Whether the file has its component's source, so that a missing sign is meaningful."""
        return bool(self.code)

    def sets(self, name: str, given: Mapping[str, Any], line: int) -> None:
        """Record what a method of the task sets."""
        value = next(iter(given.values()), None)
        if name in ("set_accelerator_type", "set_accelerator_limit"):
            key = "resourceType" if name == "set_accelerator_type" else "resourceCount"
            self.resources.setdefault("accelerator", {})[key] = value
            self.lines.setdefault(("container", "resources", "accelerator"), line)
        elif name in _RESOURCES and value != _COMPUTED:
            self.resources[_RESOURCES[name]] = value
        elif name == "set_retry":
            self.retry = {_RETRY[key]: one for key, one in given.items() if key in _RETRY}
            self.retry.setdefault("backoffMaxDuration", "3600s")  # as the SDK writes it
            self.lines[("task", "retryPolicy")] = line

    def sets_kubernetes(self, name: str, given: Mapping[str, Any], line: int) -> None:
        """Record what a function of ``kfp.kubernetes`` sets."""
        if name == "add_toleration":
            self._append("tolerations", {_TOLERATION.get(key, key): one for key, one in given.items()}, line)
        elif name == "add_toleration_json":
            self._append("tolerations", {"tolerationJson": given.get("toleration_json")}, line)
        elif name == "add_node_selector":
            self._put(("nodeSelector", "labels"), given.get("label_key"), given.get("label_value"), line)
        elif name == "add_node_selector_json":
            labels = given.get("node_selector_json")
            for key, value in labels.items() if isinstance(labels, Mapping) else ():
                self._put(("nodeSelector", "labels"), key, value, line)
        elif name == "add_node_affinity":
            entry = {_AFFINITY[key]: value for key, value in given.items() if key in _AFFINITY}
            self._append("nodeAffinity", entry, line)
        elif name == "add_node_affinity_json":
            self._append("nodeAffinity", {"nodeAffinityJson": given.get("node_affinity_json")}, line)
        elif name in ("add_pod_label", "add_pod_annotation"):
            word = name.removeprefix("add_pod_")
            self._put(("podMetadata", f"{word}s"), given.get(f"{word}_key"), given.get(f"{word}_value"), line)
        else:
            self._sets_volume(name, given, line)

    def _sets_volume(self, name: str, given: Mapping[str, Any], line: int) -> None:
        """Record a time limit or a mounted volume."""
        mount = {"mountPath": str(given.get("mount_path")), "subPath": given.get("sub_path") or ""}
        if name == "set_timeout" and self.has_code:
            self.kubernetes["activeDeadlineSeconds"] = given.get("seconds")
            self.lines[("settings", "activeDeadlineSeconds")] = line
        elif name == "empty_dir_mount":
            self._append("emptyDirMounts", {**mount, "volumeName": given.get("volume_name")}, line)
        elif name == "mount_pvc":
            made = given.get("pvc_name")
            named = {"producerTask": made.task.name} if isinstance(made, _Output) else None
            self._append(
                "pvcMount", {**mount, **({"taskOutputParameter": named} if named else {"constant": made})}, line
            )

    def wishes(self, spot: str, given: Mapping[str, ast.expr], line: int) -> None:
        """Record what ``spot.prefer`` and the like set."""
        self._put(("podMetadata", "labels"), SPOT_LABEL, spot, line)
        if "gpus" in given:
            self.resources.setdefault("accelerator", {"resourceType": "nvidia.com/gpu", "resourceCount": _COMPUTED})

    def _append(self, name: str, entry: Any, line: int) -> None:
        entries = self.kubernetes.setdefault(name, [])
        self.lines[("settings", name, len(entries))] = line
        self.lines.setdefault(("settings", name), line)
        entries.append(entry)

    def _put(self, path: Sequence[str], key: Any, value: Any, line: int) -> None:
        mapping = self.kubernetes.setdefault(path[0], {}).setdefault(path[1], {})
        mapping[str(key)] = _COMPUTED if value is None else value
        for size in range(1, len(path) + 1):
            self.lines.setdefault(("settings", *path[:size]), line)
        self.lines[("settings", *path, str(key))] = line


class _Output(NamedTuple):
    """An output of a task, which is known only in a run."""

    task: _Task


_RESOURCES = {
    "set_cpu_limit": "resourceCpuLimit",
    "set_cpu_request": "resourceCpuRequest",
    "set_memory_limit": "resourceMemoryLimit",
    "set_memory_request": "resourceMemoryRequest",
}
_RETRY = {
    "num_retries": "maxRetryCount",
    "backoff_duration": "backoffDuration",
    "backoff_factor": "backoffFactor",
    "backoff_max_duration": "backoffMaxDuration",
}
_AFFINITY = {"match_expressions": "matchExpressions", "match_fields": "matchFields", "weight": "weight"}
_TOLERATION = {"toleration_seconds": "tolerationSeconds"}


@dataclass(slots=True)
class _Reader:
    """Follows the calls of one pipeline."""

    file: PythonFile
    functions: Mapping[str, ast.FunctionDef]
    pipelines: Mapping[str, ast.FunctionDef]
    constants: Mapping[str, Any]
    entered: set[str]
    components: Mapping[str, str]
    times: int | None = 1
    tasks: list[_Task] = field(default_factory=list)
    calls: int = 0

    def pipeline(self, name: str, function: ast.FunctionDef) -> Pipeline:
        """The pipeline of a function. Its arguments are values of a run, or the tasks that others hand to it."""
        arguments = [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
        is_pipeline = name in self.pipelines
        given: dict[str, Any] = dict.fromkeys(arguments, _COMPUTED)
        if not is_pipeline:
            given = {one: self._task(one, function.lineno) for one in arguments}
        self._body(function.body, {**self.constants, **given}, 0)
        tasks = [one for one in self.tasks if not one.is_open]
        return _compiled(self.file.file, name, function.lineno, tasks, has_all=is_pipeline)

    def _task(self, name: str, line: int) -> _Task:
        task = _Task(name, line)
        self.tasks.append(task)
        return task

    def _body(self, body: Iterable[ast.stmt], names: dict[str, Any], depth: int) -> Any:
        """Follow statements in order; the value of the last ``return``."""
        returned: Any = None
        for node in body:
            if isinstance(node, ast.Return):
                returned = self._eval(node.value, names, depth)
            elif isinstance(node, ast.Assign):
                self._assign(node, names, depth)
            elif isinstance(node, ast.For):
                self._loop(node, names, depth)
            elif not isinstance(node, ast.FunctionDef | ast.ClassDef):
                times = self.times
                for item in node.items if isinstance(node, ast.With) else ():
                    self.times = product(self.times, _iterations(item.context_expr, names))
                for inner in ast.iter_child_nodes(node):
                    given = inner.context_expr if isinstance(inner, ast.withitem) else inner
                    if isinstance(given, ast.expr):
                        self._eval(given, names, depth)
                for part in ("body", "orelse", "finalbody"):
                    returned = self._body(getattr(node, part, ()), names, depth) or returned
                self.times = times
        return returned

    def _assign(self, node: ast.Assign, names: dict[str, Any], depth: int) -> None:
        value = self._eval(node.value, names, depth)
        for target in node.targets:
            if isinstance(target, ast.Name):
                names[target.id] = value
                if isinstance(value, _Task):
                    value.name = target.id

    def _loop(self, node: ast.For, names: dict[str, Any], depth: int) -> None:
        """Each task of a list that the file writes out has the body's settings."""
        items = node.iter.elts if isinstance(node.iter, ast.List | ast.Tuple) else ()
        values = [self._eval(one, names, depth) for one in items]
        if not items:
            self._hand(node.iter, names)
        for value in values or [_COMPUTED]:
            if isinstance(node.target, ast.Name):
                names[node.target.id] = value
            self._body(node.body, names, depth)

    def _hand(self, node: ast.AST, names: Mapping[str, Any]) -> None:
        """Leave out the tasks that an expression passes on; a task's output does not count."""
        if isinstance(node, ast.Name) and isinstance(names.get(node.id), _Task):
            names[node.id].is_open = True
        for inner in () if isinstance(node, ast.Attribute) else ast.iter_child_nodes(node):
            self._hand(inner, names)

    def _eval(self, node: ast.expr | None, names: dict[str, Any], depth: int) -> Any:
        """The task or the value of an expression."""
        if isinstance(node, ast.Call):
            if isinstance(constant := _value(node, names), dict):
                return constant
            self.calls += 1
            return self._call(node, names, depth) if self.calls <= _MOST_CALLS else _COMPUTED
        if node is None:
            return None
        if isinstance(node, ast.Attribute | ast.Subscript):  # the output of a task is a value of the run
            found = self._eval(node.value, names, depth)
            made = found.task if isinstance(found, _Output) else found
            return _Output(made) if isinstance(made, _Task) else _COMPUTED
        if isinstance(node, ast.IfExp):
            self._eval(node.test, names, depth)
            if isinstance(node.test, ast.Constant):
                return self._eval(node.body if node.test.value else node.orelse, names, depth)
            found = self._eval(node.body, names, depth)
            return self._eval(node.orelse, names, depth) if found is None else found
        if isinstance(node, ast.Compare | ast.JoinedStr):  # these pass no task on
            return _COMPUTED
        if not isinstance(node, ast.Name):
            self._hand(node, names)
        return _value(node, names)

    def _call(self, call: ast.Call, names: dict[str, Any], depth: int) -> Any:
        name, line = name_of_call(call), call.lineno
        given = [self._eval(one, names, depth) for one in call.args]
        by_name = self._keywords(call, names, depth)
        if isinstance(call.func, ast.Attribute):
            owner = self._eval(call.func.value, names, depth)
            if isinstance(owner, _Task):
                return self._method(owner, call, name, given, by_name)
        first = given[0] if given else by_name.get("task")
        if isinstance(first, _Task) and name in KUBERNETES and is_of_kubernetes(call, name):
            values = dict(zip(KUBERNETES[name], given, strict=False)) | by_name
            values.pop("task", None)
            made = {key: value for key, value in values.items() if key == "pvc_name" and isinstance(value, _Output)}
            first.sets_kubernetes(name, {**_settings(values), **made}, line)
            return first
        if isinstance(first, _Task) and name in _WISHES and _is_of_spotwright(call):
            first.wishes(name, {one.arg: one.value for one in call.keywords if one.arg}, line)
            return first
        handed = [one for one in (*given, *by_name.values()) if isinstance(one, _Task)]
        function = self.functions.get(name)
        if function is not None and name not in self.pipelines and depth < _DEEPEST and isinstance(call.func, ast.Name):
            self.entered.add(name)
            return self._body(function.body, {**self.constants, **_bound(function, given, by_name)}, depth + 1)
        for one in handed:
            one.is_open = True
        return handed[0] if handed else self._made(name, line, by_name)

    def _made(self, name: str, line: int, by_name: Mapping[str, Any]) -> _Task:
        """The task that a call makes."""
        made = self._task(name, line)
        made.code, made.times = self.components.get(name, ""), self.times
        made.claim = by_name if name == "CreatePVC" else None
        return made

    def _keywords(self, call: ast.Call, names: dict[str, Any], depth: int) -> dict[str, Any]:
        """The arguments by their names, also those of a mapping behind ``**``."""
        by_name: dict[str, Any] = {}
        name = name_of_call(call)
        for one in call.keywords:
            value = self._eval(one.value, names, depth)
            if one.arg:
                by_name[one.arg] = value
            elif isinstance(value, Mapping):
                by_name |= {str(key): each for key, each in value.items()}
            else:  # any other argument, with an unknown value
                by_name = dict.fromkeys((*METHODS.get(name, ()), *KUBERNETES.get(name, ())), _COMPUTED) | by_name
        return by_name

    def _method(self, task: _Task, call: ast.Call, name: str, given: Sequence[Any], by_name: Mapping[str, Any]) -> Any:
        if name in METHODS:
            values = dict(zip(METHODS[name], given, strict=False)) | dict(by_name)
            line = (call.func.end_lineno if isinstance(call.func, ast.Attribute) else None) or call.lineno
            task.sets(name, _settings(values), line)
        elif name == "apply" and (used := next((one for one in call.args if _is_preemptible(one)), None)) is not None:
            hard = keyword(used, "hard_constraint") if isinstance(used, ast.Call) else None
            is_hard = isinstance(hard, ast.Constant) and hard.value is True
            task.wishes("require" if is_hard else "prefer", {}, call.lineno)
        elif name == "apply":
            task.is_open = True
        elif name not in _ORDER:  # a task has no other methods, so it is another object, which may set up what it gets
            for one in (*given, *by_name.values()):
                if isinstance(one, _Task):
                    one.is_open = True
        return task


def _is_preemptible(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and name_of_call(node) == _PREEMPTIBLE


def _iterations(node: ast.expr, names: Mapping[str, Any]) -> int | None:
    """The parallel iterations of a KFP loop; 1 for anything else, ``None`` if the file does not say."""
    if not isinstance(node, ast.Call) or name_of_call(node) != "ParallelFor":
        return 1
    given, limit = keyword(node, "items", 0), keyword(node, "parallelism")
    items = None if given is None else _value(given, names)
    most = 0 if limit is None else _value(limit, names)
    if not isinstance(items, list) or not isinstance(most, int):
        return None
    return min(len(items), most or len(items))


def _is_of_spotwright(call: ast.Call) -> bool:
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return owner in ("spot", "spotwright")


def _bound(function: ast.FunctionDef, given: Sequence[Any], by_name: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of the function; an omitted one has its default, if that is constant."""
    positional, keyword_only = function.args.args, function.args.kwonlyargs
    defaults = dict(zip(reversed(positional), reversed(function.args.defaults), strict=False))
    defaults |= {one: value for one, value in zip(keyword_only, function.args.kw_defaults, strict=True) if value}
    bound = {
        one.arg: _value(defaults[one], {}) if one in defaults else _COMPUTED for one in (*positional, *keyword_only)
    }
    return {**bound, **dict(zip((one.arg for one in positional), given, strict=False)), **by_name}


def _compiled(file: str, name: str, line: int, tasks: Iterable[_Task], *, has_all: bool) -> Pipeline:
    """The compiled pipeline of these tasks, with the lines of its parts.

    ``has_all``: false for a function whose tasks come from elsewhere, where they may have retries too.
    """
    lines: dict[Path, int] = {(): line}
    executors: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    components: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    times: dict[str, int | None] = {}
    for number, task in enumerate(tasks):
        label = task.name if task.name not in executors else f"{task.name}-{number}"
        node: dict[str, Any] = {"componentRef": {"name": label}, "taskInfo": {"name": label}}
        if task.claim is not None:  # its controller makes the claim, and no pod
            asked = {key: {"runtimeValue": {"constant": value}} for key, value in _settings(task.claim).items()}
            nodes[label] = {**node, "inputs": {"parameters": asked}}
            components[label], executors[label] = {"executorLabel": label}, {}
            continue
        container = {"image": "", "resources": task.resources, "env": [{"name": "", "value": task.code}]}
        executors[label] = {"container": container}
        settings[label] = task.kubernetes
        components[label] = {"executorLabel": label}
        if has_all or task.retry is not None:
            nodes[label] = node
        if task.retry is not None:
            node["retryPolicy"] = task.retry
        times[label] = task.times
        bases: dict[str, Path] = {
            "settings": (*PLATFORMS, *EXECUTORS, label),
            "container": (0, "deploymentSpec", "executors", label, "container"),
            "task": (*PIPELINE, "root", "dag", "tasks", label),
        }
        lines |= dict.fromkeys(bases.values(), task.line)
        lines |= {(*bases[str(path[0])], *path[1:]): at for path, at in task.lines.items()}
    value = {
        "pipelineInfo": {"name": name},
        "components": components,
        "deploymentSpec": {"executors": executors},
        "root": {"dag": {"tasks": nodes}},
    }
    platforms = {"kubernetes": {"deploymentSpec": {"executors": settings}}}
    return Pipeline(_Lines(file, lines), value, platforms, "task", times)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression, if the file determines it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, _COMPUTED)
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {
            str(_setting(_value(key, names))): _setting(_value(one, names)) for key, one in pairs if key is not None
        }
    if (
        isinstance(node, ast.Call)
        and name_of_call(node) == "dict"
        and not node.args
        and all(k.arg for k in node.keywords)
    ):
        return {str(one.arg): _setting(_value(one.value, names)) for one in node.keywords}
    if isinstance(node, ast.List | ast.Tuple):
        return [_setting(_value(one, names)) for one in node.elts]
    return _COMPUTED


def _setting(value: Any) -> Any:
    """A value as a setting: the result of a call counts as a value that the file computes, not as a task."""
    return _COMPUTED if isinstance(value, _Task | _Output) else value


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _setting(value) for name, value in given.items() if value is not None}
