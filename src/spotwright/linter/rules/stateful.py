"""Rules on what must not be lost: datastores, services, notebooks, hooks, the role that all others of a job need, and logs.

Such work belongs on on-demand nodes; each rule finds another way in which it reaches spot nodes.

The last rule is on logs: pods deleted before anyone can read why they ended. Spotwright's controller keeps logs; without it
only the pod has them. Sources of that rule: argo-workflows, "Pod GC"; Kubernetes, "TTL-after-finished Controller", "CronJob";
KEDA, "ScaledJob"; kubeflow/trainer v1.9, ``cleanPodPolicy``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from spotwright.kinds.kind import Retry, Sharing
from spotwright.kube.pod import is_selected, scheduling_of
from spotwright.linter.rule import ON_SPOT, SHIELDS, TOLERATION, Checks, Problem, Rule, Severity, job, pod, training_job
from spotwright.linter.rules.timing import has_policy
from spotwright.linter.settings import Settings
from spotwright.linter.spot_reach import Reach, reach_of
from spotwright.linter.subjects import KubeObject, Pods, Shape, items_of, mapping_at, mapping_of, pods_of
from spotwright.model.scheduling_terms import Constraints
from spotwright.placing.context import hook_of
from spotwright.placing.documents import ManifestError, Path
from spotwright.placing.pod_spec import POD, check_value
from spotwright.placing.pods import PodRole

__all__ = ["RULES"]

_STORES = re.compile(
    r"(?:^|/)(minio|mysql|mariadb|postgres(?:ql)?|redis|valkey|mongo(?:db)?|etcd|elasticsearch|opensearch|cassandra|kafka|zookeeper"
    r"|rabbitmq|clickhouse(?:-server)?|weaviate|milvus|qdrant)(?:[:@-]|$)"
)


def _store_of(pods: Pods) -> str:
    """Why pods look like a datastore: their kind, or their image; empty if they do not."""
    if pods.duty is PodRole.DATASTORE:
        return f"a {pods.owner.kind} keeps its data in volumes" if pods.owner else ""
    if pods.duty is not PodRole.SERVING or pods.owner is None or pods.owner.group != "apps":
        return ""
    for container in pods.containers:
        match = _STORES.search(str(container.value.get("image") or "").lower())
        if match:
            return f"{match[1]} is a datastore"
    if any(one.sharing is Sharing.NAMED for one in pods.claims):
        return "it has its own volume"
    return ""


def _placed_by(pods: Pods) -> str:
    """What brings pods to spot nodes, in words."""
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
    if pods.asks_for_spot and pods.duty is PodRole.SERVING and not _store_of(pods) and not _is_queue_worker(pods):
        yield Problem(_path(pods), f"{pods.label} {_placed_by(pods)} and answers requests")


def _unsaid_worker(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.asks_for_spot and pods.duty is PodRole.SERVING and not _store_of(pods) and _is_queue_worker(pods):
        yield Problem(
            _path(pods), f"{pods.label} {_placed_by(pods)}, and it looks like a worker that takes work from a queue"
        )


_WORKERS = re.compile(
    r"\b(?:celery\b.*\bworker|rq worker|rqworker|dramatiq|sidekiq|arq|huey_consumer|faktory-worker|resque:work)\b"
)


def _is_queue_worker(pods: Pods) -> bool:
    """Whether pods that may work run a worker of a queue and open no port."""
    if pods.owner is None or not pods.owner.record.may_work or any(one.value.get("ports") for one in pods.containers):
        return False
    return any(_WORKERS.search(" ".join(one.words)) for one in pods.containers)


def _interactive(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.asks_for_spot and pods.duty is PodRole.INTERACTIVE:
        yield Problem(_path(pods), f"{pods.label} {_placed_by(pods)}, and people work in it")


def _hooks(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.asks_for_spot and pods.duty is PodRole.HOOK and pods.owner is not None:
        tool = hook_of(pods.owner.value.get("metadata"))
        yield Problem(_path(pods), f"{pods.label} {_placed_by(pods)}, and it is a hook of {tool}")


def _pod_defaults(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    """A PodDefault that lets pods that must not be lost onto spot nodes: pods of the file, or any with its label."""
    if (subject.group, subject.kind) != ("kubeflow.org", "PodDefault"):
        return
    spec, selector = subject.mapping("spec"), subject.get("spec", "selector")
    try:
        check_value(subject.document, subject.at("spec"), spec, POD)
    except ManifestError:
        return  # the API server refuses it
    added = scheduling_of(spec)
    if reach_of(added, settings) <= Reach.OPEN or not isinstance(selector, dict):
        return
    path = subject.at("spec", "tolerations") if added.tolerations else subject.at("spec")
    reached = [pods.label for pods in _fragile_pods(subject, settings) if _is_reached(pods, selector, added, settings)]
    if reached:
        yield Problem(
            path, f"{subject.label} lets {' and '.join(reached)} onto spot nodes: its selector matches the labels"
        )
    elif not any(_OF_WORK.match(key) for key in _keys_of(selector)):
        label = ", ".join(f"{key}={value}" for key, value in mapping_of(selector.get("matchLabels")).items())
        whom = f"every pod labelled {label}" if label else "every pod that it selects"
        yield Problem(path, f"{subject.label} lets {whom} onto spot nodes, and each new notebook is offered it")


def _fragile_pods(subject: KubeObject, settings: Settings) -> Iterator[Pods]:
    """The pods of the same file that must not be lost."""
    for other in subject.beside:
        for pods in pods_of(other, settings):
            if isinstance(pods, Pods) and pods.duty in (PodRole.SERVING, PodRole.DATASTORE, PodRole.INTERACTIVE):
                yield pods


def _is_reached(pods: Pods, selector: Shape, added: Constraints, settings: Settings) -> bool:
    """Whether a PodDefault applies to the pods and brings them to spot nodes. A Notebook gives its labels to its pods."""
    own = mapping_at(pods.owner.value, "metadata", "labels") if pods.owner and pods.duty is PodRole.INTERACTIVE else {}
    labels = {**own, **mapping_at(pods.metadata, "labels")}
    together = replace(
        pods.constraints,
        tolerations=(*pods.constraints.tolerations, *added.tolerations),
        selector={**pods.constraints.selector, **added.selector},
        preferred=(*pods.constraints.preferred, *added.preferred),
    )
    return is_selected(selector, labels) and reach_of(together, settings) > Reach.OPEN


def _keys_of(selector: Shape) -> Iterator[str]:
    yield from map(str, mapping_of(selector.get("matchLabels")))
    yield from (str(mapping_of(one).get("key")) for one in items_of(selector.get("matchExpressions")))


_OF_WORK = re.compile(
    r"(?:[a-z0-9.-]+\.)?(?:pipelines\.kubeflow\.org|argoproj\.io|training\.kubeflow\.org|katib\.kubeflow\.org|batch\.kubernetes\.io"
    r"|jobset\.sigs\.k8s\.io|ray\.io|volcano\.sh|spark-role|job-name)(?:/|$)"
)
"""Labels that controllers put on the pods of work that ends, and on no notebook."""


def _not_kept_off(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.reach is Reach.OPEN and pods.duty in (
        PodRole.SERVING,
        PodRole.DATASTORE,
        PodRole.INTERACTIVE,
        PodRole.HOOK,
    ):
        yield Problem(pods.spec, f"{pods.label} {_placed_by(pods)}, and must not be lost")


def _coordinators(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if pods.reach > Reach.OPEN and pods.duty is PodRole.COORDINATOR:
        yield Problem(_path(pods), f"{pods.label} {_placed_by(pods)}, and the other pods need it")


_DELETED_AT_0: tuple[Path, ...] = (
    ("spec", "failedJobsHistoryLimit"),
    ("spec", "jobTemplate", "spec", "ttlSecondsAfterFinished"),
    ("spec", "ttlSecondsAfterFinished"),
)
_CLEANED: tuple[Path, ...] = (("spec", "runPolicy", "cleanPodPolicy"), ("spec", "cleanPodPolicy"))


def _removed(subject: KubeObject) -> Iterator[tuple[Path, str]]:
    """The fields that delete pods and their logs as soon as they have ended, each with its meaning in words."""
    top = subject.record.top
    if subject.record.retry is Retry.STEP:
        strategy = mapping_of(subject.get(*top, "podGC")).get("strategy")
        if strategy in ("OnPodCompletion", "OnWorkflowCompletion") and subject.get(*top, "archiveLogs") is not True:
            yield (*top, "podGC", "strategy"), f"podGC {strategy} deletes pods that failed"
    for at in _DELETED_AT_0:
        if subject.get(*at) == 0:
            yield at, f"{at[-1]} 0 deletes failed Jobs with their pods"
    for at in _CLEANED:
        if subject.get(*at) == "All" and subject.record.roles:
            yield at, "cleanPodPolicy All deletes the pods as soon as the work has ended"


def _logs_go(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    every = (one for one in pods_of(subject, settings) if isinstance(one, Pods) and one.wish != "never")
    if any(one.asks_for_spot or has_policy(one, settings) for one in every):
        for path, text in _removed(subject):
            yield Problem(subject.at(*path), f"{subject.label}: {text}, so the log of an interrupted attempt is gone")


_UNTAINTED = """\
version: 1
pools:
  spot: {capacity: spot, provider: eks}
  regular: {capacity: on-demand, provider: eks}
"""
_POD_DEFAULT = (
    "apiVersion: kubeflow.org/v1alpha1\nkind: PodDefault\nmetadata:\n  name: spot\nspec:\n  selector: {{matchLabels: {{{label}: "
    "'true'}}}}\n" + "".join(f"  {line.replace('{', '{{').replace('}', '}}')}\n" for line in TOLERATION.splitlines())
)
_AS_HOOK = ("  name: train\n", "  name: train\n  annotations: {helm.sh/hook: pre-upgrade}\n")
_STAY = "Remove the toleration and the affinity; spotwright place keeps such work on on-demand."
_MASTER = (
    "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: mnist\nspec:\n  pytorchReplicaSpecs:\n    "
    "Master:\n"
    "      restartPolicy: ExitCode\n      template:\n        metadata:\n          {shields}        spec:\n{lines}"
    "          containers:\n          - name: pytorch\n            image: training:1\n"
)

_WORKFLOW = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: train}}\nspec:\n  entrypoint: main\n"
    "  podGC: {{strategy: {strategy}}}\n  templates:\n  - name: main\n    retryStrategy: {{limit: 3, retryPolicy: Always}}\n"
    "    metadata:\n      annotations:\n        cluster-autoscaler.kubernetes.io/safe-to-evict: 'false'\n"
    "        karpenter.sh/do-not-disrupt: 'true'\n"
    "    container: {{image: 'trainer:1'}}\n"
)
_SPOT_STEP = "".join(f"    {line}\n" for line in ON_SPOT.splitlines())

RULES = (
    Rule(
        id="datastore-on-spot",
        severity=Severity.ERROR,
        title="A datastore on spot nodes",
        why="An interruption takes the datastore from everybody who uses it, and its volume may be bound to a zone in "
        "which no node is to be had. MinIO and MySQL of Kubeflow are Deployments with a volume, so the kind alone does "
        "not show it.",
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
        passes=pod(ON_SPOT)
        .replace("  name: app\n", "  name: app\n  labels: {spotwright.dev/role: worker}\n")
        .replace("      labels: {app: app}\n", f"      labels: {{app: app}}\n      {SHIELDS}"),
        checks=Checks(pods=_services),
    ),
    Rule(
        id="worker-not-labelled",
        severity=Severity.NOTE,
        title="A Deployment on spot that looks like a worker of a queue",
        why="place leaves Deployments alone, because most answer requests. One that takes work from a queue may be interrupted, "
        "if the queue gives unfinished work out again.",
        fix="Label it spotwright.dev/role: worker; place then treats it as work.",
        fails=pod(ON_SPOT, container="command: [celery, -A, app, worker]\n"),
        passes=pod(ON_SPOT, container="command: [celery, -A, app, worker]\n").replace(
            "labels: {app: app}", "labels: {app: app, spotwright.dev/role: worker}\n      " + SHIELDS.rstrip()
        ),
        checks=Checks(pods=_unsaid_worker),
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
        id="hook-on-spot",
        severity=Severity.WARNING,
        title="A hook of Helm or Argo CD on spot nodes",
        why="The release waits for the hook and fails with it, and an interruption may leave a migration half done. More "
        "retries do not help with work that must not run twice.",
        fix=_STAY + " Work that can be done again is labelled spotwright.dev/spot: prefer.",
        fails=job(ON_SPOT, spec="backoffLimit: 0\n").replace(*_AS_HOOK),
        passes=job("", spec="backoffLimit: 0\n").replace(*_AS_HOOK),
        checks=Checks(pods=_hooks),
        source='Helm documentation, "Chart Hooks"; Argo CD documentation, "Resource Hooks"',
    ),
    Rule(
        id="poddefault-on-spot",
        severity=Severity.WARNING,
        title="A PodDefault that lets notebooks onto spot nodes",
        why="Kubeflow lays a PodDefault over every pod with its label, and offers it to each notebook that is made, so a "
        "toleration there brings notebooks and services to nodes that are reclaimed.",
        fix="Write the toleration into the work itself (spotwright place), or select by a label that only work has; spotwright "
        "place keeps a Notebook with the label spotwright.dev/spot: never on on-demand.",
        fails=_POD_DEFAULT.format(label="use-spot"),
        passes=_POD_DEFAULT.format(label="pipelines.kubeflow.org/v2_component"),
        checks=Checks(objects=_pod_defaults),
        source="kubeflow/kubeflow, ``components/admission-webhook``",
    ),
    Rule(
        id="not-kept-off-spot",
        severity=Severity.WARNING,
        title="What must not be lost may land on a spot pool that has no taint",
        why="EKS and Karpenter set no taint on spot nodes, so every pod without a selector may land there.",
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
        fails=_MASTER.format(shields=SHIELDS, lines="".join(f"          {line}\n" for line in ON_SPOT.splitlines())),
        passes=training_job(ON_SPOT, role="restartPolicy: ExitCode\n"),
        checks=Checks(pods=_coordinators),
        place_says=True,
    ),
    Rule(
        id="logs-go-with-pod",
        severity=Severity.NOTE,
        title="The log of an interrupted attempt goes with its pod",
        why="Why an attempt ended stands in its pod and its log. If the pod is deleted at once, nobody can tell an interruption "
        "from an error of the code.",
        fix="Keep failed pods (podGC OnPodSuccess, a TTL above 0), archive logs, or let Spotwright's controller record the run.",
        fails=_WORKFLOW.format(strategy="OnPodCompletion") + _SPOT_STEP,
        passes=_WORKFLOW.format(strategy="OnPodSuccess") + _SPOT_STEP,
        checks=Checks(objects=_logs_go),
        source='argo-workflows, "Pod GC"; Kubernetes documentation, "TTL-after-finished Controller"',
    ),
)
"""The rules of this module."""
