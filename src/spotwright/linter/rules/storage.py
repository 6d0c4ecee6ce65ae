"""Rules on what must not be lost: saves that the next attempt has to find on another node, datastores, services and notebooks.

Sources: Kubernetes documentation, "Volumes", "Persistent Volumes" (access modes, topology).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from spotwright.kinds.kind import Duty, Retry
from spotwright.linter.rule import ON_SPOT, TOLERATION, Checks, Problem, Rule, Severity, job, pod, training_job
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import Container, Pods, Reach, is_whole, items_of, mapping_at, mapping_of, texts_of
from spotwright.placing.context import POLICY_ANNOTATION

__all__ = ["RULES", "STATEFUL_RULES"]


_CHECKPOINT = re.compile(r"check-?_?points?|(?<![a-z])ckpts?(?![a-z])", re.IGNORECASE)
_SAVES = re.compile(r"check-?_?point|(?<![a-z])ckpt|resume|restore|save[-_](?:dir|path|every|steps)", re.IGNORECASE)
_LONG = 3600  # seconds
_ZONAL = {
    "awsElasticBlockStore": "an EBS volume",
    "azureDisk": "an Azure disk",
    "gcePersistentDisk": "a persistent disk of Google Cloud",
    "cinder": "a Cinder volume",
}
_LOCAL = ("emptyDir", "hostPath")
_NODE_LOCAL = {"emptyDir": "an emptyDir, which goes with the pod", "hostPath": "a hostPath, which goes with the node"}
_MOUNTS_LIKELY = re.compile(r"^/(?:$|proc|sys|dev)")


def _zonal(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if not pods.asks_for_spot or not pods.is_work:
        return
    for path, volume in pods.volumes:
        for name, words in _ZONAL.items():
            if name in volume:
                yield Problem((*path, name), f"{pods.label} mounts {words}, which exists in one zone")
        claim = mapping_of(volume.get("persistentVolumeClaim")).get("claimName")
        if isinstance(claim, str) and _is_zonal_claim(pods, claim):
            text = f"{pods.label} mounts the claim {claim}, whose volume one node at a time can have (ReadWriteOnce)"
            yield Problem((*path, "persistentVolumeClaim"), text)


def _is_zonal_claim(pods: Pods, name: str) -> bool:
    """Whether a claim in the same file asks for a volume of one node."""
    claim = pods.owner.find("PersistentVolumeClaim", name) if pods.owner is not None else None
    modes = set(texts_of(claim.get("spec", "accessModes"))) if claim is not None else set()
    return bool(modes) and modes <= {"ReadWriteOnce", "ReadWriteOncePod"}


def _lost_checkpoints(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A volume that goes with the pod or the node, and is where checkpoints are kept."""
    if not pods.on_spot or not pods.is_work:
        return
    if pods.form == "K":
        yield from _lost_in_executor(pods)
        return
    local = {
        str(volume.get("name")): (path, kind) for path, volume in pods.volumes for kind in _LOCAL if kind in volume
    }
    for container in pods.containers:
        for index, mount in enumerate(items_of(container.value.get("volumeMounts"))):
            name, at = str(mapping_of(mount).get("name")), str(mapping_of(mount).get("mountPath"))
            if name in local and (_CHECKPOINT.search(name) or _CHECKPOINT.search(at) or _keeps(container, at)):
                text = f"{pods.label} keeps checkpoints at {at} in {_NODE_LOCAL[local[name][1]]}"
                yield Problem((*container.path, "volumeMounts", index), text)


def _lost_in_executor(pods: Pods) -> Iterator[Problem]:
    for index, mount in enumerate(items_of(pods.value.get("emptyDirMounts"))):
        at = str(mapping_of(mount).get("mountPath"))
        if _CHECKPOINT.search(at) or _CHECKPOINT.search(str(mapping_of(mount).get("volumeName"))):
            text = f"{pods.label} keeps checkpoints at {at} in {_NODE_LOCAL['emptyDir']}"
            yield Problem(pods.at("emptyDirMounts", index), text)


def _keeps(container: Container, folder: str) -> bool:
    """Whether a container is told to keep checkpoints in a folder."""
    return any(place.startswith(folder.rstrip("/") + "/") or place == folder for place, _ in _places(container))


def _places(container: Container) -> Iterator[tuple[str, str]]:
    """The folders in which a container is told to keep checkpoints, each with the name of the argument or variable."""
    words = container.words
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("-") and _CHECKPOINT.search(name):
            following = words[number + 1] if number + 1 < len(words) else ""
            yield (value if equals else following), name
    for variable in items_of(container.value.get("env")):
        name, given = str(mapping_of(variable).get("name")), mapping_of(variable).get("value")
        if _CHECKPOINT.search(name) and isinstance(given, str):
            yield given, name


def _unmounted(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A folder for checkpoints that no volume is mounted at: it is in the container's own layer."""
    if not pods.on_spot or not pods.is_work or pods.form == "K":
        return
    for container in pods.containers:
        mounts = [
            str(mapping_of(one).get("mountPath")).rstrip("/") for one in items_of(container.value.get("volumeMounts"))
        ]
        for place, name in _places(container):
            is_path = (
                place.startswith("/") and not _MOUNTS_LIKELY.match(place) and "{{" not in place and "$" not in place
            )
            if is_path and not any(place == mount or place.startswith(mount + "/") for mount in mounts):
                text = f"{pods.label} keeps checkpoints at {place} ({name}), where no volume is mounted"
                yield Problem(container.path, text)
                break


def _no_checkpoint(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Work that is allowed more than an hour on spot, and nothing that looks like a checkpoint."""
    if not pods.asks_for_spot or pods.duty is not Duty.WORKER or not pods.containers:
        return
    seconds = _duration(pods)
    if seconds <= _LONG or _has_checkpoint(pods):
        return
    yield Problem(
        pods.spec, f"{pods.label} may run {seconds / 3600:.0f} h on spot, and nothing says that it saves its work"
    )


def _duration(pods: Pods) -> int:
    """How long one attempt may run, in seconds, as far as the object says; 0 if it does not.

    A deadline of all attempts allows the first one as much.
    """
    given = [pods.value.get("activeDeadlineSeconds")]
    if pods.job is not None:
        given.append(mapping_at(pods.document.get(()), *pods.job).get("activeDeadlineSeconds"))
    if pods.retry is Retry.ROLE and pods.owner is not None:
        given.append(pods.owner.mapping("spec", "runPolicy").get("activeDeadlineSeconds"))
    whole = [int(str(one)) for one in given if is_whole(one) or str(one).isdigit()]
    return min(whole, default=0)


def _has_checkpoint(pods: Pods) -> bool:
    texts: list[Any] = [*pods.annotations.values(), pods.annotations.get(POLICY_ANNOTATION)]
    for container in pods.containers:
        texts += container.words
        texts += [mapping_of(one).get("name") for one in items_of(container.value.get("env"))]
        texts += [mapping_of(one).get("value") for one in items_of(container.value.get("env"))]
        texts += [mapping_of(one).get("mountPath") for one in items_of(container.value.get("volumeMounts"))]
    texts += [mapping_of(one).get("mountPath") for one in items_of(pods.value.get("pvcMount"))]
    texts += [volume.get("name") for _, volume in pods.volumes]
    return any(_SAVES.search(str(text)) for text in texts if text)


_CLAIM = (
    "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: ckpt}}\nspec:\n  accessModes: [{mode}]\n"
    "  resources: {{requests: {{storage: 10Gi}}}}\n---\n"
)
_VOLUME = "volumes:\n- {name: work, persistentVolumeClaim: {claimName: ckpt}}\n"
_MOUNT = "volumeMounts:\n- {name: work, mountPath: /work}\n"
_EMPTY = "volumes:\n- {name: ckpt, emptyDir: {}}\n"
_ARGS = "args: [--checkpoint-dir=/ckpt/run]\n"
_IN_CLAIM = ON_SPOT + "volumes:\n- {name: ckpt, persistentVolumeClaim: {claimName: ckpt}}\n"
_CKPT = "volumeMounts:\n- {name: ckpt, mountPath: /ckpt}\n"

RULES = (
    Rule(
        id="zonal-volume-on-spot",
        severity=Severity.WARNING,
        title="Mounts a volume of one zone or one node on spot",
        why="The next attempt can start only in the zone of its volume, and only after the volume is detached from the "
        "node that was taken, which takes minutes where the node went without a word. Spot capacity of one zone is "
        "often used up.",
        fix="Use a volume that many nodes can mount (ReadWriteMany) or an object store.",
        fails=_CLAIM.format(mode="ReadWriteOnce") + job(ON_SPOT + _VOLUME, container=_MOUNT),
        passes=_CLAIM.format(mode="ReadWriteMany") + job(ON_SPOT + _VOLUME, container=_MOUNT),
        checks=Checks(pods=_zonal),
    ),
    Rule(
        id="checkpoint-in-emptydir",
        severity=Severity.ERROR,
        title="Checkpoints in a volume that goes with the pod or the node",
        why="The next attempt is another pod, often on another node: it finds an empty folder and starts from the "
        "beginning.",
        fix="Mount a persistent volume claim there, or save to an object store.",
        fails=job(ON_SPOT + _EMPTY, container=_ARGS + _CKPT),
        passes=job(_IN_CLAIM, container=_ARGS + _CKPT),
        checks=Checks(pods=_lost_checkpoints),
    ),
    Rule(
        id="checkpoint-not-mounted",
        severity=Severity.WARNING,
        title="Checkpoints in a folder at which no volume is mounted",
        why="They are in the container's own layer, which goes with the pod.",
        fix="Mount a persistent volume claim at the folder, or name an address in an object store.",
        fails=job(ON_SPOT, container=_ARGS),
        passes=job(_IN_CLAIM, container=_ARGS + _CKPT),
        checks=Checks(pods=_unmounted),
    ),
    Rule(
        id="no-checkpoint",
        severity=Severity.WARNING,
        title="Long work on spot without a checkpoint",
        why="An attempt that starts from the beginning costs all that was done, and work that is longer than the time "
        "between two interruptions never ends.",
        fix="Save the state to a volume or an object store: docs/how-to/checkpoint.md.",
        fails=job(ON_SPOT + "activeDeadlineSeconds: 36000\n"),
        passes=job(_IN_CLAIM + "activeDeadlineSeconds: 36000\n", container=_ARGS + _CKPT),
        checks=Checks(pods=_no_checkpoint),
    ),
)
"""The rules of this module."""


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

STATEFUL_RULES = (
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
