"""Rules on volumes and checkpoints: what is saved has to be there when the next attempt starts on another node.

Sources: Kubernetes documentation, "Volumes", "Persistent Volumes" (access modes, topology).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from spotwright.kinds.kind import Duty, Retry
from spotwright.lint.examples import ON_SPOT, job
from spotwright.lint.rule import Checks, Problem, Rule, Severity
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.pods import Container, Pods
from spotwright.lint.subjects.shapes import is_whole, items_of, mapping_at, mapping_of, texts_of
from spotwright.placing.context import POLICY_ANNOTATION

__all__ = ["RULES"]

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
