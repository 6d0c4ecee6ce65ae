"""Rules on what must not be lost: datastores, services, notebooks, and the roles that all others need.

Sources: the five guides that users start from name notebooks, dashboards, datastores and serving; TensorFlow documentation,
``ParameterServerStrategy``; Ray documentation, "GCS fault tolerance"; kubeflow/mpi-operator#360; AWS, EMR on EKS, "Pod
templates".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spotwright.kinds.kind import Duty
from spotwright.lint.examples import ON_SPOT, TOLERATION, pod, training_job
from spotwright.lint.rule import Checks, Problem, Rule, Severity
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.pods import Pods
from spotwright.lint.subjects.reach import Reach

__all__ = ["RULES"]

_STORES = re.compile(
    r"(?:^|/)(minio|mysql|mariadb|postgres(?:ql)?|redis|valkey|mongo(?:db)?|etcd|elasticsearch|opensearch|cassandra|kafka|zookeeper"
    r"|rabbitmq|clickhouse(?:-server)?|weaviate|milvus|qdrant)(?:[:@-]|$)"
)
_CLAIMED = "persistentVolumeClaim"


def _store_of(pods: Pods) -> str:
    """Why pods look like a datastore: their kind, or their image; empty if they do not."""
    if pods.duty is Duty.DATASTORE:
        return f"a {pods.owner.kind} keeps its data in volumes" if pods.owner else ""
    if pods.duty is not Duty.SERVING or pods.owner is None or pods.owner.group != "apps":
        return ""
    for container in pods.containers:
        match = _STORES.search(str(container.value.get("image") or "").lower())
        if match:
            return f"{match[1]} is a datastore"
    if any(_CLAIMED in volume for _, volume in pods.volumes):
        return "it has a volume of its own"
    return ""


def _placed_by(pods: Pods) -> str:
    """By what pods come to spot nodes, in words."""
    return {
        Reach.REQUIRED: "requires spot nodes",
        Reach.PREFERRED: "prefers spot nodes",
        Reach.TOLERATED: "tolerates the taint of spot nodes",
        Reach.OPEN: "may land on a spot pool, which has no taint",
    }[pods.reach]


def _path(pods: Pods) -> tuple[str | int, ...]:
    if pods.reach is Reach.OPEN:
        return pods.spec
    if pods.reach is Reach.TOLERATED:
        return pods.at("tolerations")
    return pods.selector if pods.constraints.selector else pods.at("affinity")


def _datastores(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    store = _store_of(pods) if pods.asks_for_spot else ""
    if store:
        yield Problem(_path(pods), f"{pods.label} {_placed_by(pods)}, and {store}")


def _services(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.asks_for_spot and pods.duty is Duty.SERVING and not _store_of(pods):
        yield Problem(_path(pods), f"{pods.label} {_placed_by(pods)} and answers requests")


def _interactive(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.asks_for_spot and pods.duty is Duty.INTERACTIVE:
        yield Problem(_path(pods), f"{pods.label} {_placed_by(pods)}, and people work in it")


def _not_kept_off(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.reach is Reach.OPEN and pods.duty in (Duty.SERVING, Duty.DATASTORE, Duty.INTERACTIVE):
        yield Problem(pods.spec, f"{pods.label} {_placed_by(pods)}, and must not be lost")


def _coordinators(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.reach > Reach.OPEN and pods.duty is Duty.COORDINATOR:
        yield Problem(_path(pods), f"{pods.label} {_placed_by(pods)}, and the other pods need it")


_UNTAINTED = """\
version: 1
pools:
  spot: {capacity: spot, provider: eks}
  regular: {capacity: on-demand, provider: eks}
"""
_STAY = "Remove the toleration and the affinity; spotwright place keeps such work on on-demand."
_MASTER = (
    "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: mnist\nspec:\n  pytorchReplicaSpecs:\n    "
    "Master:\n"
    "      restartPolicy: ExitCode\n      template:\n        spec:\n{lines}          containers:\n"
    "          - name: pytorch\n            image: training:1\n"
)

RULES = (
    Rule(
        id="datastore-on-spot",
        severity=Severity.ERROR,
        title="A datastore on spot nodes",
        why="An interruption takes the datastore from everybody who uses it, and its volume may be bound to a zone in "
        "which no node is to be had. MinIO and MySQL of Kubeflow are Deployments with a volume, so the kind alone does "
        "not tell.",
        fix=_STAY,
        fails=pod(TOLERATION, image="minio/minio:latest"),
        passes=pod("", image="minio/minio:latest"),
        checks=Checks(pods=_datastores),
    ),
    Rule(
        id="serving-on-spot",
        severity=Severity.ERROR,
        title="A service on spot nodes",
        why="Each interruption is an outage for those who ask it: the notice is shorter than most models take to load.",
        fix=_STAY + " A Deployment that only takes work from a queue is labelled spotwright.dev/role: worker.",
        fails=pod(ON_SPOT),
        passes=pod(ON_SPOT).replace("  name: app\n", "  name: app\n  labels: {spotwright.dev/role: worker}\n"),
        checks=Checks(pods=_services),
    ),
    Rule(
        id="interactive-on-spot",
        severity=Severity.ERROR,
        title="A notebook or a viewer on spot nodes",
        why="Whoever works in it loses what is not saved, and its volume may be bound to a zone.",
        fix=_STAY,
        fails=pod(ON_SPOT, kind="Notebook", api_version="kubeflow.org/v1"),
        passes=pod("", kind="Notebook", api_version="kubeflow.org/v1"),
        checks=Checks(pods=_interactive),
    ),
    Rule(
        id="not-kept-off-spot",
        severity=Severity.WARNING,
        title="What must not be lost may land on a spot pool that has no taint",
        why="EKS and Karpenter set no taint on spot nodes, so everything that selects nothing may land there.",
        fix="Taint the spot pool, or require on-demand nodes; spotwright place writes the affinity.",
        fails=pod("", kind="StatefulSet"),
        passes=pod("nodeSelector: {eks.amazonaws.com/capacityType: ON_DEMAND}\n", kind="StatefulSet"),
        checks=Checks(pods=_not_kept_off),
        config=_UNTAINTED,
    ),
    Rule(
        id="coordinator-on-spot",
        severity=Severity.WARNING,
        title="The role that all others need runs on spot nodes",
        why="A chief, a parameter server, an MPI launcher, a Ray head or a Spark driver is small, and its loss ends or "
        "restarts the whole job. On on-demand it costs little.",
        fix="Keep this role on on-demand, and only the workers on spot.",
        fails=_MASTER.format(lines="".join(f"          {line}\n" for line in ON_SPOT.splitlines())),
        passes=training_job(ON_SPOT, role="restartPolicy: ExitCode\n"),
        checks=Checks(pods=_coordinators),
        place_says=True,
    ),
)
"""The rules of this module."""
