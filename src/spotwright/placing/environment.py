"""The environment that every attempt has: run, task, attempt, notice and checkpoint, and the library that saves.

The values come from fields of the pod, so that runs, indexes and attempts of one template differ. Pods that start torchrun also
get a PyTorch variable, so that a lost node can be replaced. All attempts of one piece of work in one run share a checkpoint
place that no other work uses. Pods whose image may lack the checkpoint library get it, as ``target.package`` says.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spotwright.checkpoint_file import (
    FILE_NAME,
    checkpoint_file,
    config_map,
    config_map_name,
    imports_spotwright,
)
from spotwright.clouds.providers import is_accelerator
from spotwright.kube.object_fields import mapping
from spotwright.placing.context import Level, PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.pod_change import NO_CHANGE, ContainerChange, PodChange

__all__ = [
    "CHECKPOINT_PATH",
    "LIBRARY_MOUNT",
    "LIGHT",
    "MAKE_CONFIG_MAP",
    "NOTICE_PORT",
    "NO_PLACE",
    "PVC",
    "SHARED_TEMPLATE",
    "SHARES_ITS_STORE",
    "TORCHRUN_REASON",
    "TORCHRUN_VARIABLE",
    "WAYS",
    "WAYS_TO_ALL",
    "AttemptIdentity",
    "Delivery",
    "attempt_variables",
    "c10d_endpoint",
    "delivery",
    "environment_change",
    "installs_only_light",
    "installs_spotwright",
    "library_change",
    "library_lines",
    "library_of_pod",
    "needs_place",
    "restarts_ranks",
    "starts_executor",
    "starts_torchrun",
    "working_containers",
]


NOTICE_PORT = 8788
"""The default port of ``spotwright node-agent`` on every node."""

CHECKPOINT_PATH = "/spotwright/checkpoint"
"""The mount path of the volume of ``checkpoint: pvc://NAME``."""

_VOLUME = "spotwright-checkpoint"
PVC = "pvc://"
"""The prefix of a checkpoint's place on a claim: ``pvc://NAME/FOLDER``."""

_LABEL = "metadata.labels["
_FIELDS = ("metadata.", "status.", "spec.")
"""The prefixes of pod fields; an object's name may have a dot too, but not after these words."""


@dataclass(frozen=True, slots=True)
class AttemptIdentity:
    """The run, task and index of a pod. ``run`` and ``index`` are field paths (``metadata.labels['job-name']``), or texts.

    ``index`` is empty if pods have none or share their work. ``work`` names the work that shares checkpoints: the task's path,
    or the object if its roles work together. ``task`` may be a label of the pod (``metadata.labels['task']``). ``is_elastic``:
    the pod's controller sets the variables of torchrun (``PET_*``), so torchrun starts its code.
    """

    task: str
    work: str
    run: str = "metadata.name"
    index: str = ""
    is_elastic: bool = False


TORCHRUN_VARIABLE = {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"}
"""The variable for pods whose code torchrun starts: their ranks then do not share the rendezvous store.

With a shared one, restarted ranks (``--max-restarts``) read the addresses of their predecessors, and gloo waits for them; and
an agent that stays rank 0 does not publish the store's address in the next round, so that a replacement agent waits for ever.
The torchrun process reads the variable in each round and passes the result to its ranks: in a rank it is too late. Source:
PyTorch 2.15, ``torch/distributed/elastic/rendezvous/dynamic_rendezvous.py`` (``use_agent_store``, ``next_rendezvous``). The
rendezvous ``static`` does not read it and always shares; ``--master-port``, ``--master-addr`` and ``--node-rank`` choose it.
"""

SHARES_ITS_STORE = "ranks that start again, and a pod that comes for a lost one, may wait in vain"
"""The effect of a missing variable, as a clause for messages."""

SHARED_TEMPLATE = (
    "which is one of them, and they share one template, so the rendezvous cannot stay on on-demand alone: give it a replicated "
    "separate job, leader, with one pod that runs the same command, and name that in --rdzv-endpoint"
)
"""Why a rendezvous by c10d is on spot, and what to do, as the end of a message."""

TORCHRUN_REASON = "ranks that start again meet, and so does an agent that comes for a lost one"
"""The purpose of the variable."""

_STARTS_TORCHRUN = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b|\baccelerate\s+launch\b")
_BY_AGENT = "WORKER_COMMAND"  # jobset v0.12, cmd/in-place-restart-agent
_OF_TORCHRUN = "PET_"  # the prefix of torchrun's option variables


def environment_change(spec: Mapping[str, Any], identity: AttemptIdentity, checkpoint: str | None) -> PodChange:
    """The variables of a pod spec's working containers, and the checkpoint volume. Existing ones stay.

    So does an existing mount at the checkpoint's path and an existing volume of its name, because the API server refuses a second
    one: a JobSet that Trainer makes of a placed runtime has both, with the runtime's name in the folder.
    """
    place, claim, mount = _checkpoint(identity, checkpoint)
    variables, changes = list(_variables(identity, place)), {}
    containers = spec.get("containers") or ()
    for index in working_containers(containers):
        container = containers[index]
        names = {one.get("name") for one in _variables_of(container)}
        wanted = [*variables, TORCHRUN_VARIABLE] if identity.is_elastic or starts_torchrun(container) else variables
        is_mounted = not claim or _has(container.get("volumeMounts"), "mountPath", CHECKPOINT_PATH)
        new = tuple(one for one in wanted if one["name"] not in names)
        changes[index] = ContainerChange(new, () if is_mounted else (mount,))
    mounts = any(change.mounts for change in changes.values())
    volume = {"name": _VOLUME, "persistentVolumeClaim": {"claimName": claim}}
    volumes = (volume,) if mounts and not _has(spec.get("volumes"), "name", _VOLUME) else ()
    return PodChange(containers=changes, volumes=volumes)


_OF_WORK = frozenset({"jax", "main", "mpi", "node", "paddle", "pytorch", "tensorflow", "trainer", "xgboost"})
"""Names by which kinds know the container of the user's code: the training operator, Trainer, Argo and KFP."""

_SIDECARS = re.compile(
    r"istio|linkerd|envoy|proxy|vault-agent|fluent|filebeat|promtail|vector|datadog|otel|jaeger|exporter|git-sync|gcsfuse|nginx"
)


def working_containers(containers: Sequence[Any]) -> list[int]:
    """The indexes of the containers that do the work of a pod: sidecars beside them need no change.

    Of several containers: those with the name by which a kind knows the user's code, else those with accelerators, else all that
    are not proxies, log collectors and the like by name or image. A container that names one of our variables or imports the
    library is among them in any case.
    """
    given = [container if isinstance(container, dict) else {} for container in containers]
    every = range(len(given))
    named = [index for index in every if given[index].get("name") in _OF_WORK]
    equipped = [index for index in every if _has_accelerators(given[index])]
    plain = [
        index for index in every if not _SIDECARS.search(f"{given[index].get('name')} {given[index].get('image')}")
    ]
    chosen = set(named or equipped or plain or every)
    return [index for index in every if index in chosen or _names_ours(given[index])]


def starts_torchrun(container: Mapping[str, Any]) -> bool:
    """Whether a container visibly starts its code with torchrun: by its command, or by a variable for torchrun."""
    if _STARTS_TORCHRUN.search(_text(container)):
        return True
    return any(
        isinstance(one, dict) and str(one.get("name")).startswith(_OF_TORCHRUN) for one in container.get("env") or ()
    )


def c10d_endpoint(container: Mapping[str, Any]) -> str:
    """The c10d rendezvous endpoint of torchrun, if a container visibly sets one; empty if not, or within one pod.

    ``container`` may be the trainer of a TrainJob, which has the same fields.
    """
    variables = {str(one.get("name")): one.get("value") for one in _variables_of(container)}
    text = _text(container)
    backend, endpoint = (
        found[1] if (found := option.search(text)) else str(variables.get(name) or "")
        for option, name in (_BACKEND, _ENDPOINT)
    )
    return endpoint if backend == "c10d" and not _WITHIN_A_POD.match(endpoint) else ""


def restarts_ranks(container: Mapping[str, Any]) -> bool:
    """Whether torchrun in a container visibly restarts failed ranks."""
    text, variables = _text(container), {str(one.get("name")): one.get("value") for one in _variables_of(container)}
    found = _RESTARTS.search(text) if starts_torchrun(container) else None
    return (found[1] if found else str(variables.get(f"{_OF_TORCHRUN}MAX_RESTARTS") or "0")).strip("'\"") != "0"


_RESTARTS = re.compile(r"--max[-_]restarts[=\s]+(\S+)")
_BACKEND = re.compile(r"--rdzv[-_]backend[=\s]+['\"]?([\w-]+)"), f"{_OF_TORCHRUN}RDZV_BACKEND"
_ENDPOINT = re.compile(r"--rdzv[-_]endpoint[=\s]+['\"]?([^\s'\"]+)"), f"{_OF_TORCHRUN}RDZV_ENDPOINT"
_WITHIN_A_POD = re.compile(r"localhost\b|127\.|\[?::1|$")


def torchrun_words(containers: Sequence[Any], working: Iterable[int], *, is_elastic: bool) -> str:
    """The line of ``explain`` on the torchrun variable in a pod's working containers; empty where none starts torchrun."""
    said: dict[str, list[str]] = {}
    for index in working:
        container = containers[index] if isinstance(containers[index], dict) else {}
        if is_elastic or starts_torchrun(container):
            name = TORCHRUN_VARIABLE["name"]
            value = next((one.get("value") for one in _variables_of(container) if one.get("name") == name), None)
            said.setdefault(str(value), []).append(str(container.get("name")))
    words = []
    for value, names in said.items():
        own = "" if value == TORCHRUN_VARIABLE["value"] else ", so not all may meet again (yours: write 1)"
        words.append(
            f"{TORCHRUN_VARIABLE['name']}={value} in {', '.join(names)}{own or f', so that {TORCHRUN_REASON}'}"
        )
    return "; ".join(words)


def _has_accelerators(container: Mapping[str, Any]) -> bool:
    limits = mapping(mapping(container.get("resources")).get("limits"))
    return any(is_accelerator(str(name)) for name in limits)


def _names_ours(container: Mapping[str, Any]) -> bool:
    text = f"{_text(container)} {container.get('env')}"
    return "SPOTWRIGHT_" in text or imports_spotwright(text)


def _has(items: Any, key: str, value: str) -> bool:
    """Whether one of the mappings in a list has a value."""
    return any(isinstance(item, dict) and item.get(key) == value for item in items or ())


def attempt_variables(identity: AttemptIdentity, checkpoint: str | None) -> list[dict[str, Any]]:
    """The variables, for kinds whose pods take no mounts: with the checkpoint if it is a URL."""
    is_url = checkpoint is not None and not checkpoint.startswith(PVC)
    return list(_variables(identity, _checkpoint(identity, checkpoint if is_url else None)[0]))


def _variables(identity: AttemptIdentity, place: str) -> Iterator[dict[str, Any]]:
    """The variables in order: Kubernetes resolves ``$(NAME)`` only from earlier variables."""
    yield _from_field("SPOTWRIGHT_RUN", identity.run)
    is_label = identity.task.startswith(_LABEL)  # object names have no brackets
    yield (
        _from_field("SPOTWRIGHT_TASK", identity.task)
        if is_label
        else {"name": "SPOTWRIGHT_TASK", "value": identity.task}
    )
    if identity.index:
        yield _from_field("SPOTWRIGHT_INDEX", identity.index)
    yield _from_field("SPOTWRIGHT_POD_UID", "metadata.uid")
    yield _from_field("SPOTWRIGHT_HOST", "status.hostIP")
    yield {"name": "SPOTWRIGHT_NOTICE_URL", "value": f"http://$(SPOTWRIGHT_HOST):{NOTICE_PORT}/notice"}
    if place:
        yield {"name": "SPOTWRIGHT_CHECKPOINT", "value": place}


def _from_field(name: str, path: str) -> dict[str, Any]:
    if not path.startswith(_FIELDS):  # a text, or a template that Argo fills in
        return {"name": name, "value": path}
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _is_template(value: str) -> bool:
    """Whether Argo fills the value in, before the pod exists."""
    return "{{" in value


def _checkpoint(identity: AttemptIdentity, given: str | None) -> tuple[str, str, dict[str, str]]:
    """The value of the variable, and for a volume its claim and the mount of its folder, which the kubelet creates.

    Argo mounts the volumes of the main container into its own container ``wait`` as well, without the variables: there the
    kubelet refuses a ``subPathExpr`` (``missing value for SPOTWRIGHT_RUN``, seen on Argo 3.7.3). So the folder is a ``subPath``
    that Argo fills in.
    """
    if given is None:
        return "", "", {}
    parts = ["$(SPOTWRIGHT_RUN)", identity.work, *(["$(SPOTWRIGHT_INDEX)"] if identity.index else [])]
    if not given.startswith(PVC):
        return "/".join([given.rstrip("/"), *parts]), "", {}
    key = "subPathExpr"
    if _is_template(identity.run):
        key = "subPath"
        parts = [identity.run, identity.work, *([identity.index] if identity.index else [])]
    claim, _, below = given.removeprefix(PVC).strip("/").partition("/")
    folder = "/".join([below, *parts] if below else parts)
    return CHECKPOINT_PATH, claim, {"name": _VOLUME, "mountPath": CHECKPOINT_PATH, key: folder}


LIGHT = "spotwright-train"
"""The distribution of the library alone; its modules are the same as the file's (:mod:`spotwright.checkpoint_file`)."""

WAYS, WAYS_TO_ALL = (
    f"install {distribution} in the image and set target: {{package: image}} in spotwright.yaml, or name its path in the image "
    "(package: /PATH)"
    for distribution in (LIGHT, "spotwright")
)
"""Remedies for every kind, for messages: to get the library, or the other modules of Spotwright too."""

NO_PLACE = (
    "its code calls Checkpoint(), and its policy names no checkpoint, so what it saves goes with its pod: set checkpoint to "
    "pvc://NAME or a URL in the policy"
)
"""The warning for code whose saves no later attempt would find."""

_INSTALLS_IT = re.compile(
    r"\bpip[\d.]*\s+install[^\n]*?"
    r"(?:['\"\s]spotwright(?P<light>[-_.]train)?(?=['\"\s\[=<>!~@;]|$)"
    r"|/spotwright(?P<light_file>[-_]train)?-[\d.]+[^'\"\s]*\.(?:whl|tar\.gz))"
)
_WITHOUT_PLACE = re.compile(r"\bCheckpoint\(\s*(?:\)|\w+\s*=)")
LIBRARY_MOUNT = "/spotwright/library"
"""The folder in which pods have the library's file where a ConfigMap brings it."""

MAKE_CONFIG_MAP = "spotwright checkpoint-file --config-map | kubectl -n NAMESPACE apply -f -"
"""The command for the ConfigMap that all pods of a namespace mount."""

_LIBRARY_VOLUME = "spotwright-library"
_MOUNT: Mapping[str, Any] = {"name": _LIBRARY_VOLUME, "mountPath": LIBRARY_MOUNT, "readOnly": True}
_FILE = f"{LIBRARY_MOUNT}/{FILE_NAME}"


class Delivery(StrEnum):
    """How pods get the library."""

    EMBEDDED = "embedded"  # in the file that is applied or uploaded
    CONFIG_MAP = "configmap"  # in a ConfigMap that the namespace has
    IMAGE = "image"  # the image has it where Python finds it
    PATH = "path"  # the image has it at a path
    PIP = "pip"  # a version or a URL, installed at the start of KFP components


def delivery(target: Mapping[str, str]) -> tuple[Delivery | None, str]:
    """The way that ``target.package`` sets, with its value; ``None`` without it."""
    package = target.get("package", "")
    if not package:
        return None, ""
    if package in (Delivery.EMBEDDED, Delivery.CONFIG_MAP, Delivery.IMAGE):
        return Delivery(package), ""
    if package.startswith("/"):
        return Delivery.PATH, package
    return Delivery.PIP, package if "://" in package else f"{LIGHT}=={package}"


def installs_spotwright(text: str) -> bool:
    """Whether a command visibly installs the library with pip, as ``packages_to_install`` does."""
    return _INSTALLS_IT.search(text) is not None


def installs_only_light(text: str) -> bool:
    """Whether a command visibly installs the library with pip, and no other part of Spotwright."""
    found = list(_INSTALLS_IT.finditer(text))
    return bool(found) and all(each["light"] or each["light_file"] for each in found)


def needs_place(text: str) -> bool:
    """Whether a program's text visibly leaves the place for its checkpoints to the policy."""
    return imports_spotwright(text) and _WITHOUT_PLACE.search(text) is not None


def library_change(
    ctx: PlaceContext, spec: Path, role: str, checkpoint: str | None, *, is_asked: bool = True
) -> PodChange:
    """The library for the containers of a pod that has a place for checkpoints, or imports the library visibly.

    ``is_asked``: the workload's own policy names the place. A pod with only a default place may not need the library, so it
    does not wait for a missing ConfigMap.
    """
    how, value = delivery(ctx.config.target)
    containers = ctx.editor.get((*spec, "containers")) or ()
    visible = any(_lacks_library(_text(container)) for container in containers)
    if checkpoint is None and any(needs_place(_text(container)) for container in containers):
        ctx.add_finding(Level.WARNING, (*spec, "containers"), f"{role}: {NO_PLACE}")
    if how in (Delivery.EMBEDDED, Delivery.CONFIG_MAP, Delivery.PATH) and (visible or checkpoint is not None):
        path = value if how is Delivery.PATH else _FILE
        change = _with_python_path(ctx, spec, role, path)
        if change is None or how is Delivery.PATH:
            return change or NO_CHANGE
        is_shared = how is Delivery.CONFIG_MAP or ctx.options.has_webhook  # a webhook adds no objects
        return change | _mounted(ctx, spec, role, is_shared=is_shared, is_optional=not (visible or is_asked))
    if visible and how in (None, Delivery.PIP):
        cause = "" if how is None else "; target.package is installed in KFP components only"
        text = f"{role}: its command imports spotwright.checkpoint, and its image must have it{cause}: "
        text += f"{WAYS}, or let a ConfigMap bring it (package: embedded)"
        ctx.add_finding(Level.WARNING, (*spec, "containers"), text)
    return NO_CHANGE


def _lacks_library(text: str) -> bool:
    return imports_spotwright(text) and not installs_spotwright(text)


def _text(container: Any) -> str:
    """A container's command, or the one that JobSet's agent of in-place restarts starts in it."""
    if not isinstance(container, dict):
        return ""
    given = (container.get(key) for key in ("command", "args"))
    started = [str(part) for one in given if isinstance(one, list) for part in one]
    by_agent = (str(one.get("value")) for one in _variables_of(container) if one.get("name") == _BY_AGENT)
    return "\n".join([*started, *by_agent])


def _variables_of(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The well-formed variables of a container."""
    given = container.get("env")
    yield from (one for one in given if isinstance(one, dict)) if isinstance(given, list) else ()


def _with_python_path(ctx: PlaceContext, spec: Path, role: str, path: str) -> PodChange | None:
    """The variable for every working container that lacks it. ``None`` where one has another value, which stays."""
    containers = ctx.editor.get((*spec, "containers")) or ()
    values = {index: _python_path(containers[index]) for index in working_containers(containers)}
    for index, value in values.items():
        if value is not None and path not in value.split(":"):
            text = f"{role}: PYTHONPATH is set, so the checkpoint library is not added: append :{path} to its value"
            ctx.add_finding(Level.WARNING, (*spec, "containers", index, "env"), text)
            return None
    variable = ContainerChange(({"name": "PYTHONPATH", "value": path},))
    return PodChange(containers={index: variable for index, value in values.items() if value is None})


def _python_path(container: Mapping[str, Any]) -> str | None:
    """The literal value of the variable in a container's env (empty if it is a reference); ``None`` without it."""
    given = (str(one.get("value", "")) for one in _variables_of(container) if one.get("name") == "PYTHONPATH")
    return next(given, None)


def _library_volume(name: str, *, is_optional: bool) -> dict[str, Any]:
    """The volume with the library, from the ConfigMap of this name. Where it is optional, a pod starts without it."""
    source: dict[str, Any] = {"name": name, **({"optional": True} if is_optional else {})}
    return {"name": _LIBRARY_VOLUME, "configMap": source}


def _has_library(spec: Mapping[str, Any]) -> bool:
    """Whether a pod mounts the library already."""
    return _has(spec.get("volumes"), "name", _LIBRARY_VOLUME)


def library_of_pod(spec: Mapping[str, Any], target: Mapping[str, str], *, keeps_checkpoints: bool) -> PodChange:
    """The library for a pod that KFP has made of a component, if its command imports it, or if it keeps checkpoints.

    It comes from the namespace's ConfigMap, in an optional mount, unless ``target.package`` names another way. Where the
    command is a shell script, lines in front of it keep the ``PYTHONPATH`` of the image.
    """
    how, value = delivery(target)
    if how is Delivery.IMAGE or _has_library(spec):
        return NO_CHANGE
    containers, changes = spec.get("containers") or (), {}
    for index in working_containers(containers):
        container, text = containers[index], _text(containers[index])
        has_it = installs_spotwright(text) or FILE_NAME in text
        if has_it or not (keeps_checkpoints or imports_spotwright(text)):
            continue
        words = _first_lines(container, library_lines(how or Delivery.CONFIG_MAP, value))
        takes_variable = not words and how is not Delivery.PIP
        variables = _longer_python_path(container, value if how is Delivery.PATH else _FILE) if takes_variable else ()
        changes[index] = ContainerChange(
            variables, () if how in (Delivery.PATH, Delivery.PIP) else (_MOUNT,), None, words
        )
    is_mounted = any(change.mounts for change in changes.values())
    return PodChange(
        containers=changes, volumes=(_library_volume(config_map_name(), is_optional=True),) if is_mounted else ()
    )


def _first_lines(container: Mapping[str, Any], lines: str) -> dict[Path, str]:
    """The script that starts KFP's executor, or else the first script, with lines in front; none if the command has none."""
    scripts = [
        (field, number)
        for field in ("command", "args")
        for number, part in enumerate(container.get(field) or ())
        if isinstance(part, str)
        and (starts_executor(part) or (number > 1 and _is_shell(*container[field][number - 2 : number])))
    ]
    executors = (one for one in scripts if starts_executor(container[one[0]][one[1]]))
    found = next(executors, scripts[0] if scripts else None)
    return {} if found is None else {found: lines + container[found[0]][found[1]]}


def _is_shell(program: object, option: object) -> bool:
    return str(program).rpartition("/")[2] in _SHELLS and str(option)[:1] == "-" and "c" in str(option)[1:4]


def _longer_python_path(container: Mapping[str, Any], path: str) -> tuple[dict[str, str], ...]:
    """The variable with a path appended; empty if its value is a reference."""
    given = next((one for one in _variables_of(container) if one.get("name") == "PYTHONPATH"), {})
    own = str(given.get("value") or "")
    return () if "valueFrom" in given else ({"name": "PYTHONPATH", "value": f"{own}:{path}" if own else path},)


def starts_executor(text: str) -> bool:
    """Whether a part of a command starts the executor of KFP's Python components."""
    return _STARTS_EXECUTOR.search(text) is not None


def library_lines(how: Delivery, value: str, options: Sequence[str] = ()) -> str:
    """Shell lines that make the library importable. They keep an image's own ``PYTHONPATH``. ``options`` are pip's."""
    if how is Delivery.PATH:
        return f"export PYTHONPATH={shlex.quote(value)}${{PYTHONPATH:+:$PYTHONPATH}}\n"
    if how is Delivery.PIP:
        pip = "PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet --no-warn-script-location --no-deps"
        return " ".join([pip, *options, shlex.quote(value)]) + "\n"
    return _MOUNTED_LINES


_STARTS_EXECUTOR = re.compile(r"-m\s+kfp(?:\.\w+)*\.executor_main\b")
_SHELLS = frozenset({"ash", "bash", "dash", "sh"})
_MOUNTED_LINES = f"""\
if ! python3 -c 'import spotwright.checkpoint' 2>/dev/null; then
export PYTHONPATH="{_FILE}${{PYTHONPATH:+:$PYTHONPATH}}"
fi
"""


def _mounted(ctx: PlaceContext, spec: Path, role: str, *, is_shared: bool, is_optional: bool) -> PodChange:
    """The object's own ConfigMap, added before the object, in each working container; or the namespace's.

    The object's own is named by a digest of the library and of the object's kind and name, so that deleting one file's objects
    does not take the library from others.
    """
    if _has_library(ctx.editor.get(spec)):
        return (
            PodChange()
        )  # already placed with a runtime's or an owner's ConfigMap; a second mount at one path is refused
    object_ = config_map() if is_shared else _own_config_map(ctx)
    name = object_["metadata"]["name"]
    path_variable = "through PYTHONPATH; if an image sets PYTHONPATH itself, repeat its value in the container's env"
    if is_shared:
        text = (
            f"pods get spotwright.checkpoint from the ConfigMap {name} of their namespace, {path_variable}; make it there once: "
            f"{MAKE_CONFIG_MAP}"
        )
        ctx.add_finding(Level.NOTE, (), text, to_do=True)
    elif ctx.add is None or not ctx.add(object_):
        text = (
            f"{role}: its pods mount the ConfigMap {name}, which cannot be added to this file: run spotwright checkpoint-file, "
            f"then kubectl create configmap {name} --from-file={FILE_NAME}"
        )
        ctx.add_finding(Level.WARNING, (*spec, "volumes"), text)
    else:
        ctx.add_finding(
            Level.NOTE, (), f"the ConfigMap {name} brings spotwright.checkpoint to the pods, {path_variable}"
        )
    indexes = working_containers(ctx.editor.get((*spec, "containers")) or ())
    volume = _library_volume(name, is_optional=is_optional and is_shared)
    return PodChange(containers=dict.fromkeys(indexes, ContainerChange(mounts=(_MOUNT,))), volumes=(volume,))


def _own_config_map(ctx: PlaceContext) -> dict[str, Any]:
    owner = ctx.editor.document
    names = [str(owner.get(path, "")) for path in (("kind",), ("metadata", "name"), ("metadata", "generateName"))]
    digest = hashlib.sha256(checkpoint_file() + "/".join(names).encode()).hexdigest()
    namespace = owner.get(("metadata", "namespace"), None)
    return config_map(digest, namespace if isinstance(namespace, str) else None)
