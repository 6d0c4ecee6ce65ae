"""What the nodes of a Workflow say of each task of the pipeline: whether it runs, its tries, how it ended, what it wrote.

KFP's backend makes several nodes of one task (seen in Workflows of the backends 2.16.1 and 2.17.0): ``train-driver`` reads its
inputs and looks for an earlier result, ``train`` is the task, ``train.executor`` its tries, each a pod; a loop has
``iteration-iterations`` with a node for each iteration. The backend 2.17 puts a try ``(0)`` around every one of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from spotwright.cluster.workloads.tasks import workflow_task
from spotwright.kubeflow.nodes import Node

__all__ = ["SeenTask", "seen_tasks"]

_LAST = re.compile(r"([^.()]+)(\([^)]*\))*$")
_ITERATION = re.compile(r"\.iteration-iterations\((\d+):")
_TRIED = re.compile(r"\(\d+\)$")
_LOGS = "executor-logs"  # an artifact that the launcher adds to every task


class SeenTask(NamedTuple):
    """One task as the Workflow shows it. Moments are Unix seconds.

    ``tries`` are its pods in their order, as far as they can be told apart; ``failed_driver`` is the message of a driver that
    failed, ``iterations`` the number of a loop's iterations so far. ``inputs`` are the values of its input parameters,
    ``artifacts`` where its output artifacts lie; ``execution_id`` is its number in KFP's metadata store.
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
    """The tasks that the nodes are of, by path. Paths are those of a local run: ``loop/train-3``."""
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
    """The node of the task itself: the outermost one of its name, and where the DAG around it was tried again the newest."""
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
    """Whether a loop has begun or has nothing to do: the node of all its iterations is there."""
    return any(_last(node) == "iteration-iterations" for node in group)


def _artifacts(value: Mapping[str, Any]) -> Any:
    """One artifact as the launcher writes it, or a list of them."""
    listed = value.get("artifacts") or []
    return listed[0] if len(listed) == 1 else listed


def _command(patch: str) -> list[str]:
    """The command of a task's pod in what its driver says of it: KFP's launcher with its arguments."""
    try:
        return [str(word) for each in json.loads(patch)["containers"] for word in each.get("command") or ()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _argument(command: Sequence[str], option: str) -> str:
    place = command.index(option) + 1 if option in command else len(command)
    return command[place] if place < len(command) else ""


def _executor_input(command: Sequence[str]) -> Mapping[str, Any]:
    """What the launcher hands to the task's code."""
    try:
        given = json.loads(_argument(command, "--executor_input"))
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}
