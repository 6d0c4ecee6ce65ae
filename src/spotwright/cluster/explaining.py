"""Explains where a pod runs or why it waits, from the API server's current state and the records of its run.

It reads with the caller's rights. A Job, a Workflow or a run is explained by its pods. For a waiting pod it says whether and
why the pod will be evicted, and for a silent node what to do.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.clouds.providers import commands_to_free
from spotwright.cluster.api_client import ApiFailed, object_path
from spotwright.cluster.autoscaler_reader import hear_of_pod, hear_of_pools
from spotwright.cluster.autoscaler_status import AutoscalerStatus
from spotwright.cluster.descheduler import (
    NodeSeen,
    backoff_of_job,
    not_ready_since,
    why_gone,
    why_not_moved,
    worth_moving_at,
)
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.pod_starts import why_not_started
from spotwright.cluster.recorded_runs import RecordedRuns, archive_note
from spotwright.cluster.signals import events_of_pod, has_not_started
from spotwright.cluster.unavailable_pools import definition_of
from spotwright.cluster.watched import WATCHED
from spotwright.engine.decide import next_pools, why_it_stays
from spotwright.engine.events import RunStatus
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.engine.waits import NODE_ORDERED, ORDERS_UNKNOWN, in_vain_at, is_ruled_out
from spotwright.errors import InputError, UnknownRun
from spotwright.kinds.kind import Kind, Retry, kind_of, run_kinds
from spotwright.kube.object_fields import controller_of, metadata, seconds
from spotwright.kube.pod import REQUIRED
from spotwright.model.pools import Pool
from spotwright.placing.context import QUEUE_LABEL
from spotwright.placing.patch import value_at
from spotwright.records.reader import RunReader
from spotwright.scheduling.budgets import Pause
from spotwright.views.text import after_cause, ended

__all__ = ["EXPLAINED", "explain_object", "lost_node", "move_of", "not_started", "pool_states"]


def move_of(
    kubernetes: Kubernetes,
    pod: Mapping[str, Any],
    state: RunState | None,
    task: TaskState | None,
    attempt: AttemptState | None,
    left_out: Sequence[Mapping[str, Any]],
    now: float,
) -> dict[str, Any] | None:
    """The planned eviction of a pod that waits for a node: ``at`` (Unix seconds), ``to`` the pools of the next pod.

    ``stays`` says why it is not evicted; ``backoff`` (seconds) is the Job's pause after it. None for a pod that does not wait
    for a node.
    """
    due = None if task is None or attempt is None else in_vain_at(task, attempt)
    if state is None or task is None or attempt is None or due is None:
        return None
    pauses = _pauses(left_out, _namespace(pod), state.plan.config.pools)
    owners = _owners(kubernetes, pod)
    stays = why_not_moved(pod, owners, is_admitted=attempt.why != "") or why_it_stays(state, task, attempt, pauses, now)
    if stays:
        return {"at": None, "to": [], "stays": stays, "backoff": 0.0}
    at = max(due, worth_moving_at(state, task, attempt, owners, now))
    to = list(next_pools(state, task, attempt, pauses, now))
    return {"at": at, "to": to, "stays": "", "backoff": backoff_of_job(state, task, owners)}


def pool_states(
    pod: Mapping[str, Any],
    task: TaskState,
    attempt: AttemptState,
    pools: Mapping[str, Pool],
    words: AutoscalerStatus,
    left_out: Sequence[Mapping[str, Any]],
    now: float,
) -> list[dict[str, Any]]:
    """Each pool of the ladder in its order: ``pool``, ``is_asked`` (the pod admits it), ``state`` and ``since``.

    ``state`` is a clause for people, empty if unknown. ``since`` is the time of the autoscaler's report in Unix seconds, or
    null. ``until``: the pool is skipped until then.
    """
    paused = {
        name: pause.until for name, pause in _pauses(left_out, _namespace(pod), pools).items() if now < pause.until
    }
    found = []
    for name in (name for rung in task.plan.ladder.rungs for name in rung.pools):
        said = words.of(pod if name in attempt.pools else {}, [name], pools, now)
        state, since = ("", None) if said is None or said.kind == ORDERS_UNKNOWN else (said.words, said.since)
        if not state and attempt.pools == (name,) and (attempt.waits.startswith(NODE_ORDERED) or is_ruled_out(attempt)):
            state, since = attempt.waits.partition(": ")[2], attempt.waits_since  # the controller's rights
        is_asked, until = name in attempt.pools, paused.get(name)
        found.append({"pool": name, "is_asked": is_asked, "state": state, "since": since, "until": until})
    return found


def _pauses(left_out: Sequence[Mapping[str, Any]], namespace: str, pools: Mapping[str, Pool]) -> Mapping[str, Pause]:
    """The backoffs in force for a namespace, by its names of ``pools``."""
    holding = [one for one in left_out if one.get("namespace", "") in ("", namespace)]
    by_key = {one["key"]: Pause(int(one["times"]), one["since"], one["until"]) for one in holding}
    keys = {name: definition_of(pool) for name, pool in pools.items()}
    return {name: by_key[key] for name, key in keys.items() if key in by_key}


def _namespace(pod: Mapping[str, Any]) -> str:
    return str(metadata(pod).get("namespace", ""))


def lost_node(
    kubernetes: Kubernetes, pod: Mapping[str, Any], attempt: AttemptState | None, now: float
) -> dict[str, Any] | None:
    """The state of an unresponsive node: ``node``, ``since``, ``gone`` (why its machine is gone), and ``commands``.

    The commands are for people, to free the node. None for a pod whose node reports.
    """
    name = str((pod.get("spec") or {}).get("nodeName") or "")
    if not name:
        return None
    held = None if attempt is None else attempt.held
    try:
        node: Mapping[str, Any] | None = kubernetes.get(object_path("v1", "Node", name))
    except ApiFailed as error:
        if error.status == 404:
            return {"node": name, "since": None, "gone": f"the Node object {name} was deleted", "commands": []}
        if held is None:
            return None
        return {"node": name, "since": held.since, "gone": "", "commands": list(commands_to_free(name))}
    since = not_ready_since(node)
    if since is None:
        return None
    gone = why_gone(NodeSeen(name, node), now)
    return {"node": name, "since": since, "gone": gone, "commands": [] if gone else list(commands_to_free(name))}


def not_started(kubernetes: Kubernetes, pod: Mapping[str, Any]) -> str:
    """Why a pod does not start on its node; empty if it has started or can start."""
    if not has_not_started(pod):
        return ""
    try:
        events = kubernetes.get(*events_of_pod(pod)).get("items") or ()
    except ApiFailed as error:
        return why_not_started(pod, ()) or f"its events may say why, but cannot be read: {error}"
    return why_not_started(pod, events)


def _owners(kubernetes: Kubernetes, pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The owners of a pod, nearest first; only the kind of one that cannot be read."""
    owners: list[Mapping[str, Any]] = []
    here = pod
    while (named := controller_of(here)) is not None and named.kind in run_kinds():
        namespace = str(metadata(pod).get("namespace", ""))
        if any(named.name == metadata(each).get("name") and named.kind == each["kind"] for each in owners):
            break  # a circle of owners
        try:
            here = kubernetes.get(object_path(named.api_version, named.kind, named.name, namespace))
        except ApiFailed:
            here = {"metadata": {"name": named.name}}
        owners.append({**here, "kind": named.kind})
    return owners


EXPLAINED: Mapping[str, Kind] = {"Pod": kind_of("v1", "Pod"), **run_kinds()}
"""The kinds of the objects that can be explained by their names."""

_SHORT = {record.short_name: kind for kind, record in EXPLAINED.items() if record.short_name}
_KINDS = ", ".join(map(str.lower, EXPLAINED))
_ATTEMPT, _OPEN, _RUNG, _WHY = (f"spotwright.dev/{name}" for name in ("attempt", "open", "rung", "why"))
_MOST_PODS = 20  # of one object, for people
_HISTORY = 10  # the newest attempts of a task that are shown


def explain_object(kubernetes: Kubernetes, runs: RecordedRuns, text: str, namespace: str = "") -> dict[str, Any]:
    """Explain ``kind/name`` or the object of a run: ``{"object", "run", "pods", "left_out", "notes"}``.

    A run is named as in ``runs --cluster``, or by its id in Kubeflow Pipelines.

    Each of ``pods`` has its ``name``, ``task`` and ``attempt`` (null where no run has it), ``status`` (waiting, running,
    ended), ``node``, ``pool``, ``capacity``, ``scheduler`` (kube-scheduler's message about a waiting pod), ``not_started`` (why
    a pod does not start on its node, such as a volume that cannot be mounted), ``rung`` (``number`` from 1, ``of``, ``pools``,
    ``is_open``: it may get a node of any rung, and ``number`` is null until it has), ``pools`` (for a pod without a node, its
    ladder's pools, each with ``pool``, ``is_asked``: the pod admits it, ``state``: its autoscaler's status, ``since`` when,
    ``until``: it is skipped), ``move`` (null, or the planned eviction of a pod without a node: ``at``, ``to`` the pools of the
    next one, ``stays``: why not, ``backoff``: the seconds for which its Job then makes no pod), ``lost_node`` (null, or
    ``node``, ``since``, ``gone``,
    ``commands``), ``budgets`` (``interruptions`` and ``errors``, each ``spent`` and ``max``), ``history`` (a sentence for each
    earlier attempt), ``webhook`` (admission's annotations: ``attempt``, ``rung``, ``why``) and ``not_enforced``. ``left_out``
    are the run's pools that new attempts avoid now: ``pool``, ``since``, ``until``, ``times``. ``namespace``: by default the
    context's. Raises :class:`InputError` for a missing object.
    """
    if "/" not in text:
        return _of_a_run(kubernetes, runs, text, namespace)
    kind, name = _read_name(text)
    where = namespace or kubernetes.namespace
    found, notes = _readable(kubernetes, where, kind, name)
    if found is None:
        raise InputError(
            f"{kind} {name} is no longer in namespace {where}; spotwright runs --cluster lists recorded runs"
        )
    roots = _roots(kubernetes, where, kind, found)
    reader, more = _run(runs, roots, where)
    notes += more
    pods = [found] if kind == "Pod" else _pods(kubernetes, where, reader)
    if kind != "Pod" and not pods:
        notes.append(f"no attempt of {kind} {name} waits or runs now")
    return _answer(kubernetes, runs, f"{kind} {where}/{name}", reader, pods, notes)


def _of_a_run(kubernetes: Kubernetes, runs: RecordedRuns, text: str, namespace: str) -> dict[str, Any]:
    """Explain the object of a run, even if its kind cannot be named here or it was deleted."""
    try:
        reader = runs.open(text, namespace)
    except UnknownRun as error:
        raise InputError(f"{error}; name an object as KIND/NAME, with one of the kinds {_KINDS}") from error
    where = str(reader.state.meta.arguments.get("namespace", ""))
    pods = _pods(kubernetes, where, reader)
    notes = []
    if not pods:
        is_over = reader.state.status is not RunStatus.RUNNING
        so = f": the run has {reader.state.status.value}" if is_over else ""
        notes.append(
            f"no attempt waits or runs now{so}; spotwright show {reader.folder.name} --cluster lists all attempts"
        )
    return _answer(kubernetes, runs, reader.state.meta.pipeline, reader, pods, notes)


def _answer(
    kubernetes: Kubernetes,
    runs: RecordedRuns,
    what: str,
    reader: RunReader | None,
    pods: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
) -> dict[str, Any]:
    words = hear_of_pools(kubernetes.get) if any(_status(pod) == "waiting" for pod in pods) else AutoscalerStatus()
    now = time.time() if reader is None else reader.now or time.time()
    left_out = [own for one in runs.look_at_pools() if now < one["until"] for own in _of_run(one, reader)]
    return {
        "object": what,
        "run": None if reader is None else reader.folder.name,
        "pods": [_with_its_node(kubernetes, left_out, pod, reader, words) for pod in pods[:_MOST_PODS]],
        "left_out": left_out,
        "notes": [
            *notes,
            *(
                [f"run {reader.folder.name}: {archive_note(reader)}"]
                if reader is not None and archive_note(reader)
                else []
            ),
            *([runs.pools_unknown] if runs.pools_unknown else []),
            *_unread_nodes(kubernetes, pods[:_MOST_PODS]),
            *_left_out(len(pods)),
        ],
    }


def _of_run(pause: Mapping[str, Any], reader: RunReader | None) -> Iterator[dict[str, Any]]:
    """A pool's backoff under the run's name for the pool, if it applies to the run and the run has the pool."""
    if reader is None:
        yield from [dict(pause)] if pause["pool"] else []
        return
    namespace, pools = str(reader.state.meta.arguments.get("namespace", "")), reader.state.plan.config.pools
    yield from ({**pause, "pool": name} for name in _pauses([pause], namespace, pools))


def _with_its_node(
    kubernetes: Kubernetes,
    left_out: Sequence[Mapping[str, Any]],
    pod: Mapping[str, Any],
    reader: RunReader | None,
    words: AutoscalerStatus,
) -> dict[str, Any]:
    """Explain a pod, with its future if it waits for a node or its node does not report."""
    task, attempt = _attempt_of(pod, reader)
    explained, now = _explained(pod, reader), time.time() if reader is None else reader.now or time.time()
    is_waiting, is_running = (explained["status"] == word for word in ("waiting", "running"))
    state = None if reader is None else reader.state
    move = move_of(kubernetes, pod, state, task, attempt, left_out, now) if is_waiting else None
    pools: list[dict[str, Any]] = []
    if is_waiting and state is not None and task is not None and attempt is not None:
        hear_of_pod(words, kubernetes.get, pod)
        pools = pool_states(pod, task, attempt, state.plan.described, words, left_out, now)
    return {
        **explained,
        "pools": pools,
        "move": move,
        "not_started": not_started(kubernetes, pod),
        "lost_node": lost_node(kubernetes, pod, attempt, now) if is_running else None,
    }


def _read_name(text: str) -> tuple[str, str]:
    word, slash, name = text.partition("/")
    kinds = {kind.lower(): kind for kind in EXPLAINED} | {f"{kind.lower()}s": kind for kind in EXPLAINED} | _SHORT
    kind = kinds.get(word.lower().partition(".")[0], "")
    if not (slash and name and kind):
        raise InputError(f"{text!r}: expected the name of a run, or KIND/NAME with one of the kinds {_KINDS}")
    return kind, name


def _object(kubernetes: Kubernetes, namespace: str, kind: str, name: str) -> dict[str, Any] | None:
    try:
        return kubernetes.get(object_path(EXPLAINED[kind].api_version, kind, name, namespace))
    except ApiFailed as error:
        if error.status == 404:
            return None
        if error.status == 403:
            raise InputError(
                f"you may not get {EXPLAINED[kind].plural} in namespace {namespace}: ask for a Role there"
            ) from error
        raise


def _readable(kubernetes: Kubernetes, namespace: str, kind: str, name: str) -> tuple[dict[str, Any] | None, list[str]]:
    """An object, with a note if the caller may only read pods: its run and pods are then used instead."""
    try:
        return _object(kubernetes, namespace, kind, name), []
    except InputError as error:
        if kind == "Pod":
            raise
        missing = f"{error} to see the owners of {kind} {name}"
        return {"metadata": {"name": name, "namespace": namespace}}, [missing]


def _roots(kubernetes: Kubernetes, namespace: str, kind: str, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The possible kinds and names of an object's run: its topmost owner, or guesses if that cannot be read.

    A JobSet has the name of its TrainJob, and its pods name the JobSet.
    """
    name = str(found["metadata"]["name"])
    labels = found["metadata"].get("labels") or {}
    job_set = next((labels.get(one.pods_label) for one in run_kinds().values() if one.restart_label), None)
    passed: set[tuple[str, str]] = set()
    while True:
        above = controller_of(found)
        if above is None or above.kind not in EXPLAINED or (kind, name) in passed:  # users can write a circle of owners
            return [(kind, name)]
        passed.add((kind, name))
        kind, name = above.kind, above.name
        try:
            read = _object(kubernetes, namespace, kind, name)
        except InputError:
            guesses = [(one, str(job_set)) for one in _sets()] if job_set else []
            return [*guesses, (kind, name)]
        if read is None:
            return [(kind, name)]
        found = read


def _sets() -> list[str]:
    """The kinds of runs whose pods have the label of a set: first those that make one."""
    kinds = run_kinds().items()
    return [name for name, kind in kinds if kind.hands_down] + [name for name, kind in kinds if kind.retry is Retry.SET]


def _run(runs: RecordedRuns, roots: Sequence[tuple[str, str]], namespace: str) -> tuple[RunReader | None, list[str]]:
    for kind, name in roots:
        with contextlib.suppress(UnknownRun):
            return runs.open(f"{kind}/{name}", namespace), []
    kind, name = roots[-1]
    why = _why_not_recorded(runs.look_at_watched(namespace), kind, namespace)
    return None, [f"no run of {kind} {namespace}/{name} is recorded: {why}"]


def _why_not_recorded(watched: Mapping[str, Any], kind: str, namespace: str) -> str:
    """Why an object has no run, from the controller's published scope."""
    if watched.get("unknown"):
        return f"cannot tell what the controller watches: {watched['unknown']}"
    if not watched.get("is_served"):
        return (
            f"the controller does not serve namespace {namespace}: "
            "give it the label spotwright.dev/enabled=true, or list it where the controller lists namespaces"
        )
    state = str((watched.get("kinds") or {}).get(kind, ""))
    if kind != "Pod" and state != WATCHED:
        why = state or "the controller does not watch this kind"
        return f"no {kind} is recorded: {why}; the controller looks again every 20 s"
    return "it had no pod with a policy while the controller watched; new pods are recorded within seconds"


def _pods(kubernetes: Kubernetes, namespace: str, reader: RunReader | None) -> list[dict[str, Any]]:
    """The pods of a run with active attempts or on a silent node, in order of creation."""
    if reader is None:
        return []
    attempts = [attempt for task in reader.state.tasks.values() for attempt in task.attempts]
    here = [attempt for attempt in attempts if attempt.is_live or attempt.held is not None]
    live = {attempt.key.partition("/")[0] for attempt in here}
    try:
        items = kubernetes.get(object_path("v1", "Pod", namespace=namespace)).get("items") or []
    except ApiFailed as error:
        if error.status != 403:
            raise
        items = _pods_by_name(kubernetes, namespace, here)  # the right to get pods is enough to read a run
    mine = [pod for pod in items if pod["metadata"]["uid"] in live]
    return sorted(mine, key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]))


def _pods_by_name(kubernetes: Kubernetes, namespace: str, attempts: Sequence[AttemptState]) -> list[dict[str, Any]]:
    """The pods of these attempts, read one by one by name; only the newest if there are many."""
    names = dict.fromkeys(each.pod for each in sorted(attempts, key=lambda each: each.placed_at) if each.pod)
    found = (_object(kubernetes, namespace, "Pod", name) for name in [*names][-_MOST_PODS - 1 :])
    return [pod for pod in found if pod is not None]


def _unread_nodes(kubernetes: Kubernetes, pods: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A note that the caller may not read nodes, if a pod runs on one."""
    name = next((str(pod["spec"]["nodeName"]) for pod in pods if _status(pod) == "running"), "")
    if name:
        try:
            kubernetes.get(object_path("v1", "Node", name))
        except ApiFailed as error:
            if error.status == 403:
                yield "you may not get nodes, so only the run shows whether the nodes of these pods report"


def _left_out(count: int) -> list[str]:
    return [f"{count - _MOST_PODS} more pods wait or run"] if count > _MOST_PODS else []


def _explained(pod: Mapping[str, Any], reader: RunReader | None) -> dict[str, Any]:
    task, attempt = _attempt_of(pod, reader)
    annotations = pod["metadata"].get("annotations") or {}
    node = (pod.get("spec") or {}).get("nodeName")
    status = _status(pod)
    return {
        "name": pod["metadata"]["name"],
        "task": None if task is None else task.path,
        "attempt": None if attempt is None else attempt.number,
        "status": status,
        "since": seconds(pod["metadata"].get("creationTimestamp")),
        "node": node,
        "pool": None if attempt is None else attempt.pool,
        "capacity": _capacity(reader, attempt),
        "scheduler": _scheduler(pod) if status == "waiting" else "",
        "rung": _rung(task, attempt),
        "budgets": _budgets(task),
        "history": list(_history(task, attempt)),
        "webhook": {
            key: annotations.get(name, "") for key, name in (("attempt", _ATTEMPT), ("rung", _RUNG), ("why", _WHY))
        },
        "not_enforced": [*_not_enforced(pod, attempt), *_lost_deadline(task, reader)],
    }


def _status(pod: Mapping[str, Any]) -> str:
    if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return "ended"
    return "running" if (pod.get("spec") or {}).get("nodeName") else "waiting"


def _attempt_of(pod: Mapping[str, Any], reader: RunReader | None) -> tuple[TaskState | None, AttemptState | None]:
    """The newest attempt of a pod: a pod with a restarted container has several."""
    uid = pod["metadata"]["uid"]
    for task in () if reader is None else (*reader.state.tasks.values(), *reader.state.retired.values()):
        for attempt in reversed(task.attempts):
            if attempt.key.partition("/")[0] == uid:
                return task, attempt
    return None, None


def _capacity(reader: RunReader | None, attempt: AttemptState | None) -> str | None:
    if reader is None or attempt is None or attempt.pool is None:
        return None
    pool = reader.state.plan.config.pools.get(attempt.pool)
    return None if pool is None else pool.capacity.value


def _scheduler(pod: Mapping[str, Any]) -> str:
    """The kube-scheduler's message about a pod that has no node."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    for each in conditions:
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "")
    return ""


def _rung(task: TaskState | None, attempt: AttemptState | None) -> dict[str, Any] | None:
    if task is None or attempt is None:
        return None
    is_everywhere = attempt.is_open and attempt.bound_at is None
    number = None if is_everywhere else attempt.rung + 1
    of = len(task.plan.ladder.rungs)
    return {"number": number, "of": of, "pools": list(attempt.pools), "is_open": attempt.is_open}


def _budgets(task: TaskState | None) -> dict[str, Any] | None:
    if task is None:
        return None
    spent, policy = task.spent, task.plan.policy
    return {
        "interruptions": {"spent": spent.interruptions, "max": policy.max_interruptions},
        "errors": {"spent": spent.errors, "max": policy.retries},
    }


def _history(task: TaskState | None, attempt: AttemptState | None) -> Iterator[str]:
    """A sentence for each earlier attempt, oldest first; only the newest if there are many."""
    if task is None or attempt is None:
        return
    before = [each for each in task.attempts if each.number < attempt.number]
    if len(before) > _HISTORY:
        yield f"{len(before) - _HISTORY} earlier attempts"
    for each in before[-_HISTORY:]:
        where = f" in {each.pool}" if each.pool else ""
        if each.cause is None:
            yield f"attempt {each.number}{where} has not ended yet"
            continue
        following = after_cause(each.cause, each.following)
        yield f"attempt {each.number}{where} {ended(each.cause, each.cause_why, each.progress)}" + (
            f"; then {following}" if following else ""
        )


def _not_enforced(pod: Mapping[str, Any], attempt: AttemptState | None) -> Iterator[str]:
    """Settings that are not enforced for this pod."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    is_admitted = bool((metadata.get("annotations") or {}).get(_RUNG))
    affinity = value_at(spec, REQUIRED)
    if (metadata.get("labels") or {}).get(QUEUE_LABEL):
        yield "the rung: Kueue chooses the flavor, and with it the nodes"
    elif not is_admitted:
        yield "the rung: the webhook did not admit this pod, so only its own affinity decides where it may run"
    elif not affinity and _OPEN not in (metadata.get("annotations") or {}):
        yield "the rung: the pod has no required node affinity, so the rung is only a preference"
    if not is_admitted:
        yield "the budgets: they are counted, but pods are not refused when one is spent"
    if attempt is not None and attempt.pool is not None and attempt.pools and attempt.pool not in attempt.pools:
        yield f"the pools of its rung: it runs in {attempt.pool}, which is not one of them"


def _lost_deadline(task: TaskState | None, reader: RunReader | None) -> Iterator[str]:
    """A note that a deadline in the policy of the pod's task has no effect."""
    lost = "" if task is None or reader is None else reader.state.plan.lost_deadline(task.plan)
    if lost:
        yield lost
