"""Makes a new pod precise: the rung of its attempt as a requirement, its number, and its variables; or refuses it.

The first attempt is left open to all rungs where what makes the cluster's nodes follows the order of their pools by itself
(:mod:`spotwright.clouds.pool_order`): then the next pool is tried within seconds, and no pod is evicted.

The object around the pod was placed for every rung, so a pod that is admitted without us runs as well. What is added here
depends on the attempts before, which :mod:`spotwright.scheduling.next_attempt` judges. A pod that was made precise is left as
it is, so that a second look at it changes nothing. A pod for which no budget is left is replaced by one that says why and
exits with 86. Pods of Argo and KFP get a preStop hook that turns their grace period into time before SIGTERM.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from spotwright.clouds.pool_order import UNKNOWN, Autoscalers, order_of
from spotwright.cluster.admit_objects import Outcome, as_warnings, controller_of, is_ignored
from spotwright.cluster.api_defaults import without_defaults
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.kinds.job import REFUSED
from spotwright.model.policy import BUILT_IN, Policy
from spotwright.model.pools import Pool
from spotwright.notices.pod_hook import FOLDER_VARIABLE, NOTICE, SAVER
from spotwright.placing.affinity import attraction, rung_conditions
from spotwright.placing.context import POLICY_ANNOTATION, PlaceContext, PlaceOptions, name_of
from spotwright.placing.documents import References
from spotwright.placing.environment import NOTICE_PORT
from spotwright.placing.patch import Editor, clone, data_document, json_pointer, value_at
from spotwright.placing.pod_spec import PREFERRED_TERMS, REQUIRED_TERMS, read_constraints, read_requests
from spotwright.placing.pods import longest_grace, shortest_notice, tolerations_of
from spotwright.scheduling.budgets import allowed_rungs
from spotwright.scheduling.ladder import Ladder, Rung, Work, build
from spotwright.scheduling.next_attempt import NextAttempt, PastAttempt, next_attempt

__all__ = [
    "ADMISSION_ANNOTATION",
    "ATTEMPT_ANNOTATION",
    "FOLDER",
    "MARGIN",
    "OPEN_ANNOTATION",
    "REFUSED_ANNOTATION",
    "RUNG_ANNOTATION",
    "PodFacts",
    "add_grace",
    "admit_pod",
    "hook_script",
    "refused_pod",
    "task_of",
    "wants_facts",
]


_REFUSAL_SCRIPT = (
    f'printf "%s" "$SPOTWRIGHT_REFUSAL" > /dev/termination-log; echo "$SPOTWRIGHT_REFUSAL" >&2; exit {REFUSED}'
)
_DROPPED = frozenset(
    {"affinity", "nodeSelector", "topologySpreadConstraints", "resourceClaims", "runtimeClassName", "overhead"}
    | {"ephemeralContainers", "resources", "hostNetwork", "hostPID", "hostIPC"}
)
_SECURE: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65534,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_ARGO_NODE = "workflows.argoproj.io/node-name"
_EMISSARY_END = "--"
_LONGEST = 3000  # characters of the message; a termination message has at most 4096 bytes


def refused_pod(data: Mapping[str, Any], image: str, message: str) -> dict[str, Any]:
    """The pod with ``image`` in its main container, which writes ``message`` as its termination message.

    It requests nothing, runs anywhere, and mounts nothing of the user's. Argo's own containers stay, as Argo reads the pod's end
    through them; of other pods the main container alone is left.
    """
    spec: dict[str, Any] = {name: value for name, value in data["spec"].items() if name not in _DROPPED}
    of_argo = _ARGO_NODE in ((data.get("metadata") or {}).get("annotations") or {})
    containers: Sequence[Mapping[str, Any]] = spec.get("containers") or ()
    main = next((one for one in containers if one.get("name") == "main"), containers[0])
    beside = [_without_requests(one) for one in containers if of_argo and one.get("name") == "wait"]
    before = [
        _without_requests(one) for one in spec.get("initContainers") or () if of_argo and one.get("name") == "init"
    ]
    spec["containers"] = [*beside, _refusing(main, image, message[:_LONGEST], of_argo=of_argo)]
    spec.pop("initContainers", None)
    if before:
        spec["initContainers"] = before
    spec["tolerations"] = [{"operator": "Exists"}]
    spec["restartPolicy"] = "Never"
    mounted = {mount.get("name") for one in (*spec["containers"], *before) for mount in one.get("volumeMounts") or ()}
    volumes = [volume for volume in spec.get("volumes") or () if volume.get("name") in mounted]
    spec.pop("volumes", None)
    if volumes:
        spec["volumes"] = volumes
    return {**data, "spec": spec}


def _refusing(main: Mapping[str, Any], image: str, message: str, *, of_argo: bool) -> dict[str, Any]:
    """The main container of a refused pod; on Argo its emissary stays in front, because it reports the end."""
    command: list[str] = ["sh", "-c", _REFUSAL_SCRIPT]
    env: list[Any] = [{"name": "SPOTWRIGHT_REFUSAL", "value": message.replace("$(", "$$(")}]
    mounts: list[Any] = []
    if of_argo:
        given = list(main.get("command") or ())
        if _EMISSARY_END in given:
            command = [*given[: given.index(_EMISSARY_END) + 1], *command]
        env += [one for one in main.get("env") or () if str(one.get("name", "")).startswith("ARGO_")]
        mounts = [
            one for one in main.get("volumeMounts") or () if str(one.get("mountPath", "")).startswith("/var/run/argo")
        ]
    refusing: dict[str, Any] = {
        "name": main.get("name", "main"),
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": env,
        "securityContext": dict(_SECURE),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    if mounts:
        refusing["volumeMounts"] = mounts
    return refusing


def _without_requests(container: Mapping[str, Any]) -> dict[str, Any]:
    """One of Argo's containers, without requests and hooks."""
    kept = {name: value for name, value in container.items() if name not in ("lifecycle", "livenessProbe")}
    return {**kept, "resources": {}}


FOLDER = "/spotwright/grace"
"""Where each container has its own folder of the volume."""

MARGIN = 2
"""Seconds of the grace period that the hook leaves to SIGTERM: the least that a kubelet gives a container after its hook."""

_VOLUME = "spotwright-grace"
_NODE_NAME = "workflows.argoproj.io/node-name"

# Plain POSIX sh, and `date` and `sleep` of any image with a shell.
# `umask 0`: the code may run as another user than the hook. The notice appears whole, by `mv`.
# `[ -d /proc/PID ]`: a process that was killed is not waited for, also one of another user. Without a match, PID is a `*`.
# The clock bounds the wait and not the number of turns, which take longer on a busy node. If `date` fails, nothing is waited for.
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


def add_grace(spec: dict[str, Any], data: Mapping[str, Any]) -> list[str]:
    """Add the hook, its folder and its variables to the containers of a pod's ``spec`` that run a task's code on Argo.

    Returns the warnings: a container with a preStop hook of its user's keeps it, and has no time before SIGTERM. A pod whose
    grace period is not longer than :data:`MARGIN` gets nothing.
    """
    seconds = int(spec.get("terminationGracePeriodSeconds") or 0) - MARGIN
    if _NODE_NAME not in (value_at(data, ("metadata", "annotations")) or {}) or seconds <= 0 or _is_windows(spec):
        return []
    warnings: list[str] = []
    for container in spec.get("containers") or ():
        if "SPOTWRIGHT_TASK" not in _names(container.get("env")) or _VOLUME in _names(container.get("volumeMounts")):
            continue
        if value_at(container, ("lifecycle", "preStop")):
            warnings.append(
                f"container {container.get('name')} keeps its own preStop hook: its code has no time to save before SIGTERM"
            )
            continue
        _add_hook(container, seconds)
        if _VOLUME not in _names(spec.get("volumes")):
            spec["volumes"] = [*(spec.get("volumes") or ()), {"name": _VOLUME, "emptyDir": {}}]
    return warnings


def _add_hook(container: dict[str, Any], seconds: int) -> None:
    """Add the hook to a container. A subPath gives each container of the pod a folder of its own, with the volume's mode 0777."""
    name = str(container.get("name"))
    container["lifecycle"] = {
        **(container.get("lifecycle") or {}),
        "preStop": {"exec": {"command": ["sh", "-c", hook_script(seconds)]}},
    }
    mount = {"name": _VOLUME, "mountPath": FOLDER, "subPath": name}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    variables = {FOLDER_VARIABLE: FOLDER, "SPOTWRIGHT_NOTICE_FILE": f"{FOLDER}/{NOTICE}"}
    given = _names(container.get("env"))
    new = [{"name": key, "value": value} for key, value in variables.items() if key not in given]
    container["env"] = [*(container.get("env") or ()), *new]


def _is_windows(spec: Mapping[str, Any]) -> bool:
    return bool(value_at(spec, ("os", "name")) == "windows")


def _names(items: Sequence[Mapping[str, Any]] | None) -> set[str]:
    return {str(item.get("name")) for item in items or ()}


ATTEMPT_ANNOTATION = "spotwright.dev/attempt"
"""The number of the pod's attempt, from 1."""

RUNG_ANNOTATION = "spotwright.dev/rung"
"""The pools of the rung that the attempt was admitted for, or of all rungs, separated by commas."""

OPEN_ANNOTATION = "spotwright.dev/open"
"""Marks a pod that is open to all rungs of its ladder: who follows the order of their pools, for people."""

ADMISSION_ANNOTATION = "spotwright.dev/admission"
"""The token of the review that made the pod precise: by it a replica recognizes the pod for which a number was given out."""

REFUSED_ANNOTATION = "spotwright.dev/refused"
"""Marks a pod, with the value ``true``, that runs nothing of the user's: it says which budget is spent, and is no attempt."""

WHY_ANNOTATION = "spotwright.dev/why"
"""The sentence for people: why this rung, or why the pod is refused."""

_LEFT_ALONE = ("DaemonSet", "ReplicaSet", "StatefulSet", "TaskRun")
"""Owners whose pods serve; and Tekton's, which gives its pods the annotations of a run and an entrypoint of its own."""

_QUEUES = "kueue.x-k8s.io/"
_GRACE = "terminationGracePeriodSeconds"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What was recorded of a pod's task.

    ``history`` are its attempts in order of creation. ``number`` was given to this attempt; None: one more than the history
    has. ``agree`` is asked with the pools of each rung of the pod's ladder and those of the rung that was decided, and returns
    the pools on which the pods of the same gang, restart and ladder have agreed; None: the pod is in no gang. ``has_begun``:
    another pod of that restart was admitted, so none is refused. ``without_capacity`` are pools that are left out for now.
    ``autoscalers`` is what the cluster shows of what makes its nodes. ``stays`` says why nobody will take the pod back where it
    waits in vain; empty if the mover will.
    ``token`` marks the pod. ``is_known``: false where nothing could be read, so that neither a number nor a rung is certain.
    """

    history: Sequence[PastAttempt] = ()
    number: int | None = None
    agree: Callable[[Sequence[tuple[str, ...]], tuple[str, ...]], tuple[str, ...]] | None = None
    has_begun: bool = False
    without_capacity: Collection[str] = ()
    token: str = ""
    is_known: bool = True
    autoscalers: Autoscalers = UNKNOWN
    stays: str = ""


def admit_pod(data: Mapping[str, Any], config: Config | None, facts: PodFacts, refusal_image: str) -> Outcome:
    """The outcome for a pod that is about to be created; ``data`` is not changed.

    ``refusal_image`` is the small image, with a shell, of pods that are refused.
    """
    reason = _reason_to_leave(data)
    if reason or config is None:
        return Outcome(reason or "there is no configuration")
    if not facts.is_known:
        return Outcome("pod is left as it is: its history is not known")
    try:
        policy, ladder = _policy_and_ladder(data, config)
    except InputError as error:
        return Outcome("pod cannot be read", warnings=as_warnings([f"left as it is: {str(error).splitlines()[0]}"]))
    if policy.spot is None or not ladder.rungs:
        return Outcome("pod has no ladder")
    decided = next_attempt(facts.history, policy, ladder, facts.without_capacity)
    if facts.has_begun:
        decided = replace(decided, refusal="")
    decided = replace(decided, number=facts.number or decided.number)
    if decided.refusal:
        marks = _marks(decided, decided.refusal, facts)
        marks[REFUSED_ANNOTATION] = "true"
        return Outcome("pod is refused", _replacing(data, refused_pod(data, refusal_image, decided.refusal), marks))
    chosen = _with_gang(_chosen(data, decided, policy, ladder, config, facts), ladder, facts)
    why = (
        decided.why.partition(",")[0].partition(":")[0] if chosen.is_open else decided.why
    )  # no rung was chosen for it
    marks = _marks(decided, ", ".join(filter(None, [why, chosen.why])), facts)
    if chosen.is_open:
        marks[OPEN_ANNOTATION] = chosen.why
    patch, warnings = _precise(data, config, policy, ladder, decided, chosen, marks)
    return Outcome("pod is admitted", patch, as_warnings(warnings))


def wants_facts(data: Mapping[str, Any]) -> bool:
    """Whether a pod with the policy of its owner is about to be made precise, which its history decides."""
    return not _reason_to_leave(data)


def _reason_to_leave(data: Mapping[str, Any]) -> str:
    """Why a pod is left as it is, whatever its history and the configuration are; empty if it is made precise."""
    annotations = value_at(data, ("metadata", "annotations")) or {}
    if is_ignored(data) or POLICY_ANNOTATION not in annotations:
        return "pod has no policy"
    if ATTEMPT_ANNOTATION in annotations:
        return "pod is admitted already"
    owner = controller_of(data)
    return "pod serves" if owner is not None and owner[1] in _LEFT_ALONE else ""


def task_of(data: Mapping[str, Any]) -> str:
    """The path of a pod's task in policies: what placement wrote into its environment, else the pod's name."""
    for container in value_at(data, ("spec", "containers")) or ():
        for variable in container.get("env") or ():
            if variable.get("name") == "SPOTWRIGHT_TASK" and variable.get("value"):
                return str(variable["value"])
    return name_of(data.get("metadata"))


def _policy_and_ladder(data: Mapping[str, Any], config: Config) -> tuple[Policy, Ladder]:
    """The policy that the pod's task has in the configuration and in the pod, and its ladder. Raises :class:`InputError`."""
    editor = Editor(data_document(data, f"Pod {name_of(data.get('metadata'))}"))
    ctx = PlaceContext(editor, config, References().find, PlaceOptions(may_add=False, has_webhook=True))
    policy = ctx.policy(task_of(data))
    work = Work(read_requests(ctx, ("spec",)), read_constraints(ctx, ("spec",)))
    return policy, build(work, policy, config.pools)


def _marks(decided: NextAttempt, why: str, facts: PodFacts) -> dict[str, str]:
    marks = {ATTEMPT_ANNOTATION: str(decided.number), WHY_ANNOTATION: why}
    return {**marks, ADMISSION_ANNOTATION: facts.token} if facts.token else marks


class _Chosen(NamedTuple):
    """The rungs that a pod is admitted for, by their indexes: one, or several that it is open to. ``why`` is a clause."""

    rungs: tuple[int, ...]
    why: str = ""

    @property
    def is_open(self) -> bool:
        return len(self.rungs) > 1

    def pools(self, ladder: Ladder) -> tuple[str, ...]:
        return tuple(name for index in self.rungs for name in ladder.rungs[index].pools)


def _chosen(
    data: Mapping[str, Any], decided: NextAttempt, policy: Policy, ladder: Ladder, config: Config, facts: PodFacts
) -> _Chosen:
    """The rung that was decided, or all that the attempt may use now.

    It is open to them where something else keeps the order of their pools, unless an interruption or a wait in vain has decided
    about its rung; and always where nobody takes it back from a pool that cannot grow: there it would wait for ever.
    """
    pinned, allowed = _Chosen((decided.rung,)), allowed_rungs(decided.spent, policy, ladder)
    if len(allowed) < 2 or ladder.undecided or _is_queued(data):
        return pinned
    stays = facts.stays or ("a deadline is in its policy" if policy.deadline is not None else "")
    if stays:
        return _Chosen(
            allowed, f"open to {_count(allowed, ladder)}, because nobody takes it back from one of them: {stays}"
        )
    if not decided.is_first:
        return pinned
    pools = [config.pools[name] for name in _Chosen(allowed).pools(ladder)]
    order = order_of(pools, config.pools, facts.autoscalers)
    if order.kept:
        return _Chosen(allowed, f"open to {_count(allowed, ladder)}: {order.why}")
    return pinned._replace(why=f"on {', '.join(pinned.pools(ladder))} alone: {order.why}")


def _count(allowed: Sequence[int], ladder: Ladder) -> str:
    return "all its rungs" if len(allowed) == len(ladder.rungs) else f"{len(allowed)} of its rungs"


def _with_gang(chosen: _Chosen, ladder: Ladder, facts: PodFacts) -> _Chosen:
    """The rungs on which the pods of its gang with the same ladder have agreed: the first one that was asked decides."""
    if facts.agree is None:
        return chosen
    agreed = facts.agree([rung.pools for rung in ladder.rungs], chosen.pools(ladder))
    if agreed == chosen.pools(ladder):
        return chosen
    rungs = tuple(index for index, rung in enumerate(ladder.rungs) if set(rung.pools) <= set(agreed))
    return _Chosen(rungs, "as the first pod of its set") if rungs else chosen


def _precise(
    data: Mapping[str, Any],
    config: Config,
    policy: Policy,
    ladder: Ladder,
    decided: NextAttempt,
    chosen: _Chosen,
    marks: Mapping[str, str],
) -> tuple[list[dict[str, Any]], list[str]]:
    """The operations that give a pod its rung, tolerations, grace period, variables and marks; and the warnings."""
    rungs = tuple(ladder.rungs[index] for index in chosen.rungs)
    used = [config.pools[name] for name in chosen.pools(ladder)]
    spec = clone(dict(data["spec"]))
    if not _is_queued(data):
        if len(rungs) < len(ladder.rungs):
            _require(spec, config, policy, ladder, used)
        marks = {**marks, RUNG_ANNOTATION: ",".join(pool.name for pool in used)}
    _tolerate(spec, ladder, rungs)
    _set_grace(spec, data, policy, used)
    _set_variables(spec, data, decided, used)
    warnings = add_grace(spec, data)
    return _replacing(data, {**data, "spec": spec}, marks), warnings


def _is_queued(data: Mapping[str, Any]) -> bool:
    """Whether Kueue admits the pod, by itself or with its workload: then the flavor is the rung."""
    fields = (value_at(data, ("metadata", name)) or {} for name in ("labels", "annotations"))
    gates = value_at(data, ("spec", "schedulingGates")) or ()
    return any(str(key).startswith(_QUEUES) for field in fields for key in field) or any(
        str(gate.get("name", "")).startswith(_QUEUES) for gate in gates
    )


def _require(spec: dict[str, Any], config: Config, policy: Policy, ladder: Ladder, used: Sequence[Pool]) -> None:
    """Require the pools of the rung in every alternative, in the place of the preference for spot."""
    conditions = rung_conditions(used, config.pools)
    if not conditions or ladder.undecided:
        return
    affinity = dict(value_at(spec, ("affinity", "nodeAffinity")) or {})
    spec["affinity"] = {**(spec.get("affinity") or {}), "nodeAffinity": affinity}
    every = [config.pools[name] for rung in ladder.rungs for name in rung.pools]
    ours = [
        {"weight": 100, "preference": {"matchExpressions": [wish]}}
        for wish in attraction(policy, every, config.pools).preferred
    ]
    preferred = [term for term in affinity.pop(str(PREFERRED_TERMS[-1]), None) or () if term not in ours]
    if preferred:
        affinity[str(PREFERRED_TERMS[-1])] = preferred
    required = affinity.setdefault(REQUIRED_TERMS[2], {})
    terms = required.setdefault(REQUIRED_TERMS[3], [])
    for term in terms:
        if any(term.values()):  # a term without a condition matches no node, and has to stay so
            own = term.get("matchExpressions") or []
            term["matchExpressions"] = [*own, *(one for one in conditions if one not in own)]
    if not terms:
        terms.append({"matchExpressions": list(conditions)})


def _tolerate(spec: dict[str, Any], ladder: Ladder, rungs: tuple[Rung, ...]) -> None:
    """Add the tolerations of the rungs that the pod has not: those of a pool that came after its object was placed."""
    given = spec.get("tolerations") or []
    new = [one for one in tolerations_of(Ladder(rungs, ladder.refusals)) if one not in given]
    if new:
        spec["tolerations"] = [*given, *new]


def _set_grace(spec: dict[str, Any], data: Mapping[str, Any], policy: Policy, used: Sequence[Pool]) -> None:
    """Give the pod the policy's grace period, within the notice of its pools, where nobody has set another."""
    is_default = value_at(without_defaults(data), ("spec", _GRACE)) is None
    is_set = policy.sources.get("grace_period") != BUILT_IN.source
    notice = shortest_notice(used)
    limit = int(policy.grace_period) if notice is None else longest_grace(notice)
    if is_default and (is_set or limit < int(policy.grace_period)):
        spec[_GRACE] = min(int(policy.grace_period), limit)


def _set_variables(spec: dict[str, Any], data: Mapping[str, Any], decided: NextAttempt, used: Sequence[Pool]) -> None:
    """Add the variables that depend on the attempt to every container that has those of its task.

    SPOTWRIGHT_GRACE is left out where Argo ends the code within a second of SIGTERM, whatever the grace period.
    """
    values = {"SPOTWRIGHT_ATTEMPT": str(decided.number)}
    if len({pool.notice for pool in used}) == 1:
        values["SPOTWRIGHT_NOTICE"] = f"{used[0].notice if used[0].is_spot else 0:g}"
    is_of_argo = "workflows.argoproj.io/node-name" in (value_at(data, ("metadata", "annotations")) or {})
    grace = spec.get(_GRACE)
    if grace is not None and not is_of_argo:
        values["SPOTWRIGHT_GRACE"] = str(grace)
    for container in spec.get("containers") or ():
        variables = container.get("env") or []
        names = {variable.get("name") for variable in variables}
        if "SPOTWRIGHT_TASK" not in names:
            continue
        kept = [one for one in variables if not (one.get("name") == "SPOTWRIGHT_ATTEMPT" and "valueFrom" in one)]
        present = {variable.get("name") for variable in kept}
        new = dict(values)
        if "SPOTWRIGHT_HOST" in names:
            new["SPOTWRIGHT_NOTICE_URL"] = f"http://$(SPOTWRIGHT_HOST):{NOTICE_PORT}/notice"
        container["env"] = [*kept, *({"name": name, "value": new[name]} for name in new if name not in present)]


def _replacing(data: Mapping[str, Any], after: Mapping[str, Any], marks: Mapping[str, str]) -> list[dict[str, Any]]:
    """The operations from a pod to its changed copy, field by field of the spec, and its annotations."""
    operations: list[dict[str, Any]] = []
    before = data["spec"]
    for name in dict.fromkeys([*before, *after["spec"]]):
        path = json_pointer(("spec", name))
        if name not in after["spec"]:
            operations.append({"op": "remove", "path": path})
        elif after["spec"][name] != before.get(name) or name not in before:
            op = "replace" if name in before else "add"
            operations.append({"op": op, "path": path, "value": after["spec"][name]})
    annotations = value_at(data, ("metadata", "annotations"))
    if annotations is None:
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    forged = [name for name in (RUNG_ANNOTATION, OPEN_ANNOTATION) if name in (annotations or {}) and name not in marks]
    operations += [{"op": "remove", "path": json_pointer(("metadata", "annotations", name))} for name in forged]
    for name, text in marks.items():
        operations.append({"op": "add", "path": json_pointer(("metadata", "annotations", name)), "value": text})
    return operations
