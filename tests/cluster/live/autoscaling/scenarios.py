"""Work that waits for an autoscaler, on the test bed: placed, sent, recorded, with the controller and without it.

The nodes are pretended by KWOK (``TESTBED_NODES=0 TESTBED_CONTROLLERS=kwok``), so their pods run until they are deleted. All
else is real. Whoever makes the nodes is up before :func:`play` is called: :mod:`tests.cluster.live.autoscaling.autoscaler`
or Karpenter.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from testbed.settings import Settings
from tests.cluster.live.autoscaling.timelines import Timeline, group_by_name
from tests.cluster.live.controllers import Controller, controller
from tests.cluster.live.kube import Kube, Object

__all__ = ["Case", "Outcome", "Play", "job_of", "place", "play"]

_POLL = 0.1  # seconds
_GONE = 60.0  # seconds until a namespace's pods are gone
_ROOT = Path(__file__).parents[4]


@dataclass(frozen=True)
class Case:
    """Work to send: a configuration, manifests before they are placed, and how many pods are to run in the end."""

    name: str
    config: str  # the text of spotwright.yaml
    manifests: Sequence[Object]
    pods: int
    seconds: float = 60.0  # the longest wait until all of them run
    settle: float = 5.0  # seconds after that in which nodes that were ordered may still come
    unplaced: Sequence[Object] = ()  # another team's work, which is sent as it is


@dataclass(frozen=True)
class Play:
    """A case under way: the handles for a deed in the middle."""

    kube: Kube
    namespace: str
    timeline: Timeline
    controller: Controller | None


Deed = tuple[float, Callable[[Play], None]]
"""An action so many seconds after the work was sent. It holds up the wait, not the record."""


@dataclass(frozen=True)
class Outcome:
    """The result of a case. Counts by group leave out earlier nodes."""

    name: str
    seconds: float | None  # from the sending until all pods ran at once; None if that was not within the time
    made: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    running: Mapping[str, int] = field(default_factory=dict)  # pods by group, in the end
    taken_back: int = 0  # pods that were evicted or deleted before a node had them
    ended: int = 0  # pods that were evicted or deleted on a node
    last_node: float = 0.0  # seconds until the last node was Ready
    timeline: Sequence[str] = ()

    def text(self) -> str:
        """The timeline, with a line about the case before it and the result after it."""
        result = f"== result {self.name} pods by group {dict(self.running)} nodes made {dict(self.made)}"
        more = f" taken back {self.taken_back} ended {self.ended} all run at {self.seconds}"
        return "\n".join([f"## case {self.name}", *self.timeline, result + more])


def place(folder: Path, config: str, manifests: Sequence[Object]) -> list[Object]:
    """The manifests as ``spotwright place`` writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    settings, work = folder / "spotwright.yaml", folder / "work.yaml"
    settings.write_text(config, encoding="utf-8")
    work.write_text(yaml.safe_dump_all(manifests, sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "spotwright", "place", str(work), "--config", str(settings), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def play(
    kube: Kube,
    bed: Settings,
    folder: Path,
    case: Case,
    *,
    controlled: bool,
    placed: bool | None = None,
    options: Sequence[str] = (),
    deeds: Sequence[Deed] = (),
    kubeconfig: Path | None = None,
    group_of: Callable[[Object], str] = group_by_name,
) -> Outcome:
    """Send the work of a case to a separate namespace, and record the result; the namespace is removed.

    ``controlled`` puts the controller in front of it, webhook and watcher, with ``options`` of its command line, and as the
    user of ``kubeconfig`` rather than as an admin. ``placed`` says whether the command places the work before it is sent; by
    default if no webhook does it. ``group_of`` gives the group of a node.
    """
    folder = folder / f"{case.name}-{'with' if controlled else 'without'}-{uuid.uuid4().hex[:4]}"
    by_command = not controlled if placed is None else placed
    work = place(folder, case.config, case.manifests) if by_command else case.manifests
    folder.mkdir(parents=True, exist_ok=True)
    namespace = f"scale-{uuid.uuid4().hex[:8]}"
    kube.run("create", "namespace", namespace)
    kube.wait(lambda: kube.get("serviceaccount", "default", namespace), "the namespace's service account", 60)
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, kube, namespace)
        made = None
        if controlled:
            made = stack.enter_context(controller(kube, bed, folder, case.config, *options, kubeconfig=kubeconfig))
            made.enable(namespace)
            time.sleep(1.0)  # until the label is read
        timeline = Timeline(kube, namespace, group_of)
        stack.callback(timeline.end)
        time.sleep(0.5)  # until the watches have begun
        timeline.begin()
        kube.apply(*(_in(namespace, item) for item in (*work, *case.unplaced)))
        seconds = _wait(Play(kube, namespace, timeline, made), case, sorted(deeds, key=lambda deed: deed[0]))
        return Outcome(
            f"{case.name} {'with' if controlled else 'without'} the controller",
            seconds,
            dict(timeline.made),
            dict(timeline.removed),
            dict(timeline.running_by_group()),
            len(timeline.taken_back),
            len(timeline.ended),
            timeline.last_node,
            tuple(timeline.lines),
        )


def _wait(playing: Play, case: Case, deeds: list[Deed]) -> float | None:
    """When all pods ran; None if they did not in time. Then ordered nodes get the time to come."""
    timeline, ran = playing.timeline, None
    while ran is None and timeline.now < case.seconds:
        if deeds and deeds[0][0] <= timeline.now:
            deeds.pop(0)[1](playing)
        running = timeline.running()
        if len(running) >= case.pods:
            ran = max(timeline.ran[str(pod["metadata"]["uid"])] for pod in running)
            timeline.note(f"ALL {case.pods} PODS RUN")
        time.sleep(_POLL)
    ends = time.monotonic() + case.settle
    while time.monotonic() < ends:
        if deeds and deeds[0][0] <= timeline.now:
            deeds.pop(0)[1](playing)
        time.sleep(_POLL)
    return ran


def _in(namespace: str, item: Object) -> Object:
    return {**item, "metadata": {**item["metadata"], "namespace": namespace}}


def _remove(kube: Kube, namespace: str) -> None:
    """Delete a namespace, and wait until its pods are gone: the next case begins without them."""
    kube.run("delete", "jobs,pods", "--all", "-n", namespace, "--wait=false", "--cascade=background")
    kube.run("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")
    kube.wait(lambda: not kube.list("pods", namespace), "the pods of the case are gone", _GONE)


def job_of(name: str, requests: Mapping[str, Any], pods: int = 1, **spec: object) -> Object:
    """A Job whose pods ask for so much, all at once. A GPU is asked for as a limit too."""
    limits = {key: value for key, value in requests.items() if "/" in key}
    resources = {"requests": dict(requests), **({"limits": limits} if limits else {})}
    container = {"name": "main", "image": "registry.example/work:1", "resources": resources}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completions": pods, "parallelism": pods, "template": template},
    }
