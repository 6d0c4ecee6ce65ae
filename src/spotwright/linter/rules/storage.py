"""Rules on saves that the next attempt has to find on another node: volumes, their zones, and checkpoints.

Sources: Kubernetes documentation, "Volumes", "Persistent Volumes" (access modes, topology).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from spotwright.clouds.label_values import RENAMED
from spotwright.clouds.providers import ZONE, is_accelerator, labels_by_zone
from spotwright.kinds.kind import Claim, Retry, Sharing
from spotwright.kinds.situation import pods_with, run_together
from spotwright.linter.rule import ON_SPOT, Checks, Problem, Rule, Severity, job
from spotwright.linter.rules.save_places import (
    LostPlace,
    SavePlace,
    has_checkpoint,
    lost_place,
    lost_saves,
    mounts_of,
    names_checkpoint,
    read_only,
    save_places,
)
from spotwright.linter.rules.selectors import excluding
from spotwright.linter.settings import Settings
from spotwright.linter.spot_reach import admits, alternatives
from spotwright.linter.subjects import (
    Container,
    KubeObject,
    Pipeline,
    Pods,
    Shape,
    init_containers,
    is_whole,
    items_of,
    mapping_at,
    mapping_of,
    pipeline_pods,
    pods_of,
    texts_of,
)
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Expression
from spotwright.placing.documents import Path
from spotwright.placing.pods import PodRole

__all__ = ["RULES"]


_LONG = 3600  # seconds
_ZONAL = {
    "awsElasticBlockStore": "an EBS volume",
    "azureDisk": "an Azure disk",
    "gcePersistentDisk": "a persistent disk of Google Cloud",
    "cinder": "a Cinder volume",
}
_MOUNTS_LIKELY = re.compile(r"^/(?:$|proc|sys|dev)")


class _Claim(NamedTuple):
    """A claim that pods mount: where, its name, and what it asks for, if the file has it."""

    path: Path
    mounted: Claim
    spec: Shape

    @property
    def name(self) -> str:
        """Its name, or its template's."""
        return self.mounted.name

    @property
    def modes(self) -> set[str]:
        """Its access modes."""
        return set(texts_of(self.spec.get("accessModes")))

    @property
    def is_of_one_node(self) -> bool:
        """Whether one node at a time can have its volume."""
        return bool(self.modes) and self.modes <= {"ReadWriteOnce", "ReadWriteOncePod"}


def _claims(pods: Pods) -> Iterator[_Claim]:
    """The claims in the file that the pods mount, including their own."""
    owner = pods.owner
    for one in pods.claims:
        if owner is None:  # of a pipeline, which itself makes claims with a known form
            if one.spec:
                yield _Claim(one.path, one, one.spec)
            continue
        named = owner.find("PersistentVolumeClaim", one.name) if one.sharing is Sharing.NAMED else None
        spec = one.spec if named is None else named.mapping("spec")
        if named is not None or spec:
            yield _Claim(owner.at(*one.path), one, spec)


def _volume_of(pods: Pods, claim: _Claim) -> KubeObject | None:
    """The volume of a claim, if the file has it."""
    if pods.owner is None:
        return None
    named = claim.spec.get("volumeName")
    volume = pods.owner.find("PersistentVolume", named) if isinstance(named, str) else None
    return volume or pods.owner.beside.claimed.get(claim.name)


def _zonal(pods: Pods, settings: Settings) -> Iterator[Problem]:
    if not pods.asks_for_spot or not pods.is_work:
        return
    for path, volume in pods.volumes:
        for name, words in _ZONAL.items():
            if name in volume:
                yield Problem((*path, name), f"{pods.label} mounts {words}, which exists in one zone")
    for claim in _claims(pods):
        if claim.is_of_one_node and claim.mounted.sharing is Sharing.NAMED:
            text = (
                f"{pods.label} mounts the claim {claim.name}, whose volume one node at a time can have (ReadWriteOnce)"
            )
            yield Problem(claim.path, text)
        disk = _volume_of(pods, claim)
        if disk is not None and (disk.get("spec", "local") or disk.get("spec", "hostPath")):
            text = f"{pods.label} mounts the claim {claim.name}, whose volume is a folder of one node and goes with it"
            yield Problem(claim.path, text)
    spot = {pool.name: pool for pool in settings.spot_pools}
    nowhere = [claim for claim, _, _ in _in_other_zones(pods, settings.pools)]  # another rule says so
    for claim, zones, reached in _in_other_zones(pods, spot):
        if claim not in nowhere:
            text = f"{_mounts(pods, claim, zones)}, and its spot pools have nodes in {_listed(reached)} only"
            yield Problem(claim.path, text)


def _mounts(pods: Pods, claim: _Claim, zones: set[str]) -> str:
    return f"{pods.label} mounts the claim {claim.name}, whose volume is in {_listed(zones)}"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


_ZONE_KEYS = re.compile(r"(?:topology|failure-domain)\.[a-z.]+/zone")
"""Zones in the topology of volumes: Kubernetes', and those of the drivers of EBS, Azure disks and Google's disks."""


def _zones_of(pods: Pods, claim: _Claim) -> set[str]:
    """The zones in which the volume of a claim is or can be; empty if the file does not say."""
    volume = _volume_of(pods, claim)
    if volume is not None:
        terms = items_of(volume.get("spec", "nodeAffinity", "required", "nodeSelectorTerms"))
        return _zones_in([items_of(mapping_of(term).get("matchExpressions")) for term in terms])
    name = claim.spec.get("storageClassName")
    made = pods.owner.find("StorageClass", name) if pods.owner is not None and isinstance(name, str) else None
    if made is None:
        return set()
    topologies = made.items("allowedTopologies")
    return _zones_in([items_of(mapping_of(one).get("matchLabelExpressions")) for one in topologies])


def _zones_in(terms: Sequence[Sequence[Any]]) -> set[str]:
    """The zones of several alternatives; none if one of them names no zone."""
    found: set[str] = set()
    for expressions in terms:
        zones = [
            texts_of(mapping_of(one).get("values"))
            for one in expressions
            if _ZONE_KEYS.fullmatch(str(mapping_of(one).get("key")))
        ]
        if not zones:
            return set()
        found |= set(zones[0])
    return found


def _in_other_zones(pods: Pods, pools: Mapping[str, Pool]) -> Iterator[tuple[_Claim, set[str], set[str]]]:
    """The claims whose volumes are in no zone of the pools that admit the pods: with their zones, and the pools' zones."""
    admitting = [pool for pool in pools.values() if admits(pool, pods.constraints)]
    reached = {labels.get(ZONE, "") for pool in admitting for labels in labels_by_zone(pool)}
    for claim in _claims(pods):
        zones = _zones_of(pods, claim)
        if zones and reached and "" not in reached and zones.isdisjoint(reached):
            yield claim, zones, reached


def _elsewhere(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Claims whose volume is out of reach of the nodes that the pods select, or of all pools."""
    said = set()
    for claim, zones, reached in _in_other_zones(pods, settings.pools):
        said.add(claim.name)
        text = (
            f"{_mounts(pods, claim, zones)}, and its pools have nodes in {_listed(reached)} only, so it stays Pending"
        )
        yield Problem(claim.path, text)
    for claim in _claims(pods):
        zones = _zones_of(pods, claim)
        if zones and claim.name not in said and _is_elsewhere(pods, zones, settings):
            text = f"{_mounts(pods, claim, zones)}, and asks for nodes elsewhere, so it stays Pending"
            yield Problem(claim.path, text)


def _is_elsewhere(pods: Pods, zones: set[str], settings: Settings) -> bool:
    """Whether the conditions of the pods exclude the zones, and no node for another reason."""
    there = Expression(ZONE, "In", tuple(sorted(zones)))
    asked = [
        [one._replace(key=RENAMED.get(one.key, one.key)) for one in given] for given in alternatives(pods.constraints)
    ]
    return all(excluding([there, *given], settings) and not excluding(given, settings) for given in asked)


_SHAREABLE = re.compile(r"nfs|efs|azurefile|filestore|fsx|lustre|cephfs|gluster|juicefs|fuse", re.IGNORECASE)
"""Storage classes of file servers, which many nodes mount whatever the claim asks for."""


def _shared_by_nodes(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    """Claims for one node or one pod that several pods of an object mount, though these cannot share a node."""
    pods = [one for one in pods_of(subject, settings) if isinstance(one, Pods)]
    return _shared(pods, subject.label, settings)


def _shared_in_pipeline(pipeline: Pipeline, settings: Settings) -> Iterator[Problem]:
    """The same of the tasks of a pipeline."""
    return _shared(list(pipeline_pods(pipeline, settings)), f"the pipeline {pipeline.name}", settings)


def _shared(pods: Sequence[Pods], label: str, settings: Settings) -> Iterator[Problem]:
    users: dict[str, list[tuple[Pods, list[_Claim]]]] = {}
    for one in pods:
        own: dict[str, list[_Claim]] = {}
        for claim in _claims(one):
            if claim.is_of_one_node and claim.mounted.sharing is not Sharing.POD:
                own.setdefault(claim.name, []).append(claim)
        for name, claims in own.items():
            users.setdefault(name, []).append((one, claims))
    for name, found in users.items():
        claim = found[0][1][0]
        if _SHAREABLE.search(str(claim.spec.get("storageClassName") or "")):
            continue
        mounting = [
            replace(one, group=one.group and pods_with(one.group, [each.mounted for each in claims]))
            for one, claims in found
        ]
        reason = _apart(mounting, claim, settings)
        if reason:
            mode = "ReadWriteOncePod" if claim.modes == {"ReadWriteOncePod"} else "ReadWriteOnce"
            yield Problem(claim.path, f"several pods of {label} mount the claim {name} ({mode}): {reason}")


def _apart(users: Sequence[Pods], claim: _Claim, settings: Settings) -> str:
    """Why the pods cannot share the volume, in words; empty if they may."""
    several = [one for one in users if one.are_several]
    others = [(one, other) for one, other in combinations(users, 2) if _meet(one, other)]
    if not others and not several:
        return ""
    if claim.modes == {"ReadWriteOncePod"}:
        return "one pod has its volume, and the others wait"
    for one in several:
        if _keeps_apart(one):
            return f"each {_named(one)} keeps the others off its node, and one node has the volume"
    for one, other in [*others, *((one, one) for one in several)]:
        if one is not other:
            both = [[*a, *b] for a in alternatives(one.constraints) for b in alternatives(other.constraints)]
            reasons = [excluding(given, settings) for given in both]
            if all(reasons):
                return f"{_named(one)} and {_named(other)} ask for {reasons[0]}, and one node has the volume"
        count = (one.group.at_once if one is other and one.group is not None else None) or 2
        resource = _too_much(one, other, count, settings)
        if resource:
            number = "two" if count == 2 else str(count)
            names = f"{number} {_named_several(one)}" if one is other else f"{_named(one)} and {_named(other)}"
            return f"no node has enough {resource} for {names}, and one node has the volume"
    return ""


def _named(pods: Pods) -> str:
    return pods.role or "pod"


def _named_several(pods: Pods) -> str:
    return f"pods of {pods.role}" if pods.role else "pods"


def _meet(one: Pods, other: Pods) -> bool:
    """Whether pods of two templates of an object visibly run at the same time."""
    return one.group is not None and other.group is not None and run_together(one.group, other.group) is True


def _keeps_apart(pods: Pods) -> bool:
    """Whether the pods of a template refuse to be on one node."""
    labels = mapping_at(pods.metadata, "labels")
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for term in items_of(mapping_at(pods.value, "affinity", "podAntiAffinity").get(required)):
        wanted = mapping_at(term, "labelSelector").get("matchLabels")
        if mapping_of(term).get("topologyKey") == "kubernetes.io/hostname" and isinstance(wanted, dict) and wanted:
            return wanted.items() <= labels.items()
    return False


def _too_much(one: Pods, other: Pods, count: int, settings: Settings) -> str:
    """A resource of which no node that admits both has enough for all; empty without one, or if nodes are not described.

    ``count``: how many pods there are, if both are of one template.
    """
    wanted, more = one.requests, {name: amount * (count - 1) for name, amount in other.requests.items()}
    admitting = [
        pool
        for pool in settings.pools.values()
        if admits(pool, one.constraints, wanted) and admits(pool, other.constraints, other.requests)
    ]
    if not admitting or any(pool.node is None for pool in admitting):
        return ""
    short = [_short(pool.node or {}, wanted, more) for pool in admitting]
    return short[0] if all(short) else ""


def _short(node: Mapping[str, int], wanted: Mapping[str, int], more: Mapping[str, int]) -> str:
    names = [name for name in wanted if name in more and wanted[name] + more[name] > node.get(name, 0)]
    return next((name for name in names if name in node or is_accelerator(name)), "")


_SEPARATED = re.compile(r"(&&|\|\||[;&|\n])")
_REMOVERS = frozenset({"rm", "gsutil", "gcloud", "aws", "hdfs", "find"})
_PREPARES = frozenset(
    {
        *("", "[", "[[", "test", "true", "set", "export", "source", ".", "trap", "ulimit", "env", "exit", "fi", "done"),
        *("cd", "mkdir", "chmod", "chown", "ls", "touch", "sync", "sleep", "echo", "cat", "date", "df", "du", "free"),
        *("id", "pwd", "whoami", "nvidia-smi", "pip", "pip3", "uv", "conda", "apt", "apt-get", "git"),
    }
)
"""Commands that do no work: they prepare it, or say something."""

_LONGEST_SCRIPT = 50_000  # characters
_SCRATCH = re.compile(r"cache|tmp|temp|lock|\blogs?\b", re.IGNORECASE)
_SAVES_TO = r"--?(?:out|save|model|log|work|run|exp|ckpt|checkpoint)[\w-]{0,40}[ =]['\"]?"
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_STARTS_OVER = re.compile(r"--overwrite[_-]output[_-]dir(?:=(?:[Tt]rue|1))?")


def _removed(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Commands that remove what the last attempt saved, before the work begins."""
    if not pods.on_spot or not pods.is_work:
        return
    inits = [] if pods.form == "K" else list(init_containers(pods))
    for container in (*inits, *pods.containers):
        is_first = container in inits
        for place in _removed_places(container, is_first=is_first):
            if _is_kept(pods, container, place) and _is_saved_to(pods, container, place):
                text = f"{pods.label} removes {place} when it starts, where the last attempt saved its work"
                yield Problem(container.path, text)
                break
        words = container.words
        if any(_STARTS_OVER.fullmatch(word) for word in words) and not any("resume" in word for word in words):
            text = f"{pods.label} starts over in its output folder (overwrite_output_dir), where the last attempt saved its work"
            yield Problem(container.path, text, "Remove the argument, or name the checkpoint to resume from.")


def _removed_places(container: Container, *, is_first: bool) -> Iterator[str]:
    """The folders that a container's command removes before its work; ``is_first``: the work is that of other containers."""
    words = container.words
    scripts = [word for word in words if re.search(r"\s", word)]
    if words and words[0].rpartition("/")[2] in _REMOVERS:
        scripts.append(" ".join(words))
    given = [mapping_of(one) for one in items_of(container.value.get("env"))]
    variables = {str(one.get("name")): str(one.get("value")) for one in given}
    for script in scripts:
        for place in _removed_by(script[:_LONGEST_SCRIPT], is_first=is_first):
            yield _VARIABLE.sub(lambda one: variables.get(one[1], one[0]), place)


def _removed_by(script: str, *, is_first: bool) -> Iterator[str]:
    """The folders that a shell script removes recursively and unconditionally before its work."""
    parts = _SEPARATED.split(script.replace("\\\n", " "))
    removed: list[str] = []
    for command, before in zip(parts[::2], ["", *parts[1::2]], strict=True):
        words = command.lstrip(" \t({").split()
        while words and (words[0] in ("sudo", "do") or re.match(r"\w+=", words[0])):
            words.pop(0)
        name = words[0] if words else ""
        if name in _REMOVERS:
            removed += _targets(words) if before != "||" else ()
        elif name in ("if", "then", "else", "elif", "case", "while", "until", "for"):
            continue  # a conditional removal has a reason
        elif name not in _PREPARES:
            yield from removed
            return
    if is_first:
        yield from removed


def _targets(words: Sequence[str]) -> Iterator[str]:
    """What a command removes recursively; empty if it removes single files, or does something else."""
    flags = [word for word in words if word.startswith("-")]
    is_deep = any(re.fullmatch(r"-[a-zA-Z]*[rR][a-zA-Z]*|--recursive|-delete", flag) for flag in flags)
    is_of_some = any(flag in ("-name", "-iname", "-mtime", "-path") for flag in flags)
    if is_deep and not is_of_some and ("rm" in words or "-rm" in words or "-delete" in flags):
        for word in words:
            place = word.strip("\"'").rstrip("*").rstrip("/")
            if place.startswith(("/", "$", "s3://", "gs://", "hdfs://", "./")) and len(place) > 1:
                yield place


def _is_kept(pods: Pods, container: Container, place: str) -> bool:
    """Whether a folder outlives the pod: an object store, or a volume that is not the pod's own."""
    if "://" in place:
        return True
    found = [(str(mount.get("mountPath")).rstrip("/"), path, mount) for path, mount in mounts_of(pods, container)]
    around = [one for one in found if f"{place}/".startswith(f"{one[0]}/")]
    if around:
        _, path, mount = max(around, key=lambda one: len(one[0]))
        return lost_place(pods, path, mount) is None  # the deepest mount contains the folder
    return any(at.startswith(f"{place}/") and lost_place(pods, path, mount) is None for at, path, mount in found)


def _is_saved_to(pods: Pods, container: Container, place: str) -> bool:
    """Whether a folder is one in which work is saved: by its name, by its volume, or because the command names it again."""
    if _SCRATCH.search(place):
        return False
    if names_checkpoint(place) or _keeps(container, place):
        return True
    said = " ".join(word for one in (*pods.containers, container) for word in one.words)
    return re.search(_SAVES_TO + re.escape(place) + r"(?![\w-])", said) is not None


def _lost_checkpoints(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A volume with checkpoints that is lost with the pod or the node."""
    for place, lost in _lost(pods):
        if place is None or place.is_certain:
            yield Problem(lost.path, f"{pods.label} keeps checkpoints at {lost.mounted} in {lost.words}")


def _lost_output(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A volume with the work's output folder that is lost with the pod or the node."""
    for place, lost in _lost(pods):
        if place is not None and not place.is_certain:
            yield Problem(lost.path, f"{pods.label} writes to {place.folder} ({place.option}) in {lost.words}")


def _lost(pods: Pods) -> Iterator[tuple[SavePlace | None, LostPlace]]:
    if pods.on_spot and pods.is_work:
        for container in pods.containers:
            yield from lost_saves(pods, container)


def _unwritable(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A folder for saves that is read-only."""
    for container in pods.containers if pods.is_work else ():
        for place in save_places(container):
            found = read_only(pods, container, place.folder) if place.is_written else None
            if found is not None:
                text = f"{pods.label} saves to {place.folder} ({place.option}), and {found[1]}"
                yield Problem(found[0], text)
                break


def _keeps(container: Container, folder: str) -> bool:
    """Whether a container is set to keep its saves in a folder."""
    places = (one.folder for one in save_places(container) if one.is_certain)
    return any(place.startswith(folder.rstrip("/") + "/") or place == folder for place in places)


def _unmounted(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A folder for checkpoints that no volume is mounted at: it is in the container's own layer."""
    if not pods.on_spot or not pods.is_work or pods.form == "K":
        return
    for container in pods.containers:
        mounts = [
            str(mapping_of(one).get("mountPath")).rstrip("/") for one in items_of(container.value.get("volumeMounts"))
        ]
        for place, name, _, is_written in save_places(container):
            is_path = not is_written and (
                place.startswith("/") and not _MOUNTS_LIKELY.match(place) and "{{" not in place and "$" not in place
            )
            if is_path and not any(place == mount or place.startswith(mount + "/") for mount in mounts):
                text = f"{pods.label} keeps checkpoints at {place} ({name}), where no volume is mounted"
                yield Problem(container.path, text)
                break


def _no_checkpoint(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Work that is allowed more than an hour on spot, without a sign of a checkpoint."""
    if not pods.asks_for_spot or pods.duty is not PodRole.WORKER or not pods.containers:
        return
    seconds = _duration(pods)
    if seconds <= _LONG or has_checkpoint(pods):
        return
    yield Problem(
        pods.spec, f"{pods.label} may run {seconds / 3600:.0f} h on spot, without a sign that it saves its work"
    )


def _duration(pods: Pods) -> int:
    """How long one attempt may run, in seconds; 0 if the object does not say.

    A deadline for all attempts bounds the first one too.
    """
    given = [pods.value.get("activeDeadlineSeconds")]
    if pods.job is not None:
        given.append(mapping_at(pods.document.get(()), *pods.job).get("activeDeadlineSeconds"))
    if pods.retry is Retry.ROLE and pods.owner is not None:
        given.append(pods.owner.mapping("spec", "runPolicy").get("activeDeadlineSeconds"))
    whole = [one for one in given if one is not None and is_whole(one)]
    whole += [int(one) for one in given if isinstance(one, str) and re.fullmatch(r"[0-9]{1,12}", one)]
    return min(whole, default=0)


_CLAIM = (
    "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: ckpt}}\nspec:\n  accessModes: [{mode}]\n"
    "  resources: {{requests: {{storage: 10Gi}}}}\n---\n"
)
_ZONAL_VOLUME = (
    "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk}\nspec:\n  claimRef: {name: ckpt}\n"
    "  nodeAffinity:\n    required:\n      nodeSelectorTerms:\n      - matchExpressions:\n"
    "        - {key: topology.kubernetes.io/zone, operator: In, values: [eastus-2]}\n---\n"
) + _CLAIM.format(mode="ReadWriteMany")
_VOLUME = "volumes:\n- {name: work, persistentVolumeClaim: {claimName: ckpt}}\n"
_MOUNT = "volumeMounts:\n- {name: work, mountPath: /work}\n"
_EMPTY = "volumes:\n- {name: ckpt, emptyDir: {}}\n"
_ARGS = "args: [--checkpoint-dir=/ckpt/run]\n"
_IN_CLAIM = ON_SPOT + "volumes:\n- {name: ckpt, persistentVolumeClaim: {claimName: ckpt}}\n"
_CKPT = "volumeMounts:\n- {name: ckpt, mountPath: /ckpt}\n"

_OUTPUT = "args: [--output_dir=/out]\n"
_READ_ONLY = "volumeMounts:\n- {name: ckpt, mountPath: /out, readOnly: true}\n"

RULES = (
    Rule(
        id="zonal-volume-on-spot",
        severity=Severity.WARNING,
        title="Mounts a volume of one zone or one node on spot",
        why="The next attempt can start only in the zone of its volume, and only after the volume is detached from the "
        "reclaimed node, which takes minutes if the node went without notice. Spot capacity of one zone is "
        "often used up.",
        fix="Use a volume that many nodes can mount (ReadWriteMany) or an object store.",
        fails=_CLAIM.format(mode="ReadWriteOnce") + job(ON_SPOT + _VOLUME, container=_MOUNT),
        passes=_CLAIM.format(mode="ReadWriteMany") + job(ON_SPOT + _VOLUME, container=_MOUNT),
        checks=Checks(pods=_zonal),
    ),
    Rule(
        id="volume-in-other-zone",
        severity=Severity.ERROR,
        title="Mounts a volume of a zone in which none of its nodes are",
        why="A disk is attached in its own zone. The scheduler finds no node that has both the zone and what the pods ask for, "
        "and no autoscaler adds one.",
        fix="Add the zone of the volume to the pool, make the volume in a zone of the pool (volumeBindingMode: "
        "WaitForFirstConsumer), or use a volume of a region.",
        fails=_ZONAL_VOLUME
        + job("nodeSelector: {topology.kubernetes.io/zone: eastus-1}\n" + ON_SPOT + _VOLUME, container=_MOUNT),
        passes=_ZONAL_VOLUME.replace("eastus-2", "eastus-1")
        + job("nodeSelector: {topology.kubernetes.io/zone: eastus-1}\n" + ON_SPOT + _VOLUME, container=_MOUNT),
        checks=Checks(pods=_elsewhere),
        source='Kubernetes documentation, "Persistent Volumes" (node affinity), "Storage Classes" (allowed topologies)',
    ),
    Rule(
        id="claim-of-one-node-shared",
        severity=Severity.ERROR,
        title="A volume of one node for pods that cannot be on one node",
        why="A claim of ReadWriteOnce is attached to one node at a time, and one of ReadWriteOncePod is mounted by one pod. "
        "Pods that must be on other nodes wait for it for ever.",
        fix="Use a volume that many nodes can mount (ReadWriteMany), or give each pod its own claim.",
        fails=_CLAIM.format(mode="ReadWriteOncePod") + job(_VOLUME, container=_MOUNT, spec="parallelism: 2\n"),
        passes=_CLAIM.format(mode="ReadWriteMany") + job(_VOLUME, container=_MOUNT, spec="parallelism: 2\n"),
        checks=Checks(objects=_shared_by_nodes, pipelines=_shared_in_pipeline),
        source='Kubernetes documentation, "Persistent Volumes" (access modes)',
    ),
    Rule(
        id="saves-removed-at-start",
        severity=Severity.WARNING,
        title="Removes the saved work before it begins",
        why="After an interruption the same command runs again: it removes what the last attempt saved, and starts from the "
        "beginning.",
        fix="Do not remove it at the start; clean up after the work, or use a separate folder for each run.",
        fails=job(_IN_CLAIM, container="command: [sh, -c, 'rm -rf /ckpt/run && train --out /ckpt/run']\n" + _CKPT),
        passes=job(_IN_CLAIM, container="command: [sh, -c, 'train --out /ckpt/run && rm -rf /ckpt/run']\n" + _CKPT),
        checks=Checks(pods=_removed),
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
        id="output-in-emptydir",
        severity=Severity.NOTE,
        title="The output folder in a volume that goes with the pod or the node",
        why="Training frameworks save their checkpoints in the output folder. If this work does, the next attempt does not "
        "find them; results that nothing copies elsewhere are lost in any case.",
        fix="Mount a persistent volume claim there, or save to an object store.",
        fails=job(ON_SPOT + _EMPTY, container=_OUTPUT + _CKPT.replace("name: ckpt", "name: scratch"))
        .replace("{name: ckpt, emptyDir", "{name: scratch, emptyDir")
        .replace("mountPath: /ckpt", "mountPath: /out"),
        passes=job(_IN_CLAIM, container=_OUTPUT + _CKPT.replace("mountPath: /ckpt", "mountPath: /out")),
        checks=Checks(pods=_lost_output),
    ),
    Rule(
        id="saves-not-writable",
        severity=Severity.ERROR,
        title="Saves in a volume that is read-only",
        why="The first save fails: nothing can be written to a read-only mount or claim, nor to an image volume, a ConfigMap "
        "or a Secret.",
        fix="Save to a claim that is mounted without readOnly, or to an object store.",
        fails=job(_IN_CLAIM, container=_OUTPUT + _READ_ONLY),
        passes=job(_IN_CLAIM, container=_OUTPUT + _READ_ONLY.replace(", readOnly: true", "")),
        checks=Checks(pods=_unwritable),
        source='Kubernetes documentation, "Volumes" (image), "Persistent Volumes" (access modes)',
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
