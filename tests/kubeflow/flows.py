"""Workflows as KFP's backends leave them in a run's answers: with names, ids and children as Argo makes them.

``retried``: as the backend 2.17 with its stock configuration, which puts a try ``(0)`` around every node; else as 2.16.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

__all__ = ["BEGIN", "Flow", "Place", "Try"]

BEGIN = 1_790_000_000.0
"""When the first node of every Workflow began, in Unix seconds."""

_STATES = {"Error": "FAILED", "Omitted": "RUNTIME_STATE_UNSPECIFIED"}
_YEAR_ONE = "0001-01-01T00:00:00Z"


class Try(NamedTuple):
    """One pod of a task. Times are seconds since the Workflow's begin; ``ended`` is None while it runs."""

    phase: str = "Succeeded"
    message: str = ""
    host: str = "n1"
    began: float = 1.0
    ended: float | None = 2.0
    exit_code: int | None = None


class Place(NamedTuple):
    """A DAG in which tasks are: the whole name of its node."""

    name: str


class Flow:
    """A Workflow under way. Every method replaces the earlier state of the same nodes."""

    def __init__(self, name: str = "digits-abcde", *, retried: bool = True) -> None:
        self.name, self.retried = name, retried
        self.nodes: dict[str, dict[str, Any]] = {}
        self.spec: dict[str, Any] = {"serviceAccountName": "pipeline-runner"}
        self._add(name, "DAG", "Running", None)
        self._pod_under(name, f"{self._inside(name)}.root-driver")
        self.root = Place(self._inside(self._add(f"{self._inside(name)}.root", "DAG", "Running", name)))

    def _inside(self, name: str) -> str:
        return f"{name}(0)" if self.retried else name

    def _add(self, name: str, kind: str, phase: str, parent: str | None, **more: Any) -> str:
        """Add a node inside another one, with the try around it."""
        parts = [(name, "Retry"), (f"{name}(0)", kind)] if self.retried else [(name, kind)]
        for each, its_kind in parts:
            node = self.nodes.setdefault(each, {"name": each, "children": []})
            node |= {"type": its_kind, "phase": phase, "displayName": _display(each, self.name), "id": self._id(each)}
            node |= {"startedAt": _at(more.get("began", 0.0)), "finishedAt": _at(more.get("ended"))}
            node |= {key: more[key] for key in ("message", "inputs", "outputs", "hostNodeName") if more.get(key)}
        if self.retried:
            self._adopt(name, f"{name}(0)")
        if parent is not None:
            self._adopt(self._inside(parent), name)
        return name

    def _adopt(self, parent: str, child: str) -> None:
        children = self.nodes[parent]["children"]
        if self._id(child) not in children:
            children.append(self._id(child))

    def _pod_under(self, parent: str, name: str, phase: str = "Succeeded", **more: Any) -> str:
        return self._add(name, "Pod", phase, parent, **more)

    def _id(self, name: str) -> str:
        if name == self.name:
            return name
        number = 2166136261
        for byte in name.encode():
            number = ((number ^ byte) * 16777619) % 2**32
        return f"{self.name}-{number}"

    # -- what happens

    def task(
        self,
        name: str,
        *tries: Try,
        phase: str = "",
        place: Place | None = None,
        cached: bool = False,
        message: str = "",
        inputs: Mapping[str, Any] | None = None,
        artifacts: Mapping[str, str] | None = None,
        execution: int = 1,
    ) -> None:
        """A task with its driver and its pods. ``phase``: by default that of the last try; ``execution``: its number in MLMD."""
        around = (place or self.root).name
        phase = phase or (tries[-1].phase if tries else "Succeeded")
        outputs = {
            "pod-spec-patch": _patch(inputs or {}, artifacts or {}, execution),
            "cached-decision": str(cached).lower(),
        }
        listed = [{"name": key, "value": value} for key, value in outputs.items()]
        driver = f"{around}.{name}-driver"
        self._add(driver, "Pod", "Succeeded", None, outputs={"exitCode": "0", "parameters": listed})
        self._adopt(around, driver)
        ended = None if phase == "Running" else max([2.0, *(each.ended or 0.0 for each in tries)])
        began = tries[0].began if tries else 0.0
        task = self._add(f"{around}.{name}", "DAG", phase, None, began=began, ended=ended, message=message)
        self._adopt(self._inside(driver), task)
        if tries or cached:
            self._executor(task, phase, tries)

    def _executor(self, task: str, phase: str, tries: Sequence[Try]) -> None:
        executor = f"{self._inside(task)}.executor"
        if not tries:
            self.nodes[executor] = self._plain(executor, "Skipped", "Skipped")
        elif len(tries) == 1 and not self.retried:
            self.nodes[executor] = self._pod(executor, tries[0])
        else:
            self.nodes[executor] = self._plain(executor, "Retry", phase, began=tries[0].began, ended=tries[-1].ended)
            for number, each in enumerate(tries):
                self.nodes[f"{executor}({number})"] = self._pod(f"{executor}({number})", each)
                self._adopt(executor, f"{executor}({number})")
        self._adopt(self._inside(task), executor)

    def _plain(
        self, name: str, kind: str, phase: str, *, began: float = 0.0, ended: float | None = 0.0
    ) -> dict[str, Any]:
        times = {"startedAt": _at(began), "finishedAt": _at(ended)}
        ids = {"id": self._id(name), "name": name, "displayName": _display(name, self.name)}
        return {**ids, "type": kind, "phase": phase, "children": [], **times}

    def _pod(self, name: str, each: Try) -> dict[str, Any]:
        node = self._plain(name, "Pod", each.phase, began=each.began, ended=each.ended)
        code = {"exitCode": str(each.exit_code)} if each.exit_code is not None else {}
        return {**node, "message": each.message, "hostNodeName": each.host, "outputs": code}

    def left_out(self, name: str, why: str = "when 'false != true' evaluated false") -> None:
        """A task whose condition does not hold, with the driver that says so."""
        self._add(f"{self.root.name}.{name}-driver", "Pod", "Succeeded", None)
        self._adopt(self.root.name, f"{self.root.name}.{name}-driver")
        node = f"{self.root.name}.{name}"
        self.nodes[node] = self._plain(node, "Skipped", "Skipped") | {"message": why}
        self._adopt(self._inside(f"{self.root.name}.{name}-driver"), node)

    def pipeline(self, name: str, phase: str = "Running") -> Place:
        """A pipeline inside the pipeline."""
        around = self.root.name
        node = self._add(f"{around}.{name}", "DAG", phase, None, ended=None if phase == "Running" else 9.0)
        self._adopt(around, node)
        return Place(self._inside(node))

    def loop(self, name: str, count: int, phase: str = "Running") -> list[Place]:
        """A loop with its iterations."""
        around = self.pipeline(name, phase).name
        group = f"{around}.iteration-iterations"
        self.nodes[group] = self._plain(group, "TaskGroup", phase, ended=None if phase == "Running" else 9.0)
        self._adopt(around, group)
        places = []
        for number in range(count):
            iteration = self._add(f"{group}({number}:{number})", "DAG", phase, None)
            self._adopt(group, iteration)
            item = self._add(f"{self._inside(iteration)}.iteration-item", "DAG", phase, None)
            self._adopt(self._inside(iteration), item)
            places.append(Place(self._inside(item)))
        return places

    def exit_hook(self, name: str, phase: str = "Running") -> Place:
        """The hook of an exit handler, in which its exit task runs: its name is that of the handler with ``onExit``."""
        handler = f"{self.root.name}.{name}"
        node = self._add(f"{handler}.onExit", "DAG", phase, None)
        self.nodes[node]["displayName"] = f"{name}.onExit"
        self._adopt(self._inside(handler), node)
        return Place(self._inside(node))

    def terminated(self) -> Flow:
        """A user has terminated the run: the backend's changes to the Workflow."""
        self.spec["activeDeadlineSeconds"] = 0
        return self

    def end(self, phase: str = "Succeeded") -> Flow:
        """The whole Workflow has ended."""
        for name in (self.name, f"{self._inside(self.name)}.root"):
            for each in dict.fromkeys((name, self._inside(name))):
                self.nodes[each] |= {"phase": phase, "finishedAt": _at(10.0)}
        return self

    # -- what the server tells of it

    def workflow(self) -> dict[str, Any]:
        """The object, as v1beta1 has it."""
        status = {"phase": self.nodes[self.name]["phase"], "nodes": {node["id"]: node for node in self.nodes.values()}}
        meta = {"name": self.name, "namespace": "team-a"}
        return {"kind": "Workflow", "metadata": meta, "spec": dict(self.spec), "status": json.loads(json.dumps(status))}

    def details(self) -> list[dict[str, Any]]:
        """The ``task_details`` of v2beta1: no names, no messages, ids of children alone."""
        return list(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        for number, node in enumerate(self.nodes.values()):
            row = {
                "run_id": "r",
                "task_id": f"00000000-{number:04d}",
                "display_name": node["displayName"],
                "create_time": _at(0.0),
                "start_time": node["startedAt"],
                "end_time": node["finishedAt"] or _YEAR_ONE,
                "state": _STATES.get(node["phase"], node["phase"].upper()),
            }
            children = [{"pod_name": child} for child in node["children"]]
            yield {**row, "child_tasks": children} if children else row


def _display(name: str, workflow: str) -> str:
    depth = begin = 0
    for index, letter in enumerate(name):
        depth += (letter == "(") - (letter == ")")
        if letter == "." and not depth:
            begin = index + 1
    return name[begin:] if begin or name.startswith(workflow) else name


def _at(offset: float | None) -> str | None:
    if offset is None:
        return None
    return datetime.fromtimestamp(BEGIN + offset, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _patch(inputs: Mapping[str, Any], artifacts: Mapping[str, str], execution: int) -> str:
    """The driver's patch for the pod of a task, which names the task's inputs and outputs."""
    written = {
        name: {"artifacts": [{"name": name, "type": {"schemaTitle": "system.Model"}, "uri": uri}]}
        for name, uri in {**artifacts, "executor-logs": "minio://logs"}.items()
    }
    given = {"inputs": {"parameterValues": dict(inputs)}, "outputs": {"artifacts": written}}
    command = ["launch", "--execution_id", str(execution), "--executor_input", json.dumps(given), "--"]
    return json.dumps({"containers": [{"name": "main", "command": command}]})
