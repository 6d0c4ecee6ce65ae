"""Where the containers of a pod save their work, and whether that place survives the pod and its node.

The rules on checkpoints use it. Folders are found in arguments, shell scripts and variables; a folder's volume is that of the
deepest mount above it. Names of options are those of the training frameworks (``--output_dir``, ``--save_dir``,
``--checkpoint-dir``). Sources: Kubernetes documentation, "Volumes", "Ephemeral Volumes"; the drivers' own documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spotwright.kinds.kind import Sharing
from spotwright.linter.subjects import Container, Pods, Shape, items_of, mapping_at, mapping_of, texts_of
from spotwright.placing.context import POLICY_ANNOTATION
from spotwright.placing.documents import Path

__all__ = [
    "LostPlace",
    "SavePlace",
    "has_checkpoint",
    "lost_place",
    "lost_saves",
    "mounts_of",
    "names_checkpoint",
    "read_only",
    "save_places",
]

_CHECKPOINT = re.compile(r"check-?_?points?|(?<![a-z])ckpts?(?![a-z])", re.IGNORECASE)
_SAVED = re.compile(r"(?<![a-z])save[-_.]?(?:dir|path|folder|to)s?$", re.IGNORECASE)
_OUTPUT = re.compile(
    r"(?<![a-z])(?:out(?:put)?(?:[-_.]?(?:dir|path|folder))?|(?:work|model|run|exp|experiment)[-_.]?dir|default[-_]root[-_]dir)$",
    re.IGNORECASE,
)
_SIGNS = re.compile(r"check-?_?point|(?<![a-z])ckpt|resume|restore|save[-_](?:dir|path|every|steps)", re.IGNORECASE)
_LOADS = re.compile(
    r"(?:resume|restore|load|init|pretrained)\w*[-_](?:from|path)?[-_]?(?:check-?_?point|ckpt)\w*", re.IGNORECASE
)
_RESUMES = re.compile(r"--?[\w-]*resume", re.IGNORECASE)
_UPLOADS = re.compile(
    r"\b(?:aws s3|gsutil|gcloud storage|rclone|azcopy|mc (?:cp|mirror)|s5cmd|hf upload|huggingface-cli upload|rsync)\b"
)


class SavePlace(NamedTuple):
    """A folder in which a container saves. ``option`` is the argument or the variable that names it.

    ``is_certain``: a resume needs its content; else it may be a result that is copied elsewhere at the end.
    ``is_written``: the option names a folder that is written; a checkpoint's folder may only be read.
    """

    folder: str
    option: str
    is_certain: bool
    is_written: bool


def names_checkpoint(text: str) -> bool:
    """Whether a name means checkpoints."""
    return _CHECKPOINT.search(text) is not None


def save_places(container: Container) -> Iterator[SavePlace]:
    """The folders in which a container saves its work, by its arguments and variables."""
    words = list(_words(container))
    resumes = any(_RESUMES.match(word) for word in words)
    given = [mapping_of(one) for one in items_of(container.value.get("env"))]
    options = [*_options(words), *((str(one.get("name")), one.get("value")) for one in given)]
    for name, value in options:
        if not isinstance(value, str) or not value or value.startswith("-") or _LOADS.search(name):
            continue
        is_checkpoint, is_saved = names_checkpoint(name), _SAVED.search(name) is not None
        if is_checkpoint or is_saved or (name.startswith("-") and _OUTPUT.search(name)):
            yield SavePlace(value, name, is_checkpoint or is_saved or resumes, not is_checkpoint)


def _words(container: Container) -> Iterator[str]:
    """The words of the command and the arguments; shell scripts are split."""
    for word in container.words:
        yield from re.findall(r"[^\s;&|'\"]+", word[:_LONGEST]) if re.search(r"\s", word) else [word]


_LONGEST = 50_000  # characters of a script


def _options(words: list[str]) -> Iterator[tuple[str, Any]]:
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            following = words[number + 1] if number + 1 < len(words) else ""
            yield name, value if equals else following
        elif equals and re.fullmatch(r"\+*[\w.]+", name):  # Hydra's overrides, variables of a shell
            yield name, value


class LostPlace(NamedTuple):
    """A place that is gone with the pod or its node: the path of the mount, where it is mounted, and its kind in words."""

    path: Path
    mounted: str
    words: str


_OF_POD = {
    "emptyDir": "an emptyDir, which goes with the pod",
    "ephemeral": "a generic ephemeral volume, whose claim is deleted with the pod",
    "gitRepo": "a gitRepo volume, which goes with the pod",
    "hostPath": "a hostPath, which goes with the node",
}
_NODE_LOCAL = re.compile(
    r"(?:^|[./-])(?:local|localpv|lvm|topolvm|hostpath|zfs|nvme|scratch|local-path|tmpfs)(?:$|[./-])", re.IGNORECASE
)
"""Provisioners and drivers whose volumes are on a disk of one node: rancher.io/local-path, topolvm.io, local.csi.openebs.io."""

_UNWRITABLE = {
    "image": "an image volume",
    "configMap": "a ConfigMap",
    "secret": "a Secret",
    "downwardAPI": "a downwardAPI volume",
    "projected": "a projected volume",
}


def mounts_of(pods: Pods, container: Container) -> Iterator[tuple[Path, Shape]]:
    """The mounts of a container, with their paths; an executor's are in its Kubernetes settings."""
    for index, one in enumerate(items_of(container.value.get("volumeMounts"))):
        yield (*container.path, "volumeMounts", index), mapping_of(one)
    for name in ("pvcMount", "emptyDirMounts", "genericEphemeralVolume") if pods.form == "K" else ():
        for index, one in enumerate(items_of(pods.value.get(name))):
            yield pods.at(name, index), mapping_of(one)


def _mount_of(pods: Pods, container: Container, folder: str) -> tuple[Path, Shape] | None:
    """The deepest mount that contains a folder."""
    around = [
        (len(at), path, mount)
        for path, mount in mounts_of(pods, container)
        if (at := str(mount.get("mountPath")).rstrip("/")) and f"{folder.rstrip('/')}/".startswith(f"{at}/")
    ]
    found = max(around, key=lambda one: one[0], default=None)
    return None if found is None else (found[1], found[2])


def _volume(pods: Pods, mount: Shape) -> Shape:
    return next((one for _, one in pods.volumes if one.get("name") == mount.get("name")), {})


def lost_place(pods: Pods, path: Path, mount: Shape) -> LostPlace | None:
    """A mount that is lost with the pod or its node; ``None`` if its data stays, or that is unknown."""
    at = str(mount.get("mountPath"))
    if pods.form == "K":
        kind = {"emptyDirMounts": "emptyDir", "genericEphemeralVolume": "ephemeral"}.get(str(path[-2]))
        return None if kind is None else LostPlace(path, at, _OF_POD[kind])
    volume = _volume(pods, mount)
    kind = next((name for name in _OF_POD if name in volume), "")
    driver = str(mapping_at(volume, "csi").get("driver") or "")
    if kind:
        return LostPlace(path, at, _OF_POD[kind])
    if _NODE_LOCAL.search(driver):
        return LostPlace(path, at, f"a volume of {driver}, which goes with the pod and its node")
    words = _local_claim(pods, str(volume.get("name")))
    return LostPlace(path, at, words) if words else None


def _local_claim(pods: Pods, name: str) -> str:
    """A volume's claim in words, if its storage class keeps it on one node's disk or it is deleted with the pod."""
    owner = pods.owner
    for claim in pods.claims if owner is not None else ():
        if claim.volume != name or owner is None:
            continue
        named = owner.find("PersistentVolumeClaim", claim.name) if claim.sharing is Sharing.NAMED else None
        spec = claim.spec if named is None else named.mapping("spec")
        label = str(spec.get("storageClassName") or "")
        made = owner.find("StorageClass", label) if label else None
        provisioner = label if made is None else str(made.get("provisioner") or "")
        if _NODE_LOCAL.search(provisioner):
            return f"a claim of the storage class {label}, whose volumes are on a disk of one node"
    return ""


def read_only(pods: Pods, container: Container, folder: str) -> tuple[Path, str] | None:
    """Why a folder is read-only, with the path that says so; ``None`` if it is writable or unknown."""
    found = _mount_of(pods, container, folder)
    if found is None:
        return None
    path, mount = found
    if mount.get("readOnly") is True:
        return (*path, "readOnly"), "its mount is read-only"
    volume = _volume(pods, mount)
    for kind, words in _UNWRITABLE.items():
        if kind in volume:
            return path, f"{words} is read-only"
    for source, value in volume.items():
        if mapping_of(value).get("readOnly") is True:
            return path, f"its volume is read-only ({source})"
    for claim in pods.claims if pods.owner is not None else ():
        if claim.volume == volume.get("name") and pods.owner is not None:
            named = pods.owner.find("PersistentVolumeClaim", claim.name) if claim.sharing is Sharing.NAMED else None
            spec = claim.spec if named is None else named.mapping("spec")
            if set(texts_of(spec.get("accessModes"))) == {"ReadOnlyMany"}:
                return path, f"the claim {claim.name} is ReadOnlyMany"
    return None


def lost_saves(pods: Pods, container: Container) -> Iterator[tuple[SavePlace | None, LostPlace]]:
    """The places of a container's saves that are lost with the pod or its node, each mount once.

    Without a :class:`SavePlace` the name of the volume or the mount implies checkpoints.
    """
    said: set[Path] = set()
    for place in sorted(save_places(container), key=lambda one: not one.is_certain):
        found = _mount_of(pods, container, place.folder)
        lost = None if found is None else lost_place(pods, *found)
        if lost is not None and lost.path not in said and not _is_copied(pods, container, lost):
            said.add(lost.path)
            yield place, lost
    for path, mount in mounts_of(pods, container):
        names = f"{mount.get('name')} {mount.get('volumeName')} {mount.get('mountPath')}"
        lost = lost_place(pods, path, mount) if names_checkpoint(names) and path not in said else None
        if lost is not None:
            yield None, lost


def _is_copied(pods: Pods, container: Container, lost: LostPlace) -> bool:
    """Whether the same command, or another container with the volume, copies what is at a place."""
    if any(_UPLOADS.search(word) for word in container.words):
        return True
    name = next((mount.get("name") for path, mount in mounts_of(pods, container) if path == lost.path), None)
    others = [one for one in pods.containers if one is not container and name is not None]
    return any(
        mapping_of(one).get("name") == name for each in others for one in items_of(each.value.get("volumeMounts"))
    )


def has_checkpoint(pods: Pods) -> bool:
    """Whether anything in a pod template looks like a checkpoint: an argument, a variable, a volume, a policy.

    An option that only names a checkpoint to load does not count.
    """
    texts: list[Any] = [*pods.annotations.values(), pods.annotations.get(POLICY_ANNOTATION)]
    for container in pods.containers:
        texts += container.words
        given: list[Mapping[str, Any]] = [mapping_of(one) for one in items_of(container.value.get("env"))]
        texts += [one.get(field) for one in given for field in ("name", "value")]
        texts += [mount.get("mountPath") for _, mount in mounts_of(pods, container)]
    texts += [volume.get("name") for _, volume in pods.volumes]
    return any(_SIGNS.search(_LOADS.sub("", str(text))) for text in texts if text)
