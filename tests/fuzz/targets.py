"""The fuzz targets: each function takes bytes, and fails where the code that reads untrusted texts does.

A fault is an undocumented exception, an answer that says "defect", a request that leaves the namespace for which it is made, a
file outside of a folder, or more CPU than one object may cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.cluster.folder_records import FolderRecords

from spotwright import config as configuration
from spotwright.checkpoint import encoding, state_file
from spotwright.checkpoint.errors import CheckpointError
from spotwright.checkpoint.file_values import Directory, File
from spotwright.cluster.admission_server import DEFECT, AdmissionRequest, BadReview, admit, answer, parse_review
from spotwright.cluster.admit_objects import referenced_objects
from spotwright.cluster.admit_pods import AdmissionContext, wants_facts
from spotwright.cluster.admit_updates import Update
from spotwright.cluster.api_client import ApiFailed
from spotwright.cluster.attempt_lookup import Lookups
from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.view import ClusterView, SeenPod
from spotwright.cluster.workloads import task_name, templates_of
from spotwright.config import Config
from spotwright.errors import SpotwrightError
from spotwright.records.state_folder import StateFolder

__all__ = ["LIMIT", "TARGETS", "Fault", "checkpoint", "mutate", "names", "pod"]

LIMIT = float(os.environ.get("SPOTWRIGHT_FUZZ_SECONDS", "0.05"))
"""Seconds of CPU of one input; code that is observed by a fuzzer is several times slower, and gets more."""


class Fault(AssertionError):
    """The finding of a target."""


@contextlib.contextmanager
def limited(what: str) -> Iterator[None]:
    """Let the block cost as much as one object may."""
    begun = time.thread_time()
    yield
    spent = time.thread_time() - begun
    if spent > LIMIT:
        raise Fault(f"{what} took {spent * 1000:.0f} ms")


@functools.cache
def config() -> Config:
    """A configuration with pools of two capacities, and a policy for every task."""
    pools = {
        "gpu-spot": {"capacity": "spot", "provider": "aks", "price": "1/h", "node": {"cpu": 2}},
        "gpu": {"capacity": "on-demand", "provider": "aks", "price": "3/h", "node": {"cpu": 2}},
    }
    policy = {"default": {"spot": "prefer", "interruptions": {"max": 3}, "fall_back_after": 2}}
    return configuration.from_mapping({"pools": pools, "policy": policy})


# A review


def mutate(data: bytes) -> None:
    """A body that is posted to the webhook."""
    with limited("a review"):
        try:
            asked = parse_review(data)
        except BadReview:
            return
        if asked.data.get("kind") == "Pod":
            wants_facts(asked.data)
            asyncio.run(_owners(asked.data))
        else:
            asyncio.run(_beside(asked))
        _answered(asked)


def _answered(asked: AdmissionRequest) -> None:
    """Answer a request; a defect of ours that the answer hides is raised here."""
    hears, logger = _Hears(), logging.getLogger(answer.__module__)
    logger.addHandler(hears)
    try:
        review, outcome = answer(asked, _decide)
    finally:
        logger.removeHandler(hears)
    if outcome is DEFECT:
        raise hears.errors[-1] if hears.errors else Fault("the answer is a defect of ours")
    json.dumps(review)


class _Hears(logging.Handler):
    """Keeps the exceptions that are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(record.exc_info[1])


def _decide(request: AdmissionRequest) -> Any:
    update = None if request.old is None else Update(request.old, request.manager)
    return admit(request.data, config(), (), AdmissionContext(), update=update, refusal_image="busybox:1", by="a/b")


class StrictApi:
    """An API server without objects, which checks requests: paths of one namespace, and shared templates."""

    namespace = "hostile"

    async def get_or_none(self, path: str, **_limits: Any) -> dict[str, Any] | None:
        """Do nothing, unless the path is forbidden."""
        parts = unquote(path).strip("/").split("/")
        base = 2 if parts[0] == "api" else 3
        place = parts[base:]
        of_namespace = len(place) == 4 and place[:2] == ["namespaces", self.namespace]
        of_all = len(place) == 2 and place[0] in ("clustertrainingruntimes", "clusterworkflowtemplates")
        if not (of_namespace or of_all) or not {"", ".", ".."}.isdisjoint(parts) or "?" in path or "#" in path:
            raise Fault(f"the path {path!r} is asked for")
        return None

    async def get(self, path: str, params: Mapping[str, str] | None = None, **_limits: Any) -> dict[str, Any]:
        """An empty list."""
        await self.get_or_none(path)
        return {"items": []}


async def _owners(pod: Mapping[str, Any]) -> None:
    meta = pod.get("metadata")
    inside = {**pod, "metadata": {**(meta if isinstance(meta, dict) else {}), "namespace": StrictApi.namespace}}
    await Lookups(StrictApi()).owners(inside)  # type: ignore[arg-type]


async def _beside(asked: AdmissionRequest) -> None:
    lookups = Lookups(StrictApi())  # type: ignore[arg-type]
    for version, kind, name in referenced_objects(asked.data):
        where = "" if kind.startswith("Cluster") else StrictApi.namespace
        with contextlib.suppress(ApiFailed):  # it says that this names nothing
            await lookups.find_object(version, kind, name, where)


# Names


def names(data: bytes) -> None:
    """Names of owners, templates and tasks: a JSON object with ``kind``, ``version``, ``name`` and what the pod carries."""
    given = _mapping(data)
    if given is None:
        return
    version, kind, name = (str(given.get(key, "")) for key in ("version", "kind", "name"))
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": str(given.get("uid", "")), "controller": True}
    meta = {
        "name": "pod",
        "namespace": StrictApi.namespace,
        "uid": "pod-uid",
        "labels": _texts(given.get("labels")),
        "annotations": _texts(given.get("annotations")),
        "ownerReferences": [owner],
    }
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "main"}]}}
    owners = given.get("owners")
    found = [each for each in owners if isinstance(each, dict)][:4] if isinstance(owners, list) else []
    with limited("a name"):
        asyncio.run(_owners(made))
        lookups = Lookups(StrictApi())  # type: ignore[arg-type]
        with contextlib.suppress(ApiFailed):
            asyncio.run(lookups.find_object(version, kind, name, StrictApi.namespace))
        task_name(made, found)
        templates_of(found)


# A pod


def pod(data: bytes) -> None:
    """Annotations, labels and the status of a pod, which are admitted, and recorded by the watcher."""
    given = _mapping(data)
    if given is None:
        return
    meta = {
        "name": "pod",
        "namespace": StrictApi.namespace,
        "uid": "pod-uid",
        "creationTimestamp": "2027-01-15T08:00:01Z",
        "labels": _texts(given.get("labels")),
        "annotations": _texts(given.get("annotations")),
    }
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}], "nodeName": "n1"}
    status = given.get("status")
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    with limited("a pod"):
        _answered(AdmissionRequest("uid", "CREATE", StrictApi.namespace, made))
    if isinstance(status, dict) and isinstance(status.get("phase", ""), str):
        _record({**made, "status": _typed(status)})


def _typed(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status with the types that the API server guarantees: texts stay unchanged, the kubelet writes the rest."""
    ended = {"exitCode": 1, "message": str(status.get("message", "")), "reason": str(status.get("reason", ""))}
    container = {"name": "main", "restartCount": 0, "state": {"terminated": ended}}
    condition = {"type": "DisruptionTarget", "status": "True", "reason": str(status.get("reason", ""))}
    return {"phase": "Failed", "conditions": [condition], "containerStatuses": [container]}


def _record(pod: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        store = RunStore(FolderRecords(StateFolder.open(Path(folder) / "state")), config())
        run = store.create(pod, (), (), 1_800_000_000.0)
        view = ClusterView()
        view.clock = 100.0
        view.put_pod(pod)
        with limited("a record"), contextlib.suppress(SpotwrightError):  # the watcher says that it does not watch it
            PodReconciler(run, view, 1_800_000_100.0).record([SeenPod(pod, ())], pod, are_all=True)
        run.commit()
        store.close()


# Checkpoints


def _loaded(data: bytes, file: io.BytesIO) -> Any:
    """The state of a file: its bytes as they are, or made of a JSON object with a ``tree`` and texts as ``blobs``."""
    given = _mapping(data)
    size, total = len(data), int.from_bytes(data[-16:-12], "little")
    file.write(data)
    if given is not None:
        file.seek(0)
        file.truncate()
        blobs = given.get("blobs")
        texts = [str(each).encode(errors="replace") for each in blobs] if isinstance(blobs, list) else []
        told = state_file.write(file, given.get("tree"), [functools.partial(_pieces, text) for text in texts])
        size, total = told["size"], told["sum"]
    reader = state_file.Reader(file, "state", size, total)
    return encoding.decode(reader, reader.stream)


def _pieces(text: bytes) -> Iterator[memoryview]:
    return state_file.pieces(memoryview(text))


def _restore_all(value: Any, folder: Path, depth: int = 0) -> None:
    """Restore all files and folders of a state, each below a separate folder."""
    if isinstance(value, File | Directory):
        value.restore(folder / f"restored-{len(list(folder.iterdir()))}")
    elif isinstance(value, dict | list | tuple) and depth < 50:
        for each in value.values() if isinstance(value, dict) else value:
            _restore_all(each, folder, depth + 1)


def checkpoint(data: bytes) -> None:
    """A state file that somebody else has written: its values are read, and its files and folders restored."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        (folder / "outside").mkdir()
        (folder / "target").mkdir()
        with contextlib.suppress(CheckpointError):
            _restore_all(_loaded(data, io.BytesIO()), folder / "target")
        left = [path.name for path in folder.iterdir()] + [path.name for path in (folder / "outside").iterdir()]
        strange = [name for name in left if name not in ("outside", "target")]
        strange += [path.name for path in (folder / "target").iterdir() if not path.name.startswith("restored-")]
        if strange:
            raise Fault(f"written outside of the folder: {strange}")


def _mapping(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(each) for key, each in value.items()} if isinstance(value, dict) else {}


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "mutate": mutate,
    "names": names,
    "pod": pod,
    "checkpoint": checkpoint,
}
