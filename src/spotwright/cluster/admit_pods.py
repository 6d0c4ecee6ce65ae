"""Pins a new pod to the rung of its attempt, and adds its number and variables; or refuses it.

The first attempt is left open to all rungs if the autoscaler follows the order of the pools
(:mod:`spotwright.clouds.pool_order`): it then tries the next pool within seconds, without an eviction.

The object around the pod was placed for every rung, so the pod also runs without this webhook. The additions depend on the
earlier attempts, which :mod:`spotwright.scheduling.next_attempt` judges. A pod that is already pinned to a rung is left alone,
so that a second review does not change it. A pod without budget is replaced by one that says why and exits with 86. Pods of
Argo, KFP and Katib, and pods of a training that save together, get a preStop hook that turns their grace period into time
before SIGTERM.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.pool_order import UNKNOWN, Autoscalers, order_of
from spotwright.cluster.admit_objects import ATTEMPT_ANNOTATION, MOST_STEPS, Admission, Outcome, as_warnings, is_ignored
from spotwright.cluster.api_defaults import without_defaults
from spotwright.cluster.katib_trials import is_wrapped_by_katib
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.kinds.job import REFUSED
from spotwright.kinds.kfp_backend import RUN_LABEL
from spotwright.kinds.kind import kind_of, run_kinds
from spotwright.kube.object_fields import ARGO_NODE, controller_of
from spotwright.kube.pod import TERMS
from spotwright.model.policy import Policy
from spotwright.model.pools import Pool
from spotwright.model.quantities import parse_quantity
from spotwright.notices.pod_hook import FOLDER_VARIABLE, NOTICE, SAVER
from spotwright.placing.affinity import Expression, attraction, rung_conditions
from spotwright.placing.context import POLICY_ANNOTATION, PlaceContext, PlaceOptions, name_of
from spotwright.placing.documents import References
from spotwright.placing.environment import NOTICE_PORT, library_of_pod
from spotwright.placing.patch import Editor, Steps, data_document, replacing, value_at
from spotwright.placing.pod_change import (
    NO_CHANGE,
    ContainerChange,
    PodChange,
    grace_period_of,
    ours_in,
    without_conditions,
    without_preferences,
    write,
)
from spotwright.placing.pod_spec import refuse_scheduling, requirements_of
from spotwright.placing.pods import shortest_notice, tolerations_of
from spotwright.scheduling.budgets import allowed_rungs
from spotwright.scheduling.ladder import Ladder, build
from spotwright.scheduling.next_attempt import NextAttempt, PastAttempt, next_rung

__all__ = [
    "ADMISSION_ANNOTATION",
    "FOLDER",
    "MARGIN",
    "OPEN_ANNOTATION",
    "REFUSAL_USER",
    "REFUSED_ANNOTATION",
    "RUNG_ANNOTATION",
    "AdmissionContext",
    "RefusalPods",
    "admit_pod",
    "grace_hook",
    "hook_script",
    "refused_pod",
    "task_of",
    "wants_facts",
]


REFUSAL_USER = 65532
"""The default user of refused pods: the user of the controller's image."""

_REFUSAL_SCRIPT = (
    f'printf "%s" "$SPOTWRIGHT_REFUSAL" > /dev/termination-log; echo "$SPOTWRIGHT_REFUSAL" >&2; exit {REFUSED}'
)
_DROPPED = frozenset(
    {"topologySpreadConstraints", "resourceClaims", "runtimeClassName", "overhead", "ephemeralContainers"}
    | {"resources", "hostNetwork", "hostPID", "hostIPC", "os", "initContainers", "volumes", "affinity"}
)
_REQUEST: Mapping[str, str] = {"cpu": "100m", "memory": "128Mi"}
_LIMIT: Mapping[str, str] = {"cpu": "500m", "memory": "128Mi"}
"""The requests and limits of a refused pod's container, unless the replaced container has less.

A quota without a LimitRange requires both. They are not smaller, because a LimitRange may have a minimum, and because Argo's
emissary, which starts the program, takes seconds to start with a tenth of it.
"""
_ARGO_EXECUTOR = "argoexec"
_EMISSARY_FOLDER = "/var/run/argo"
_EMISSARY = f"{_EMISSARY_FOLDER}/{_ARGO_EXECUTOR}"
_EMISSARY_END = "--"
_ARGO_FOLDERS = ("/var/run/", "/argo/", "/tmp")  # noqa: S108 (a path in Argo's containers)
"""The mount paths of Argo's own volumes in Argo's containers. Other mounts (``/mainctrfs``) belong to the step."""
_OF_ARGO = frozenset({"emptyDir", "secret", "configMap", "projected", "downwardAPI"})
"""Kinds of volumes that Argo's own containers need: its folders, the API's token, and credentials for artifacts."""
_EXCHANGES_A_PROGRAM = ("PATH", "LD_", "SHELL", "BASH_ENV", "ENV")
_LONGEST = 3000  # bytes of the message; a termination message has at most 4096


class RefusalPods(NamedTuple):
    """The form of refused pods: their image, which has a POSIX shell, their user, and the images of Argo's own containers.

    ``user`` 0: the pod's user, unless it is root, else the image's; for platforms that assign users to namespaces. Without
    ``argo_images`` every image whose repository is called ``argoexec`` counts as Argo's.
    """

    image: str
    user: int = REFUSAL_USER
    argo_images: Sequence[str] = ()


def refused_pod(
    data: Mapping[str, Any],
    made: RefusalPods,
    message: str,
    tolerations: Sequence[Mapping[str, Any]] = (),
    placed: Sequence[Expression] = (),
) -> dict[str, Any]:
    """The pod whose main container has ``message`` as its termination message and exits with 86.

    It requests almost no resources and neither runs nor mounts anything of the user's: only Argo's own containers stay, because
    Argo reads the pod's end through them. It keeps the pod's selectors without the ``placed`` conditions, the pod's tolerations
    with a key, and ``tolerations``.
    """
    spec: dict[str, Any] = {name: value for name, value in data["spec"].items() if name not in _DROPPED}
    containers: Sequence[Mapping[str, Any]] = data["spec"].get("containers") or ()
    volumes = [one for one in data["spec"].get("volumes") or () if _OF_ARGO.intersection(one)]
    before = _of_argo(data, "initContainers", "init", made.argo_images, _names(volumes))
    beside = _of_argo(data, "containers", "wait", made.argo_images, _names(volumes)) if before else []
    shared = _names(volumes) if before else frozenset()
    spec["containers"] = [
        *beside,
        *(_refusing(one, spec, made, message, shared) for one in _mains(containers, is_argo=bool(before))),
    ]
    if before:
        spec["initContainers"] = before
    else:
        spec["automountServiceAccountToken"] = False
    required = without_conditions(value_at(data["spec"], TERMS) or (), ours_in(data, placed))
    if required:
        spec["affinity"] = {"nodeAffinity": {TERMS[2]: {TERMS[3]: required}}}
    own = [one for one in spec.get("tolerations") or () if one.get("key")]
    spec["tolerations"] = [*own, *(one for one in tolerations if one not in own)]
    spec["restartPolicy"] = "Never"
    mounted = {mount.get("name") for one in (*spec["containers"], *before) for mount in one.get("volumeMounts") or ()}
    kept = [volume for volume in volumes if volume.get("name") in mounted]
    if kept:
        spec["volumes"] = kept
    return {**data, "spec": spec}


def _mains(containers: Sequence[Mapping[str, Any]], *, is_argo: bool) -> list[Mapping[str, Any]]:
    """The containers of a pod with the message: one; in an Argo step with several containers, all, because Argo awaits each.

    Such a step also gets one called ``main``: Argo reads the step's exit code only from it, and retries without a code.
    """
    named = next((one for one in containers if one.get("name") == "main"), None)
    if named is not None or not is_argo:
        return [containers[0] if named is None else named]
    awaited = [one for one in containers if (one.get("command") or [""])[0] == _EMISSARY]
    return [*awaited, {"resources": (awaited or containers)[0].get("resources")}]


def _of_argo(
    data: Mapping[str, Any], field: str, name: str, images: Sequence[str], volumes: AbstractSet[str]
) -> list[dict[str, Any]]:
    """The container that Argo adds to a pod, by its name, its program and its image; without parts of the step."""
    if ARGO_NODE not in ((data.get("metadata") or {}).get("annotations") or {}):
        return []
    known = frozenset(map(_repository, images))
    return [
        _without_the_step_s(one, volumes)
        for one in data["spec"].get(field) or ()
        if one.get("name") == name
        and [*(one.get("command") or [_ARGO_EXECUTOR]), *(one.get("args") or ()), name][:2] == [_ARGO_EXECUTOR, name]
        and (_repository(one.get("image")) in known if known else _is_executor(one.get("image")))
    ]


def _is_executor(image: object) -> bool:
    return _repository(image).rpartition("/")[2] == _ARGO_EXECUTOR


def _repository(image: object) -> str:
    """An image without its tag and digest."""
    head, slash, last = str(image or "").partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _without_the_step_s(container: Mapping[str, Any], volumes: AbstractSet[str]) -> dict[str, Any]:
    """One of Argo's containers, without hooks, probes, other volumes and settings that would replace its program."""
    left = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "volumeDevices", "envFrom")
    kept = {name: value for name, value in container.items() if name not in left}
    kept["env"] = [
        one for one in container.get("env") or () if not str(one.get("name")).startswith(_EXCHANGES_A_PROGRAM)
    ]
    mounts = [
        one
        for one in container.get("volumeMounts") or ()
        if one.get("name") in volumes and str(one.get("mountPath", "")).startswith(_ARGO_FOLDERS)
    ]
    return {**kept, "volumeMounts": mounts, "resources": _tiny(container)}


def _refusing(
    main: Mapping[str, Any],
    spec: Mapping[str, Any],
    made: RefusalPods,
    message: str,
    volumes: AbstractSet[str],
) -> dict[str, Any]:
    """The main container of a refused pod.

    On Argo the emissary still starts it, because it reports the end: Argo's container has put it into one of ``volumes``.
    """
    command: list[str] = ["sh", "-c", _REFUSAL_SCRIPT]
    text = message.encode()[:_LONGEST].decode(errors="ignore")
    env: list[Any] = [{"name": "SPOTWRIGHT_REFUSAL", "value": text.replace("$(", "$$(")}]
    mounts: list[Any] = []
    given = list(main.get("command") or ())
    if volumes and given[:1] == [_EMISSARY] and _EMISSARY_END in given:
        command = [*given[: given.index(_EMISSARY_END) + 1], *command]
        env += [one for one in main.get("env") or () if str(one.get("name", "")).startswith("ARGO_")]
        mounts = [
            one
            for one in main.get("volumeMounts") or ()
            if one.get("name") in volumes and one.get("mountPath") == _EMISSARY_FOLDER
        ]
    refusing: dict[str, Any] = {
        "name": main.get("name", "main"),
        "image": made.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": env,
        "resources": _tiny(main),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            **_user(main, spec, made.user),
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    if mounts:
        refusing["volumeMounts"] = mounts
    return refusing


def _user(main: Mapping[str, Any], spec: Mapping[str, Any], user: int) -> dict[str, int]:
    """The user as a field of a container: the configured one, or with 0 the pod's, unless it is root."""
    fields = ("securityContext", "runAsUser")
    chosen = user or value_at(main, fields) or value_at(spec, fields)
    return {"runAsUser": int(chosen)} if chosen else {}


def _tiny(container: Mapping[str, Any]) -> dict[str, Any]:
    """Small requests and limits of CPU and memory, neither above the container's own.

    A limit equal to its request stays equal, because a LimitRange may bound their ratio.
    """
    given = container.get("resources") or {}
    requests, limits = {}, {}
    for name, most in _REQUEST.items():
        own_limit = (given.get("limits") or {}).get(name)
        own = (given.get("requests") or {}).get(name, own_limit)
        requests[name] = _smaller(own, most)
        limits[name] = requests[name] if own == own_limit else _smaller(own_limit, _LIMIT[name])
    return {"requests": requests, "limits": limits}


def _smaller(own: Any, most: str) -> str:
    return str(own) if own is not None and _is_less(own, most) else most


def _is_less(one: Any, other: str) -> bool:
    try:
        return 0 < parse_quantity(str(one)) < parse_quantity(other)
    except ValueError:  # the API server also refuses it in the original pod
        return False


FOLDER = "/spotwright/grace"
"""The mount path of each container's folder in the volume."""

MARGIN = 2
"""Seconds of the grace period that the hook leaves for SIGTERM: a kubelet's minimum for a container after its hook."""

_VOLUME = "spotwright-grace"
_OF_GANGS = frozenset(kind.pods_label for kind in run_kinds().values() if kind.is_gang) - {""}
"""Labels of the pods of JobSets and TrainJobs, and of the training operator's kinds."""

# Plain POSIX sh, and `date` and `sleep` of any image with a shell.
# `umask 0`: the code may run as another user than the hook. `mv` makes the notice appear whole. `[ -d /proc/PID ]`: do not wait
# for a killed process, even another user's. Without a match, PID is a `*`. The clock bounds the wait, not the number of turns,
# which take longer on a busy node. If `date` fails, do not wait.
_PRE_STOP_SCRIPT = """\
umask 0
d={folder}
now=$(date +%s) || exit 0
end=$((now + {seconds}))
printf '{{"noticed_at":%s,"goes_at":%s,"seconds":{seconds},"kind":"disruption","why":"this pod is ending"}}' \
"$now" "$end" >"$d/{notice}.new" && mv "$d/{notice}.new" "$d/{notice}"
unsaved() {{
  for f in "$d/{saver}"*; do [ -d "/proc/${{f##*.}}" ] && return 0; done
  return 1
}}
while unsaved && [ "$(date +%s)" -lt "$end" ]; do sleep 0.1 || sleep 1; done
"""


def hook_script(seconds: int, folder: str = FOLDER) -> str:
    """The program of the hook. It waits for at most ``seconds``."""
    return _PRE_STOP_SCRIPT.format(folder=folder, seconds=seconds, notice=NOTICE, saver=SAVER)


def grace_hook(data: Mapping[str, Any], grace_period: int) -> tuple[PodChange, list[str]]:
    """The hook, its folder and its variables for the containers of a pod that run a task's code, and warnings.

    Pods of Argo, of Katib's trials (whose shell does not pass SIGTERM on) and of a gang get it: after SIGTERM a launcher ends
    its ranks before all have saved one step. A container with a user's preStop hook keeps it, and gets no time before SIGTERM.
    A pod whose ``grace_period``, in seconds, does not exceed :data:`MARGIN` gets no hook.
    """
    spec, seconds = data["spec"], grace_period - MARGIN
    if not _ends_early(data) or seconds <= 0 or _is_windows(spec):
        return NO_CHANGE, []
    changes, warnings = {}, []
    for index, container in enumerate(spec.get("containers") or ()):
        if "SPOTWRIGHT_TASK" not in _names(container.get("env")) or _VOLUME in _names(container.get("volumeMounts")):
            continue
        if value_at(container, ("lifecycle", "preStop")):
            warnings.append(
                f"container {container.get('name')} has its own preStop hook, which Spotwright keeps: its code gets no time to"
                " save before SIGTERM"
            )
            continue
        changes[index] = _hook(container, seconds)
    is_new = changes and _VOLUME not in _names(spec.get("volumes"))
    return PodChange(containers=changes, volumes=({"name": _VOLUME, "emptyDir": {}},) if is_new else ()), warnings


def _ends_early(data: Mapping[str, Any]) -> bool:
    """Whether the launcher of a pod's code ends it at or soon after SIGTERM, regardless of the grace period."""
    if ARGO_NODE in (value_at(data, ("metadata", "annotations")) or {}) or is_wrapped_by_katib(data):
        return True
    return not _OF_GANGS.isdisjoint(value_at(data, ("metadata", "labels")) or {})


def _hook(container: Mapping[str, Any], seconds: int) -> ContainerChange:
    """The hook of a container. A subPath gives each container of the pod its own folder, with the volume's mode 0777."""
    mount = {"name": _VOLUME, "mountPath": FOLDER, "subPath": str(container.get("name"))}
    variables = {FOLDER_VARIABLE: FOLDER, "SPOTWRIGHT_NOTICE_FILE": f"{FOLDER}/{NOTICE}"}
    hook = {"exec": {"command": ["sh", "-c", hook_script(seconds)]}}
    return ContainerChange(_missing(container, variables), (mount,), hook)


def _missing(container: Mapping[str, Any], variables: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """The variables that a container does not have."""
    given = _names(container.get("env"))
    return tuple({"name": name, "value": value} for name, value in variables.items() if name not in given)


def _is_windows(spec: Mapping[str, Any]) -> bool:
    return bool(value_at(spec, ("os", "name")) == "windows")


def _names(items: Sequence[Mapping[str, Any]] | None) -> set[str]:
    return {str(item.get("name")) for item in items or ()}


RUNG_ANNOTATION = "spotwright.dev/rung"
"""The pools of the attempt's rung, or of all rungs, separated by commas."""

OPEN_ANNOTATION = "spotwright.dev/open"
"""Marks a pod that is open to all rungs of its ladder: names, for people, what follows the order of their pools."""

ADMISSION_ANNOTATION = "spotwright.dev/admission"
"""The token of the review that pinned the pod to a rung: it identifies the pod of an assigned number."""

REFUSED_ANNOTATION = "spotwright.dev/refused"
"""Marks a pod, with the value ``true``, that runs no user code: it reports the spent budget, and is not an attempt."""

WHY_ANNOTATION = "spotwright.dev/why"
"""The sentence for people: why this rung, or why the pod is refused."""

_MARKS = (
    ATTEMPT_ANNOTATION,
    RUNG_ANNOTATION,
    OPEN_ANNOTATION,
    ADMISSION_ANNOTATION,
    REFUSED_ANNOTATION,
    WHY_ANNOTATION,
)
"""Annotations that only a review writes. They are for people: decisions are read from SpotCounter objects."""

_NOT_KNOWN = "pod is left unchanged: its history is unknown"
_LATE = "decided before the end of an earlier attempt was recorded"
_QUEUES = "kueue.x-k8s.io/"
_GRACE = "terminationGracePeriodSeconds"


async def _is_noted(_: Admission, __: AdmissionContext) -> None:
    """Store nothing."""


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """The records of a pod's task for a review's decision.

    ``history`` are its attempts in order of creation. ``number`` was assigned to this attempt; None: one more than the history
    has. ``agree`` gets the pools of each rung of the pod's ladder and of the chosen rung, and returns the pools agreed by the
    pods of the same gang, restart and ladder; None: the pod is not in a gang. ``has_begun``: another pod of that restart was
    admitted, so none is refused. ``without_capacity`` are unavailable pools. ``autoscalers`` is the observed state of the
    cluster's autoscalers. ``stays`` says why the descheduler will not evict a pod without a node; empty if it will.

    ``token`` marks the pod. ``keep`` stores the decision made with these facts before the API server gets it. It returns other
    facts for a new decision if another review took the number, the gang agreed on other pools, or the decision cannot be
    stored.

    ``is_known``: false if the read failed, so that neither a number nor a rung is certain. ``is_admitted``: an earlier review
    has just pinned the pod to a rung. ``is_late``: the end of an earlier attempt was not recorded in time, so the rung follows
    from the recorded ones.
    """

    history: Sequence[PastAttempt] = ()
    number: int | None = None
    agree: Callable[[Sequence[tuple[str, ...]], tuple[str, ...]], tuple[str, ...]] | None = None
    has_begun: bool = False
    without_capacity: Collection[str] = ()
    token: str = ""
    keep: Callable[[Admission, AdmissionContext], Awaitable[AdmissionContext | None]] = _is_noted
    is_known: bool = True
    is_admitted: bool = False
    autoscalers: Autoscalers = UNKNOWN
    stays: str = ""
    is_late: bool = False


def admit_pod(
    data: Mapping[str, Any],
    config: Config | None,
    facts: AdmissionContext,
    refusals: RefusalPods | str,
    own_retries: str = "",
) -> Outcome:
    """The outcome for a pod that is about to be created; ``data`` is not changed.

    ``refusals`` is the form of refused pods, or only their image. ``own_retries`` is a clause that says why the owner's retries
    differ from the policy's: then no budget is spent, because a refusal would not end the owner.
    """
    reason = _reason_to_leave(data) or _reason_in(facts)
    if reason or config is None:
        return Outcome(reason or "no configuration")
    try:
        policy, ladder = _policy_and_ladder(data, config)
    except InputError as error:
        return Outcome("pod cannot be read", warnings=as_warnings([f"left unchanged: {str(error).splitlines()[0]}"]))
    if policy.spot is None or not ladder.rungs:
        return Outcome("pod has no ladder")
    decided = next_rung(facts.history, policy, ladder, facts.without_capacity)
    own_retries = own_retries or _why_made_again(data)
    if facts.has_begun or own_retries:
        decided = decided._replace(refusal="")
    decided = decided._replace(number=facts.number or decided.number)
    if decided.refusal:
        marks = _marks(decided, decided.refusal, facts)
        marks[REFUSED_ANNOTATION] = "true"
        made = RefusalPods(refusals) if isinstance(refusals, str) else refusals
        every = [config.pools[name] for rung in ladder.rungs for name in rung.pools]
        wanted = attraction(policy, every, config.pools)
        taints = dict.fromkeys(
            taint for pool in every for taint in providers.taints(pool) if taint.effect != "PreferNoSchedule"
        )
        conditions = (*wanted.required, *wanted.any_of)
        refused = refused_pod(data, made, decided.refusal, [each.toleration_fields for each in taints], conditions)
        kept = Admission((), is_refused=True, why=decided.refusal[:_LONGEST], number=decided.number)
        return Outcome("pod is refused", _replacing(data, refused, marks), kept=kept)
    pod = _Pod(data, config, policy, ladder, _is_queued(data))
    chosen = _with_gang(_chosen(pod, decided, facts), ladder, facts)
    why = decided.why.partition(",")[0].partition(":")[0] if chosen.is_open else decided.why  # without a chosen rung
    late = _late(facts)
    why = "; ".join(filter(None, [", ".join(filter(None, [why, chosen.why])), own_retries, late]))
    marks = _marks(decided, why, facts)
    pools = () if pod.is_queued else chosen.pools(ladder)
    pin = _pin(pod, chosen)
    pinned = pin.terms(value_at(data, ("spec", *TERMS)) or ())
    kept = Admission(pools, chosen.is_open, False, why[:_LONGEST], decided.number, pinned.conditions)
    if chosen.is_open:
        marks[OPEN_ANNOTATION] = chosen.why
    patch, warnings = _pin_to_rung(pod, decided, chosen, pin, marks)
    return Outcome("pod is admitted", patch, as_warnings(warnings), kept=kept)


def _late(facts: AdmissionContext) -> str:
    """A clause for a pod that was decided before all earlier ends were recorded; empty for others."""
    if not facts.is_late:
        return ""
    seen = [
        f"attempt {number} {past.cause.value}"
        for number, past in enumerate(facts.history, 1)
        if past.cause is not None and not past.is_recorded
    ]
    return f"{_LATE}, judged by its pod: {', '.join(seen)}" if seen else _LATE


def _why_made_again(data: Mapping[str, Any]) -> str:
    """A clause for a pod that the training operator recreates after any failure, refused or not; empty for others.

    Source: kubeflow/trainer v1.9, ``pkg/controller.v1/common/pod.go``: under OnFailure and Always it deletes a failed pod and
    creates the next without counting.
    """
    policy, owner = data["spec"].get("restartPolicy"), controller_of(data)
    roles = kind_of(owner.api_version, owner.kind).roles if owner is not None else ()
    if policy not in ("OnFailure", "Always") or not roles:
        return ""
    return f"its restartPolicy {policy} restarts it after any error, so the policy's budgets never stop it"


def wants_facts(data: Mapping[str, Any]) -> bool:
    """Whether a pod with its owner's policy will be pinned to a rung, depending on its history."""
    return not _reason_to_leave(data)


def _reason_to_leave(data: Mapping[str, Any]) -> str:
    """Why a pod is left unchanged, regardless of its history and configuration; empty if it is pinned to a rung."""
    annotations = value_at(data, ("metadata", "annotations")) or {}
    if is_ignored(data) or POLICY_ANNOTATION not in annotations:
        return "pod has no policy"
    owner = controller_of(data)
    return "pod serves" if owner is not None and kind_of(owner.api_version, owner.kind).leaves_pods else ""


def _reason_in(facts: AdmissionContext) -> str:
    """Why the records require leaving a pod unchanged; empty if it is pinned to a rung."""
    if facts.is_admitted:
        return "pod was already admitted"
    return "" if facts.is_known else _NOT_KNOWN


def task_of(data: Mapping[str, Any]) -> str:
    """The path of a pod's task in policies: from the environment written by placement, else the pod's name."""
    for container in value_at(data, ("spec", "containers")) or ():
        for variable in container.get("env") or ():
            if variable.get("name") == "SPOTWRIGHT_TASK" and variable.get("value"):
                return str(variable["value"])
    return name_of(data.get("metadata"))


def _policy_and_ladder(data: Mapping[str, Any], config: Config) -> tuple[Policy, Ladder]:
    """The policy of the pod's task, by the configuration and the pod, and its ladder. Raises :class:`InputError`."""
    editor = Editor(data_document(data, f"Pod {name_of(data.get('metadata'))}"), steps=Steps(MOST_STEPS))
    ctx = PlaceContext(editor, config, References().find, PlaceOptions(may_add=False, has_webhook=True))
    policy = ctx.policy(task_of(data))
    refuse_scheduling(ctx, ("spec",))
    return policy, build(requirements_of(ctx, ("spec",), ("metadata",)), policy, config.pools)


def _marks(decided: NextAttempt, why: str, facts: AdmissionContext) -> dict[str, str]:
    marks = {ATTEMPT_ANNOTATION: str(decided.number), WHY_ANNOTATION: why}
    return {**marks, ADMISSION_ANNOTATION: facts.token} if facts.token else marks


class _Pod(NamedTuple):
    """A pod that is pinned to a rung. ``is_queued``: Kueue admits it, so its flavor is its rung."""

    data: Mapping[str, Any]
    config: Config
    policy: Policy
    ladder: Ladder
    is_queued: bool


class _Chosen(NamedTuple):
    """The indexes of the rungs that a pod is admitted for: one, or several if it is open. ``why`` is a clause."""

    rungs: tuple[int, ...]
    why: str = ""

    @property
    def is_open(self) -> bool:
        return len(self.rungs) > 1

    def pools(self, ladder: Ladder) -> tuple[str, ...]:
        return tuple(name for index in self.rungs for name in ladder.rungs[index].pools)


def _chosen(pod: _Pod, decided: NextAttempt, facts: AdmissionContext) -> _Chosen:
    """The chosen rung, or all rungs that the attempt may use now.

    All if the autoscaler keeps the order of their pools, unless an interruption or a recall decided the rung; and always if the
    descheduler would not evict the pod from a pool that cannot grow, where it would otherwise wait forever.
    """
    ladder, every = pod.ladder, pod.config.pools
    pinned, allowed = _Chosen((decided.rung,)), allowed_rungs(decided.spent, pod.policy, ladder)
    if len(allowed) < 2 or ladder.undecided or pod.is_queued:
        return pinned
    if facts.stays:
        return _Chosen(
            allowed,
            f"open to {_count(allowed, ladder)}, because it could not be evicted from a pool that cannot grow: {facts.stays}",
        )
    if not decided.is_first:
        return pinned
    order = order_of([every[name] for name in _Chosen(allowed).pools(ladder)], every, facts.autoscalers)
    if order.kept:
        return _Chosen(allowed, f"open to {_count(allowed, ladder)}: {order.why}")
    return pinned._replace(why=f"only on {', '.join(pinned.pools(ladder))}: {order.why}")


def _count(allowed: Sequence[int], ladder: Ladder) -> str:
    return "all its rungs" if len(allowed) == len(ladder.rungs) else f"{len(allowed)} of its rungs"


def _with_gang(chosen: _Chosen, ladder: Ladder, facts: AdmissionContext) -> _Chosen:
    """The rungs agreed by the gang's pods with the same ladder: the first pod decides."""
    if facts.agree is None:
        return chosen
    agreed = facts.agree([rung.pools for rung in ladder.rungs], chosen.pools(ladder))
    if agreed == chosen.pools(ladder):
        return chosen
    rungs = tuple(index for index, rung in enumerate(ladder.rungs) if set(rung.pools) <= set(agreed))
    return _Chosen(rungs, "as the first pod of its set") if rungs else chosen


def _pin_to_rung(
    pod: _Pod, decided: NextAttempt, chosen: _Chosen, pin: PodChange, marks: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The operations that give a pod its rung, tolerations, grace period, variables and marks; and the warnings."""
    data, pools = pod.data, pod.config.pools
    used = [pools[name] for name in chosen.pools(pod.ladder)]
    own = data["spec"] if pin.grace_period is None else without_defaults(data)["spec"]
    grace = own.get(_GRACE) if pin.grace_period is None else pin.grace_period
    hook, warnings = grace_hook(data, int(grace or 0))
    change = pin | _of_attempt(data, decided, used, grace) | _library(data, pod.config, pod.policy) | hook
    editor = Editor(data_document({**data, "spec": own}, ""))
    write(editor, ("spec",), change)
    spec = editor.data["spec"]
    if pin.required:
        every = [pools[name] for rung in pod.ladder.rungs for name in rung.pools]
        spec = without_preferences(spec, data, attraction(pod.policy, every, pools).preferred)
    if not pod.is_queued:
        marks = {**marks, RUNG_ANNOTATION: ",".join(pool.name for pool in used)}
    return _replacing(data, {**data, "spec": spec}, marks), warnings


def _library(data: Mapping[str, Any], config: Config, policy: Policy) -> PodChange:
    """The library for a pod that KFP made from a task's code."""
    variables = {name for one in data["spec"].get("containers") or () for name in _names(one.get("env"))}
    if RUN_LABEL not in (value_at(data, ("metadata", "labels")) or {}) or "SPOTWRIGHT_TASK" not in variables:
        return NO_CHANGE
    keeps_checkpoints = policy.checkpoint is not None or "SPOTWRIGHT_CHECKPOINT" in variables
    return library_of_pod(data["spec"], config.target, keeps_checkpoints=keeps_checkpoints)


def _is_queued(data: Mapping[str, Any]) -> bool:
    """Whether Kueue admits the pod, alone or with its workload: then the flavor is the rung."""
    fields = (value_at(data, ("metadata", name)) or {} for name in ("labels", "annotations"))
    gates = value_at(data, ("spec", "schedulingGates")) or ()
    return any(str(key).startswith(_QUEUES) for field in fields for key in field) or any(
        str(gate.get("name", "")).startswith(_QUEUES) for gate in gates
    )


def _pin(pod: _Pod, chosen: _Chosen) -> PodChange:
    """The change of a pod for its rung: like placement's for all rungs, with only this rung's pools."""
    ladder, every = pod.ladder, pod.config.pools
    rungs = tuple(ladder.rungs[index] for index in chosen.rungs)
    used = [every[name] for name in chosen.pools(ladder)]
    is_free = pod.is_queued or ladder.undecided or len(rungs) == len(ladder.rungs)
    is_default = value_at(without_defaults(pod.data), ("spec", _GRACE)) is None
    return PodChange(
        tolerations=tuple(tolerations_of(Ladder(rungs, ladder.refusals))),
        required=() if is_free else tuple(rung_conditions(used, every)),
        grace_period=grace_period_of(pod.policy, shortest_notice(used)) if is_default else None,
    )


def _of_attempt(data: Mapping[str, Any], decided: NextAttempt, used: Sequence[Pool], grace: object) -> PodChange:
    """The variables that depend on the attempt, for every container that has its task's variables.

    SPOTWRIGHT_GRACE is omitted if Argo ends the code within a second of SIGTERM, regardless of the grace period.
    """
    values = {"SPOTWRIGHT_ATTEMPT": str(decided.number)}
    if len({pool.notice for pool in used}) == 1:
        values["SPOTWRIGHT_NOTICE"] = f"{used[0].notice if used[0].is_spot else 0:g}"
    if grace is not None and ARGO_NODE not in (value_at(data, ("metadata", "annotations")) or {}):
        values["SPOTWRIGHT_GRACE"] = str(grace)
    changes = {}
    for index, container in enumerate(data["spec"].get("containers") or ()):
        names = _names(container.get("env"))
        if "SPOTWRIGHT_TASK" not in names:
            continue
        url = {"SPOTWRIGHT_NOTICE_URL": f"http://$(SPOTWRIGHT_HOST):{NOTICE_PORT}/notice"}
        changes[index] = ContainerChange(_missing(container, {**values, **(url if "SPOTWRIGHT_HOST" in names else {})}))
    return PodChange(containers=changes)


def _replacing(data: Mapping[str, Any], after: Mapping[str, Any], marks: Mapping[str, str]) -> list[dict[str, Any]]:
    """The operations from a pod to its changed copy, field by field of the spec, and its annotations."""
    operations = replacing(("spec",), data["spec"], after["spec"])
    annotations = value_at(data, ("metadata", "annotations"))
    if annotations is None:
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    given = {name: text for name, text in (annotations or {}).items() if name in _MARKS}
    operations += replacing(("metadata", "annotations"), given, marks)
    return operations
