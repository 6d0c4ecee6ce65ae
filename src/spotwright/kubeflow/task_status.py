"""Each task's status by the nodes of a run's Workflow: whether it runs, its tries, its end and the end's signals.

A server of Kubeflow Pipelines reports the nodes in two answers. v1beta1 has the Workflow itself: names, messages, machines,
inputs and outputs. v2beta1 has ``task_details``: each node's display name, state, times, and the ids of its children, but
neither its own id nor its name (backend ``api_converter.go``, ``toApiPipelineTaskDetail``). Ids derive from names, so the names
can be recovered: Argo's ``NodeID`` is the Workflow's name with the FNV-1a hash of the node's (``workflow_types.go``), and a
node's name is its parent's with its own display name. Nodes without children stay unknown; they are left out if several share a
display name.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from spotwright.cluster.workloads import workflow_task
from spotwright.kube.object_fields import seconds
from spotwright.model.attempts import ContainerEnd, Signals

__all__ = ["Node", "SeenTask", "nodes_of_details", "nodes_of_workflow", "seen_tasks", "signals_of"]


_PHASES = {
    "PENDING": "Pending",
    "RUNNING": "Running",
    "CANCELING": "Running",
    "PAUSED": "Running",
    "SUCCEEDED": "Succeeded",
    "SKIPPED": "Skipped",
    "FAILED": "Failed",
    "CANCELED": "Failed",
    "RUNTIME_STATE_UNSPECIFIED": "Omitted",  # the backend lacks Argo's Omitted
}
_FNV_BASIS, _FNV_PRIME = 2166136261, 16777619
_TRY = re.compile(r"\(\d+\)$")
_EXPANDED = re.compile(r"\(\d+:")
_PART = re.compile(r"\([^)]{0,1000}\)|\.?[^.(]+")


class Node(NamedTuple):
    """One node of a Workflow. ``name`` is its whole name, ``phase`` is Argo's. Times are Unix seconds.

    ``kind`` is Argo's type (``Pod``, ``DAG`` ...), ``host`` the machine of a pod. Fields that a source does not report are
    empty.
    """

    name: str
    phase: str
    started_at: float | None = None
    finished_at: float | None = None
    kind: str = ""
    message: str = ""
    host: str = ""
    exit_code: int | None = None
    inputs: Mapping[str, str] = MappingProxyType({})
    outputs: Mapping[str, str] = MappingProxyType({})

    @property
    def has_ended(self) -> bool:
        """Whether it is final."""
        return self.phase not in ("", "Pending", "Running")

    @property
    def was_left_out(self) -> bool:
        """Whether it never ran: its condition was false, or a task before it did not run."""
        return self.phase in ("Skipped", "Omitted")


def nodes_of_workflow(workflow: Mapping[str, Any]) -> list[Node]:
    """The nodes of a Workflow object, which the controller compresses if they are many."""
    status = workflow.get("status") or {}
    nodes = status.get("nodes")
    if not nodes and status.get("compressedNodes"):
        nodes = json.loads(gzip.decompress(base64.b64decode(status["compressedNodes"])))
    return [_of_argo(node) for node in (nodes or {}).values()]


def _of_argo(node: Mapping[str, Any]) -> Node:
    outputs = node.get("outputs") or {}
    code = str(outputs.get("exitCode", ""))
    return Node(
        str(node.get("name", "")),
        str(node.get("phase", "")),
        seconds(node.get("startedAt")),
        seconds(node.get("finishedAt")),
        str(node.get("type", "")),
        str(node.get("message", "")),
        str(node.get("hostNodeName", "")),
        int(code) if code.isdecimal() else None,
        dict(_values(node.get("inputs") or {})),
        dict(_values(outputs)),
    )


def _values(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for parameter in section.get("parameters") or ():
        if "value" in parameter:
            yield str(parameter.get("name", "")), str(parameter["value"])


def nodes_of_details(details: Sequence[Mapping[str, Any]]) -> list[Node]:
    """The nodes of ``task_details`` whose names can be found."""
    rows = [row for row in details if row.get("display_name")]
    names = _names_by_id(rows)
    found: list[Node] = []
    rest: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        name = _own_name(row, names)
        if name:
            found.append(_of_detail(name, row))
        else:
            rest.setdefault(str(row["display_name"]), []).append(row)
    taken = {node.name for node in found}
    for display, alike in rest.items():
        free = [name for name in names.values() if name not in taken and _display(name) == display]
        were_left_out = all(_of_detail("", row).was_left_out for row in alike)
        if len(free) == len(alike) and (len(free) == 1 or were_left_out):
            found += [_of_detail(name, row) for name, row in zip(free, alike, strict=True)]
    return found


def _of_detail(name: str, row: Mapping[str, Any]) -> Node:
    phase = _PHASES.get(str(row.get("state", "")), "")
    started = seconds(row.get("start_time"))
    finished = seconds(row.get("end_time"))
    message = str((row.get("error") or {}).get("message", ""))
    return Node(name, phase, started, finished, message=message)


def _children(row: Mapping[str, Any]) -> list[str]:
    return [str(child["pod_name"]) for child in row.get("child_tasks") or () if child.get("pod_name")]


def _names_by_id(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The names of all child nodes, by their ids: found by trial from the Workflow's node inwards."""
    wanted = {child for row in rows for child in _children(row)}
    workflow = next(iter(wanted), "").rpartition("-")[0]
    displays = {str(row["display_name"]) for row in rows}
    suffixes = {f".{display}" for display in displays if "(" not in display}
    suffixes |= {f"({display.partition('(')[2]}" for display in displays if "(" in display and not _is_nested(display)}
    found: dict[str, str] = {}
    open_names = [workflow]
    while open_names:
        name = open_names.pop()
        begun = _fnv(name)
        for suffix in suffixes:
            node_id = f"{workflow}-{_fnv(suffix, begun)}"
            if node_id in wanted and node_id not in found:
                found[node_id] = name + suffix
                open_names.append(found[node_id])
    return found


def _is_nested(display: str) -> bool:
    """Whether a display name has the number of a try beside that of an iteration: ``item(0:a)(1)`` is a try of ``item(0:a)``."""
    return _EXPANDED.search(display) is not None and _TRY.search(display) is not None


def _fnv(text: str, begun: int = _FNV_BASIS) -> int:
    """The 32-bit FNV-1a hash; ``begun``: that of the text before."""
    for byte in text.encode():
        begun = ((begun ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return begun


def _own_name(row: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The name of a row from the names of the nodes inside it; empty without such nodes."""
    display = str(row["display_name"])
    for child in _children(row):
        around = [name for name in _around(names.get(child, "")) if _display(name) == display]
        if around:
            return around[-1]
    return ""


def _around(name: str) -> Iterator[str]:
    """The names of the nodes around one, outermost first: ``w``, ``w.root`` and ``w.root(0)`` for ``w.root(0).train``."""
    ends = [match.end() for match in _PART.finditer(name)]
    yield from (name[:end] for end in ends[:-1])


def _display(name: str) -> str:
    """The display name in a node's name: its last part with all its numbers."""
    begin = 0
    for match in _PART.finditer(name):
        if match[0].startswith("."):
            begin = match.start() + 1
    return name[begin:]


_LAST = re.compile(r"([^.()]+)(\([^)]{0,1000}\))*$")
_ITERATION = re.compile(r"\.iteration-iterations\((\d+):")
_TRIED = re.compile(r"\(\d+\)$")
_LOGS = "executor-logs"  # an artifact that the launcher adds to every task


class SeenTask(NamedTuple):
    """One task as the Workflow shows it. Moments are Unix seconds.

    ``tries`` are its distinguishable pods in order; ``failed_driver`` is the message of a failed driver, ``iterations`` a
    loop's number of iterations so far. ``inputs`` are the values of its input parameters, ``artifacts`` the addresses of its
    output artifacts; ``execution_id`` is its number in KFP's metadata store.
    """

    path: str
    node: Node
    tries: Sequence[Node] = ()
    is_cached: bool = False
    failed_driver: str | None = None
    iterations: int | None = None
    execution_id: int | None = None
    inputs: Mapping[str, Any] = MappingProxyType({})
    artifacts: Mapping[str, Any] = MappingProxyType({})


def seen_tasks(nodes: Iterable[Node]) -> dict[str, SeenTask]:
    """The nodes' tasks by path, as in a local run: ``loop/train-3``."""
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(workflow_task(node.name, is_kfp=True).path, []).append(node)
    seen = {}
    for path, group in groups.items():
        own = _own(path, group)
        if own is not None:
            drivers = [node for each in _driver_paths(path) for node in groups.get(each, ())]
            seen[path] = _seen(path, own, group, [node for node in drivers if _is_driver_of(node, own)])
    return seen


def _own(path: str, group: Iterable[Node]) -> Node | None:
    """The task's own node: the outermost one of its name, and the newest if the DAG around it was retried."""
    named = [node for node in group if _last(node) not in {"executor", "iteration-iterations", "iteration-item"}]
    alike = [node for node in named if path.rpartition("/")[2].startswith(_last(node))]
    return min(alike, key=_outwardness, default=None)


def _outwardness(node: Node) -> tuple[int, bool, float]:
    return node.name.count("."), _TRIED.search(node.name) is not None, -(node.started_at or 0.0)


def _last(node: Node) -> str:
    """The last name in a node's name, without its numbers."""
    found = _LAST.search(node.name)
    return found[1] if found else ""


def _driver_paths(path: str) -> tuple[str, ...]:
    """The paths under which a task's driver may be found: ``train-driver``, of an iteration ``train-driver-3``."""
    head, dash, number = path.rpartition("-")
    return (f"{path}-driver", *((f"{head}-driver-{number}",) if dash and number.isdecimal() else ()))


def _is_driver_of(driver: Node, own: Node) -> bool:
    return driver.name.startswith(f"{own.name}-driver")


def _seen(path: str, own: Node, group: Sequence[Node], drivers: Sequence[Node]) -> SeenTask:
    pods = [node for node in group if node.kind == "Pod" and not node.was_left_out and _is_try(node, own)]
    pods.sort(key=lambda node: (node.started_at or 0.0, len(node.name), node.name))
    iterations = {int(found) for node in group for found in _ITERATION.findall(node.name.removeprefix(own.name))}
    patch = next((driver.outputs["pod-spec-patch"] for driver in drivers if "pod-spec-patch" in driver.outputs), "")
    command = _command(patch)
    given = _executor_input(command)
    execution = _argument(command, "--execution_id")
    outputs = (given.get("outputs") or {}).get("artifacts") or {}
    return SeenTask(
        path,
        own,
        tuple(pods),
        is_cached=any(driver.outputs.get("cached-decision") == "true" for driver in drivers),
        failed_driver=next((driver.message for driver in drivers if driver.phase in {"Failed", "Error"}), None),
        iterations=len(iterations) if iterations or _has_iterations(group) else None,
        execution_id=int(execution) if execution.isdecimal() else None,
        inputs=(given.get("inputs") or {}).get("parameterValues") or {},
        artifacts={name: _artifacts(value) for name, value in outputs.items() if name != _LOGS},
    )


def _is_try(node: Node, own: Node) -> bool:
    return _last(node) in {"executor", _last(own)}


def _has_iterations(group: Iterable[Node]) -> bool:
    """Whether a loop has begun or has no items: the node of all its iterations exists."""
    return any(_last(node) == "iteration-iterations" for node in group)


def _artifacts(value: Mapping[str, Any]) -> Any:
    """One artifact as the launcher writes it, or a list of them."""
    listed = value.get("artifacts") or []
    return listed[0] if len(listed) == 1 else listed


def _command(patch: str) -> list[str]:
    """The command of a task's pod in its driver's message: KFP's launcher with its arguments."""
    try:
        return [str(word) for each in json.loads(patch)["containers"] for word in each.get("command") or ()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _argument(command: Sequence[str], option: str) -> str:
    place = command.index(option) + 1 if option in command else len(command)
    return command[place] if place < len(command) else ""


def _executor_input(command: Sequence[str]) -> Mapping[str, Any]:
    """The launcher's arguments for the task's code."""
    try:
        given = json.loads(_argument(command, "--executor_input"))
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


_EXIT = re.compile(r"main: (\w+) \(exit code (\d+)\)")
_INIT = re.compile(r"^(init|wait): ")
_DELETED = "pod deleted"
_DEADLINE = "longer than the specified deadline"


def signals_of(node: Node, *, cancelled: bool = False) -> Signals:
    """The signals of an ended try. ``cancelled``: the run was cancelled before."""
    if node.phase == "Succeeded":
        return Signals(exit_code=0, outputs_complete=True, phase=node.phase)
    exit_text = _EXIT.search(node.message)
    code = int(exit_text[2]) if exit_text else node.exit_code
    main = ContainerEnd("main", code, reason=exit_text[1]) if exit_text else None
    return Signals(
        exit_code=code,
        cancelled=cancelled,
        timed_out=_DEADLINE in node.message,
        pod_deleted=node.message == _DELETED,
        start_error=node.message if _INIT.match(node.message) else "",
        phase="Failed",
        message=node.message,
        containers=() if main is None else (main,),
    )
