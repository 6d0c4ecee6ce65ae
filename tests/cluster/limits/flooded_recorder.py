"""A process that records what one tenant makes, and says how much memory that took: ``python -m ... FOLDER STORY COUNT``.

The watcher with its recorder and its store are the real ones; the changes come one by one, as their streams would bring them.
One line of JSON is printed: ``rss``, the highest resident set in bytes, ``runs`` that are recorded now, and ``seconds``.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import at, pod

SIZE = 6_000
"""Characters of the variables of a pod: an Argo pod carries its whole template in one."""


def distinct_steps(made: SilentWatcher, count: int) -> None:
    """One pipeline whose steps all have separate templates, one after the other, each seen to its end."""
    run = workflow("pipeline", "team-b")
    made.put("Workflow", run)
    for number in range(count):
        one = step(run, number, phase="Running")
        made.put("Pod", one)
        made.put("Pod", step(run, number, phase="Succeeded", exit_code=0))
        made.pass_time(1)
        made.delete("Pod", one)


def templates_without_end(made: SilentWatcher, count: int) -> None:
    """A tenant's run of many pods that never start, each with a separate template of the maximum size."""
    run = workflow("flood", "team-a")
    made.put("Workflow", run)
    for number in range(count):
        one = step(run, number, tolerations=200)
        made.put("Pod", one)
        made.delete("Pod", one)


def runs_without_end(made: SilentWatcher, count: int) -> None:
    """A tenant's many runs that all go on, each with some pods that differ."""
    for number in range(count):
        run = workflow(f"flood-{number}", "team-a")
        made.put("Workflow", run)
        for other in range(10):
            one = step(run, other, tolerations=50)
            made.put("Pod", one)
            made.delete("Pod", one)


def nothing(_made: SilentWatcher, _count: int) -> None:
    """Only reopen the earlier records."""


STORIES: Mapping[str, Callable[[SilentWatcher, int], None]] = {
    each.__name__: each for each in (distinct_steps, templates_without_end, runs_without_end, nothing)
}


def workflow(name: str, namespace: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": f"{name:*<36}", "creationTimestamp": at(0)}
    return {"kind": "Workflow", "metadata": meta, "spec": {"templates": []}, "status": {"phase": "Running"}}


def step(run: dict[str, Any], number: int, *, tolerations: int = 3, **more: Any) -> dict[str, Any]:
    """A pod of a step as Argo makes it, with a template that no other step has."""
    name, namespace = run["metadata"]["name"], run["metadata"]["namespace"]
    annotations = {"workflows.argoproj.io/node-name": f"{name}.step-{number}", "note": f"{number}" * 20}
    made = pod(f"{name}-{number}", run, node="n1", namespace=namespace, annotations=annotations, **more)
    taints = [{"key": f"k{number}-{each}", "operator": "Exists", "effect": "NoSchedule"} for each in range(tolerations)]
    variable = {"name": "ARGO_TEMPLATE", "value": json.dumps({"name": f"step-{number}", "text": "x" * SIZE})}
    made["spec"]["tolerations"] = taints
    made["spec"]["containers"] = [
        {
            "name": "main",
            "image": f"registry.example/step:{number}",
            "env": [variable],
            "resources": {"requests": {"cpu": "1", "memory": f"{number + 1}Mi"}},
        }
    ]
    return made


def highest_memory() -> int:
    """The highest resident set of this program in bytes. That of ``getrusage`` begins with the process that started it."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def main(folder: str, story: str, count: str) -> None:
    began = time.monotonic()
    made = SilentWatcher(Path(folder))
    STORIES[story](made, int(count))
    runs = len(made.watcher._store.runs)
    made.close()
    rss = highest_memory()
    sys.stdout.write(json.dumps({"rss": rss, "runs": runs, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
