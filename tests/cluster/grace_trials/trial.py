"""One trial: workflows of each shape, with and without the hook, are struck at once, and their last moments are measured."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.grace_trials.pod_webhook import LABEL
from tests.cluster.recorder.api import Api
from tests.cluster.recorder.deaths import DEATHS, SPOT_TAINT, Strike
from tests.cluster.recorder.observing import Observer, State, is_finished
from tests.cluster.recorder.placing import placed, tolerant
from tests.cluster.recorder.recording import await_account, delete_namespace
from tests.cluster.recorder.workloads import Behaviour, Object, workload

from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint_file import FILE_NAME, checkpoint_file

__all__ = ["CODES", "FAULTS", "SHAPES", "Moments", "run_trial"]

SHAPES = ("argo", "kfp")
CODES = ("saving", "plain")
FAULTS: Mapping[str, str] = {"delete": "delete-exit-143", "drain": "drain-exit-143", "taint": "taint"}
"""The faults, with the recorded death that strikes in the same way."""

_NODE, _OTHER = 2, 3  # the numbers of the spot node that is struck, and of the one that takes what comes after
_FOLDER = "/var/tmp/spotwright-grace-trials"  # noqa: S108  # of the machine, so that it outlives the pods
_BEFORE = 3.0  # seconds of work after the first save at least, before the fault
_CODE = Path(__file__).with_name("code.py")
_VOLUMES = [
    {"name": "files", "configMap": {"name": "files"}},
    {"name": "outside", "hostPath": {"path": _FOLDER, "type": "DirectoryOrCreate"}},
]


@dataclass(frozen=True, slots=True)
class Moments:
    """The measurements of one pod, in seconds after the fault; ``None``: it did not happen.

    ``noticed``: the code received a notice. ``sigterm``: its handler ran. ``saved``: a state from after the fault was
    complete. ``lived``: its last sign of life. ``ended``: the API showed the pod's end. ``lost``: seconds of work missing from
    every save.
    """

    shape: str
    code: str
    with_hook: bool
    noticed: float | None
    sigterm: float | None
    saved: float | None
    lived: float
    ended: float
    lost: float | None


@dataclass(frozen=True, slots=True)
class _Code(Behaviour):
    """The code of a trial, in the grace period of Kubernetes, with its files mounted."""

    @property
    def patch(self) -> Object:
        """The grace period, and the volumes of KFP's pods, whose containers come with the patch."""
        return {"terminationGracePeriodSeconds": 30, "volumes": _VOLUMES}

    def container(self, name: str = "main") -> Object:
        """The container with the mounts of the files."""
        mounts = [{"name": "files", "mountPath": "/files"}, {"name": "outside", "mountPath": "/outside"}]
        library = {"name": "PYTHONPATH", "value": f"/files/{FILE_NAME}"}
        plain = Behaviour(self.command, cpu=self.cpu).container(name)
        return {**plain, "volumeMounts": mounts, "env": [library]}


def run_trial(settings: Settings, fault: str, number: int) -> list[Moments]:
    """Strike a workflow of each shape and code, with the hook and without it, all at once."""
    api, faults = Api(settings.kubeconfig), Faults(settings)
    faults.restore(_NODE)
    api.patch(f"/api/v1/nodes/n{_NODE}", {"spec": {"taints": [SPOT_TAINT]}})  # without that of the fault
    try:
        return _strike_all(api, faults, fault, number)
    finally:
        _close_other(api, closed=False)
        faults.restore(_NODE)
        api.patch(f"/api/v1/nodes/n{_NODE}", {"spec": {"taints": [SPOT_TAINT]}})


def _close_other(api: Api, *, closed: bool) -> None:
    """Let the other spot node take pods, or not: a taint of one node ends no pod of the other."""
    api.patch(f"/api/v1/nodes/n{_OTHER}", {"spec": {"unschedulable": True if closed else None}})


def _strike_all(api: Api, faults: Faults, fault: str, number: int) -> list[Moments]:
    names = {f"grace-{fault}-{number}-{'hook' if hook else 'none'}": hook for hook in (True, False)}
    with _namespaces(api, names):
        observers = {name: Observer(api, name) for name in names}
        time.sleep(0.5)  # until every watch has listed
        _close_other(api, closed=True)
        files = {name: _start(api, name, hook) for name, hook in names.items()}
        _wait_until_all_work([file for each in files.values() for file in each.values()])
        victims = {name: _running(observers[name]) for name in names}
        _close_other(api, closed=False)
        struck = time.time()
        for name, observer in observers.items():
            strike = Strike(api, observer, name, _NODE, list(victims[name].values()), faults)
            death = next(each for each in DEATHS if each.name == FAULTS[fault])
            assert death.strikes is not None
            death.strikes(strike)
        for name, observer in observers.items():
            observer.wait(partial(_all_ended, observer, victims[name]), 90, "the pods to end")
        return [
            _moments(observers[name].history(victims[name][key]), key, file, struck)
            for name in names
            for key, file in files[name].items()
        ]


@contextmanager
def _namespaces(api: Api, names: Mapping[str, bool]) -> Iterator[None]:
    for name, hook in names.items():
        delete_namespace(api, name)
        labels = dict(LABEL) if hook else {}
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, "")
    try:
        for name in names:
            await_account(api, name)
        yield
    finally:
        for name in names:
            delete_namespace(api, name)


def _start(api: Api, namespace: str, hook: bool) -> dict[str, Path]:
    """Create the workflows of a namespace. Returns the file of each one's code."""
    code = {
        "code.py": base64.b64encode(_CODE.read_bytes()).decode(),
        FILE_NAME: base64.b64encode(checkpoint_file()).decode(),
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "binaryData": code}
    api.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", config_map)
    files, objects = {}, []
    for shape, code_name in product(SHAPES, CODES):
        name = f"{shape}-{code_name}"
        inside = f"/outside/{namespace}-{name}-{time.time():.0f}"
        command = ("python3", "/files/code.py", code_name, inside, f"{inside}-place")
        [workflow] = workload(shape, name, _Code(command))
        workflow["spec"]["volumes"] = _VOLUMES
        objects.append(workflow)
        files[name] = Path(inside.replace("/outside", _FOLDER))
    for item in placed(objects) if hook else tolerant(objects):
        api.create(item, namespace)
    return files


def _lines(file: Path) -> list[tuple[float, str]]:
    if not file.exists():
        return []
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    return [(float(line[0]), line[1]) for line in lines if len(line) == 2]


def _wait_until_all_work(files: list[Path]) -> None:
    """Wait until each code has worked for some seconds after its first save, or its start."""
    deadline = time.monotonic() + 500
    while not all(_has_worked(_lines(file)) for file in files):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no work in {[file.name for file in files if not _has_worked(_lines(file))]}")
        time.sleep(0.2)


def _has_worked(lines: list[tuple[float, str]]) -> bool:
    saves = [at for at, word in lines if word == "saved"]
    begins = saves[:1] if saves or not lines else [lines[0][0] + 2.0]
    return bool(begins) and lines[-1][0] - begins[0] >= _BEFORE


def _running(observer: Observer) -> dict[str, str]:
    """The UIDs of the pods that run the code, by the names of their workflows."""
    found = {}
    for uid in observer.objects("Pod"):
        pod = observer.history(uid)[-1].value
        role = pod["metadata"].get("annotations", {}).get("pipelines.kubeflow.org/runtime-role")
        if role != "driver" and not is_finished(pod):
            found[pod["metadata"]["labels"]["workflows.argoproj.io/workflow"]] = uid
    return found


def _all_ended(observer: Observer, victims: Mapping[str, str]) -> bool:
    return all(_ended(observer, uid) for uid in victims.values())


def _ended(observer: Observer, uid: str) -> float | None:
    """When the API showed that a pod had finished, or that it was gone."""
    states = observer.history(uid)
    return next((state.at for state in states if is_finished(state.value) or state.gone), None)


def _moments(states: Sequence[State], key: str, file: Path, struck: float) -> Moments:
    ended = next(state.at for state in states if is_finished(state.value) or state.gone)
    hook = any("lifecycle" in one for one in states[0].value["spec"]["containers"])
    lines = [line for line in _lines(file) if line[0] <= ended]  # what follows is of the next attempt
    place = f"{file}-place"
    shape, code = key.split("-")
    after = {word: at - struck for at, word in reversed(lines) if at >= struck}
    lived = max(at for at, word in lines if word == "alive") - struck
    state = Checkpoint(place, writer=False).load() if code == "saving" else None
    kept = [at for at, word in lines if word == "saved"]
    if state is not None and state["at"] <= ended:
        kept.append(state["at"])
        if state["at"] >= struck:  # after SIGTERM the library saves and ends the process, so the code says no word
            after.setdefault("saved", state["at"] - struck)
    lost = None if state is None else round(max(0.0, lived - (max(kept) - struck)), 2)

    def rounded(word: str) -> float | None:
        return round(after[word], 2) if word in after else None

    return Moments(
        shape, code, hook, rounded("notice"), rounded("sigterm"), rounded("saved"), round(lived, 2),
        round(ended - struck, 2), lost,
    )  # fmt: skip


def as_data(moments: Moments) -> dict[str, Any]:
    """The moments as they are written to the file."""
    return {name: getattr(moments, name) for name in Moments.__slots__}
