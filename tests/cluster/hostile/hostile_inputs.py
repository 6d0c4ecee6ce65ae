"""What a hostile tenant may bring: strategies over deeds.

They begin with objects as people write them, and put hostile values in their places: what belongs to the other tenant, paths as
names, wrong types, texts and lists without end. Hypothesis makes the small choices; the large values come from a list, because a
large value is found by no search.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from tests.cluster.hostile.hostile_tenant import Deed
from tests.cluster.hostile.quiet_tenant import EVENTS, JOBS, MAPS, PODS, QUIET, UID
from tests.cluster.hostile.two_tenants import STEPS
from tests.cluster.watching.watched_objects import at

JOBSETS, TRAINJOBS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
WORKFLOWS, MPIJOBS = "/apis/argoproj.io/v1alpha1/workflows", "/apis/kubeflow.org/v1/mpijobs"
OURS = tuple(
    f"spotwright.dev/{name}"
    for name in ("rung", "attempt", "refused", "open", "admission", "why", "policy", "placed", "admitted", "ignore")
)
NAMES = ("train", "train-1", "train-2", "other", "x" * 63, "a.b-c")
QUIETS = (UID, "quiet-train-1", "quiet-train-2", "quiet-train-3", "train", QUIET, "quiet-review-2", "quiet-review-3")
PATHS = (
    "../../quiet/jobs/train",
    "../../../../api/v1/pods",
    "..",
    "train?watch=true",
    "train%2f..%2f..",
    "a/b",
    "\x00",
    "\x1b[2J",
    "train#x",
    ".",
)
LARGE: Sequence[Any] = (
    {"@": ["x", 200_000]},
    {"@": ["((a", 30_000]},
    {"@": ["(1:", 60_000]},
    {"@": ["a.", 60_000]},
    {"@": ["é", 50_000]},
    {"@deep": 900},
    {"@deep": 4000},
    {"@many": ["x", 20_000]},
    {"@many": [{"name": "x", "templateRef": {"name": "y", "template": "z"}}, 3000]},
    {"@many": [[], 50_000]},
    "(a+)+$",
    "(a|a)*b",
    "(?:.*){30}x",
)
ODD: Sequence[Any] = (
    *(None, True, 0, -1, 2_000_000_000, 10**30, 1e308),
    *("", "-1", "1e9", "²", "9" * 5000),
    *([], {}, [None], [[]], ["x"], {"x": {}}, {"": None}),
)

values = st.one_of(
    st.sampled_from(ODD),
    st.sampled_from(PATHS),
    st.sampled_from(QUIETS),
    st.sampled_from(LARGE),
    st.text(max_size=12),
    st.integers(-(2**70), 2**70),
)
policies = st.one_of(
    st.sampled_from(
        (
            '{"spot": "require"}',
            '{"spot": "prefer", "pools": ["gpu", "gpu-spot"]}',
            '{"spot": "prefer", "deadline": "1h"}',
            '{"spot": "prefer", "checkpoint": {"claim": "../quiet"}}',
            '{"spot":',
            "[" * 3000,
            "{" * 500,
            "null",
            "1e999",
            '"\\ud800"',
        )
    ),
    values,
)
marks = st.dictionaries(
    st.sampled_from(
        (
            *OURS,
            "workflows.argoproj.io/node-name",
            "workflows.argoproj.io/node-id",
            "batch.kubernetes.io/job-completion-index",
        )
    ),
    st.one_of(
        policies,
        values,
        st.sampled_from(("gpu-spot,gpu", "gpu-spot", "true", "1", "main(0)", "a.b(0:x).c", "wf[0].step(12:a(b))")),
    ),
    max_size=4,
)
labels = st.dictionaries(
    st.sampled_from(
        (
            "spotwright.dev/spot",
            "jobset.sigs.k8s.io/restart-attempt",
            "jobset.sigs.k8s.io/replicatedjob-name",
            "jobset.sigs.k8s.io/job-index",
            "batch.kubernetes.io/controller-uid",
            "workflows.argoproj.io/workflow",
            "pipeline/runid",
            "training.kubeflow.org/replica-type",
            "training.kubeflow.org/job-role",
            "training.kubeflow.org/replica-index",
            "kueue.x-k8s.io/queue-name",
        )
    ),
    st.sampled_from(("prefer", "require", "never", "0", "1", "-1", "abc", "99999999999999", "node", "", "x" * 63, UID)),
    max_size=3,
)
KINDS = (
    ("batch/v1", "Job"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("argoproj.io/v1alpha1", "Workflow"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ("kubeflow.org/v1", "MPIJob"),
    ("v1", "Pod"),
    ("", "Job"),
    ("../v1", "Job"),
    ("batch/v1", "Secret"),
    ("v1", "../secrets"),
    ("example.com/v1", "Thing"),
)


@st.composite
def references(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Owners: its own objects, the other tenant's, and invalid ones."""
    version, kind = draw(st.sampled_from(KINDS))
    name = draw(st.one_of(st.sampled_from(NAMES), st.sampled_from(PATHS)))
    uid = draw(st.one_of(st.sampled_from([f"uid-hostile-{one}" for one in NAMES]), st.sampled_from(QUIETS)))
    first = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": draw(st.booleans())}
    return [first, *draw(st.sampled_from(([], [], [{**first, "controller": False}] * 300)))]


@st.composite
def metadata(draw: st.DrawFn) -> dict[str, Any]:
    """The metadata of an object, as a real API server lets it in, or nearly so."""
    made: dict[str, Any] = {"name": draw(st.sampled_from(NAMES)), "creationTimestamp": at(draw(st.integers(0, 400)))}
    if draw(st.booleans()):
        made["annotations"] = draw(marks)
    if draw(st.booleans()):
        made["labels"] = draw(labels)
    if draw(st.integers(0, 2)) == 0:
        made["ownerReferences"] = draw(references())
    return made


CONTAINER = {"name": "main", "image": "train:1", "env": [{"name": "SPOTWRIGHT_TASK", "value": "train"}]}
POD_SPEC: dict[str, Any] = {
    "restartPolicy": "Never",
    "containers": [CONTAINER],
    "nodeSelector": {"pool": "x"},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "tolerations": [{"key": "x", "operator": "Exists"}],
    "terminationGracePeriodSeconds": 30,
}
TEMPLATE = {"metadata": {"annotations": {}, "labels": {}}, "spec": POD_SPEC}
JOB: dict[str, Any] = {
    "backoffLimit": 6,
    "completions": 2,
    "parallelism": 2,
    "completionMode": "Indexed",
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
    "template": TEMPLATE,
}
RULE = {"action": "RestartJobSet", "onJobFailureReasons": ["PodFailurePolicy"], "onJobFailureMessagePatterns": [".*"]}
SPECS: dict[str, tuple[str, str, dict[str, Any]]] = {
    JOBS: ("batch/v1", "Job", JOB),
    JOBSETS: (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {
            "failurePolicy": {"maxRestarts": 3, "rules": [RULE]},
            "replicatedJobs": [{"name": "node", "replicas": 2, "template": {"spec": JOB}}],
        },
    ),
    WORKFLOWS: (
        "argoproj.io/v1alpha1",
        "Workflow",
        {
            "entrypoint": "main",
            "arguments": {"parameters": [{"name": "x", "value": "y"}]},
            "templates": [
                {
                    "name": "main",
                    "dag": {"tasks": [{"name": "one", "templateRef": {"name": "shared", "template": "t"}}]},
                },
                {"name": "run", "container": CONTAINER, "retryStrategy": {"limit": "{{inputs.parameters.x}}"}},
            ],
            "workflowTemplateRef": {"name": "shared"},
        },
    ),
    TRAINJOBS: (
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        {"runtimeRef": {"name": "torch", "kind": "ClusterTrainingRuntime"}, "trainer": {"numNodes": 2, "image": "x"}},
    ),
    MPIJOBS: (
        "kubeflow.org/v1",
        "MPIJob",
        {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": TEMPLATE},
                "Worker": {"replicas": 2, "template": TEMPLATE},
            }
        },
    ),
    PODS: ("v1", "Pod", POD_SPEC),
}
CLOSED = (PODS, JOBS)
"""Kinds whose types the API server checks in full: wrong ones come to the webhook's port alone."""


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in an object."""
    found = [path] if path else []
    if isinstance(value, dict) and any(key.startswith("@") for key in value):
        return found  # one value, which is written in short
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        found += _places(each, (*path, key))
    return found


@st.composite
def altered(draw: st.DrawFn, begin: Any, hostile: st.SearchStrategy[Any], most: int = 3) -> Any:
    """An object with hostile values in some of its places."""
    made = copy.deepcopy(begin)
    for _ in range(draw(st.integers(0, most))):
        places = _places(made)
        if not places:
            break
        *above, last = draw(st.sampled_from(places))
        inner = made
        for step in above:
            inner = inner[step]
        inner[last] = draw(hostile)
    return made


def _ended(message: str) -> dict[str, Any]:
    ended = {"exitCode": 1, "message": message, "finishedAt": at(20)}
    return {
        "phase": "Failed",
        "containerStatuses": [{"name": "main", "restartCount": 0, "state": {"terminated": ended}}],
    }


def _running(restarts: int) -> dict[str, Any]:
    status = {"name": "main", "restartCount": restarts, "state": {"running": {}}}
    return {"phase": "Running", "containerStatuses": [status]}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at(10)}
STATUSES: Sequence[dict[str, Any]] = (
    {},
    {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
    _running(0),
    _running(3000),
    _ended("\x1b[2J\x07"),
    {"phase": "Succeeded"},
)


@st.composite
def objects(draw: st.DrawFn) -> Deed:
    """An object that comes through the API server."""
    collection = draw(st.sampled_from(sorted(SPECS)))
    version, kind, spec = SPECS[collection]
    hostile = values
    if collection in CLOSED:
        hostile = st.sampled_from([each for each in (*PATHS, *QUIETS, *LARGE) if isinstance(each, str) or "@" in each])
    made: dict[str, Any] = {"apiVersion": version, "kind": kind, "metadata": draw(metadata())}
    if collection in CLOSED:
        made["spec"] = copy.deepcopy(spec)
        if collection == JOBS:
            made["spec"] |= {
                name: draw(st.sampled_from((0, 1, 2, 50, 10_000, 2_000_000_000)))
                for name in ("completions", "parallelism")
            }
            made["spec"]["template"]["metadata"]["annotations"] = draw(marks)
        else:
            made["spec"] |= draw(st.sampled_from(({}, {"nodeName": "n1"}, {"nodeName": "n2"}, {"nodeName": "../x"})))
            made["status"] = draw(st.sampled_from(STATUSES))
    else:
        made["spec"] = draw(altered(spec, hostile))
        made["status"] = draw(
            altered(
                {
                    "phase": "Running",
                    "conditions": [{"type": "Failed", "status": "True", "reason": "x", "message": "y"}],
                    "nodes": {"x": {"templateName": "run", "inputs": {"parameters": [{"name": "x", "value": "1"}]}}},
                    "storedTemplates": {"a": {"name": "run"}},
                    "restarts": 1,
                },
                hostile,
            )
        )
    operation = draw(st.sampled_from(("CREATE", "CREATE", "UPDATE")))
    return {"do": "create", "collection": collection, "made": made, "operation": operation}


@st.composite
def reviews(draw: st.DrawFn) -> Deed:
    """A request that a pod posts to the webhook: any object, in its own namespace or, forged, in the other tenant's."""
    collection, namespace = draw(st.sampled_from(sorted(SPECS))), draw(st.sampled_from(("hostile", "hostile", QUIET)))
    version, kind, spec = SPECS[collection]
    made = {"apiVersion": version, "kind": kind, "metadata": {**draw(metadata()), "namespace": namespace}, "spec": spec}
    request = {
        "uid": draw(st.sampled_from(("x", "quiet-review-2", "quiet-review-9"))),
        "operation": draw(st.sampled_from(("CREATE", "UPDATE", "DELETE"))),
        "namespace": namespace,
        "dryRun": draw(st.booleans()),
        "object": draw(altered(made, values, 4)),
        "oldObject": draw(st.one_of(st.none(), altered(made, values))),
        "options": {"fieldManager": "kubectl"},
    }
    return {"do": "review", "request": draw(altered(request, values, 1))}


bodies = st.one_of(
    st.sampled_from(
        (
            {"@": ["[", 200_000]},
            {"@": ['{"a":', 200_000]},
            {"@": ["9", 200_000]},
            {"@": [" ", 5_000_000]},
            '{"apiVersion": "admission.k8s.io/v1", "request": {"uid": 1, "operation": null, "namespace": 5, "object": []}}',
            '{"apiVersion": "admission.k8s.io/v1", "request": []}',
            "\xff\xfe",
            "",
        )
    ),
    st.text(st.characters(max_codepoint=255), max_size=60),
)
texts = st.one_of(
    st.sampled_from(
        (
            "",
            "version: 1\n",
            "policy: {default: {spot: require, pools: [gpu]}}\n",
            "pools: {gpu-spot: {capacity: on-demand}}\n",
            "pools: {gpu: {capacity: spot, provider: aks}}\npolicy: {default: {spot: prefer, pending_timeout: 1s}}\n",
            "a: &a [x, x, x, x]\n"
            + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
            "policy: &p {default: *p}\n",
            "!!python/object/apply:os.system ['true']\n",
            "? {a: b}\n: c\n",
            "policy: 2026-13-45\n",
            "pools: {x: {price: 1e400}}\n",
            "%TAG ! tag:x,2026:\n--- !y\n",
            {"@": ["[", 20_000]},
            {"@": ["a: ", 20_000]},
            {"@": ["- x\n", 250_000]},
            {"@": ["{x: ", 5_000]},
            {"@": ["pools:\n", 20_000]},
            {"@": ["#", 900_000]},
            {"@": ["policy: {tasks: {a*b*c*d*e*: {spot: never}}}\n", 200]},
        )
    ),
    st.text(max_size=80),
)


@st.composite
def configurations(draw: st.DrawFn) -> Deed:
    """The tenant's ConfigMap."""
    meta = {"name": "spotwright"}
    data = draw(
        st.one_of(st.builds(lambda text: {"spotwright.yaml": text}, texts), st.sampled_from(({}, None, {"x": "y"})))
    )
    return {
        "do": "create",
        "collection": MAPS,
        "made": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data},
    }


notices = st.one_of(
    marks,
    st.fixed_dictionaries(
        {
            "spotwright.dev/notice-id": st.sampled_from(("one", "\x1b[2J", "x" * 5000)),
            "spotwright.dev/notice-kind": st.sampled_from(("interruption", "withdrawn", "rebalance", "")),
            "spotwright.dev/notice-certain": st.sampled_from(("true", "x")),
            "spotwright.dev/notice-seconds-left": st.sampled_from(("30", "nan", "inf", "-1e308", "x", "1" * 5000)),
            "spotwright.dev/notice-reason": st.sampled_from(("x", "\x1b[2J\n", "y" * 100_000)),
        }
    ),
)
SAID = (
    "pod triggered scale-up: [{aks-gpuspot-1 0->1 (max: 10)}]",
    "pod didn't trigger scale-up: 1 max node group size reached",
    "Failed to schedule pod, all available instance types exceed limits for nodepool gpu-spot",
    "",
    "x" * 1024,
    "{" * 1024,
)


@st.composite
def events(draw: st.DrawFn) -> Deed:
    """An Event in its namespace: about nodes, pods of others, or nothing, in any component's wording."""
    about = draw(
        altered({"kind": "Node", "name": "n1", "uid": "uid--n1", "namespace": "hostile", "apiVersion": "v1"}, values, 1)
    )
    about["kind"] = draw(st.sampled_from(("Node", "Pod", "NodePool", "NodeClaim")))
    about |= draw(
        st.sampled_from(
            (
                {},
                {"name": ""},
                {"uid": "quiet-train-2", "name": "train-2", "namespace": QUIET, "kind": "Pod"},
                {"uid": "quiet-train-2", "name": "train-2", "kind": "Pod"},
                {"name": "n2"},
            )
        )
    )
    if draw(st.integers(0, 4)) == 0:
        about.pop("name", None)
    component = draw(
        st.sampled_from(("cluster-autoscaler", "karpenter", "spotwright-agent", "node-problem-detector", "kubelet", ""))
    )
    made = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": draw(st.sampled_from(NAMES)),
            "creationTimestamp": at(draw(st.integers(0, 400))),
            "annotations": draw(notices),
        },
        "involvedObject": about,
        "reason": draw(
            st.sampled_from(
                (
                    "TriggeredScaleUp",
                    "NotTriggerScaleUp",
                    "FailedScheduling",
                    "Nominated",
                    "SpotInterruptionNotice",
                    "DeletingNode",
                    "NodeNotReady",
                    "PreemptScheduled",
                    "NoCompatibleInstanceTypes",
                    "",
                )
            )
        ),
        "message": draw(st.sampled_from(SAID)),
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": at(10),
        "lastTimestamp": draw(st.sampled_from((at(10), at(130), "9999-12-31T23:59:59Z", None, "x"))),
        "type": "Normal",
    }
    return {"do": "create", "collection": EVENTS, "made": made}


logs = st.builds(
    lambda pod, text: {"do": "log", "pod": pod, "text": text},
    st.sampled_from(NAMES),
    st.one_of(
        st.sampled_from(
            (
                {"@": ["x", 3_000_000]},
                {"@": ["\n", 500_000]},
                {"@": ["2027-01-15T08:00:04.000000001Z \x1b[2J\x00\xff\n", 2000]},
                "9999-99-99T99:99:99Z x\n",
                "2027-01-15T08:00:04.000000001Z",
                "\xff\xfe\x00",
                "",
            )
        ),
        st.text(st.characters(max_codepoint=255), max_size=60),
    ),
)
RUN = "quiet.train-11111111"
requests = st.one_of(
    st.builds(
        lambda path, by: {"do": "read", "path": path, "authorization": by},
        st.sampled_from(
            (
                f"/v1/runs/{RUN}/log?task=train&attempt=1",
                f"/v1/runs/{RUN}/log?task=train&attempt=x",
                f"/v1/runs/{RUN}/log?task=train&attempt=1&offset=99999999999999999999&at_most=-1",
                f"/v1/runs/{RUN}/log?task=../../hostile&attempt=1",
                f"/v1/runs/hostile.{RUN}/log?task=train&attempt=1",
                f"/v1/runs/%2e%2e%2f{RUN}/log?task=..&attempt=1",
                f"/v1/runs/hostile.x%2f..%2f..%2fquiet%2f{RUN}/log?task=train&attempt=1",
                "/v1/runs/../runs/x/log?task=%00",
                "/v1/runs/quiet/log?attempt=1",
                "/v1/runs/.%00/log?attempt=1",
                "/v1/runs/hostile.%00%ff/log?task=%00",
                "/v1/runs/hostile.x/log?task=" + "x" * 5000,
                "/v1/runs/%00/log?task=%00&attempt=0",
                "/v1/runs/" + "x" * 5000 + "/log",
                "/v1/runs",
                "/healthz",
                "/%ff",
            )
        ),
        st.sampled_from(("Bearer hostile-token", "Bearer x", "Basic x", "", "Bearer " + "x" * 5000)),
    ),
    st.builds(
        lambda path: {"do": "metrics", "path": path}, st.sampled_from(("/metrics", "/", "/metrics?x=" + "y" * 5000))
    ),
)
removals = st.builds(
    lambda collection, name: {"do": "delete", "collection": collection, "name": name},
    st.sampled_from((*sorted(SPECS), MAPS)),
    st.sampled_from((*NAMES, "spotwright")),
)
deeds: st.SearchStrategy[Deed] = st.one_of(
    objects(),
    objects(),
    objects(),
    reviews(),
    st.builds(lambda body: {"do": "post", "body": body}, bodies),
    configurations(),
    events(),
    logs,
    requests,
    removals,
)
days = st.lists(st.tuples(st.integers(0, STEPS - 1), deeds), min_size=1, max_size=8)
"""A day of the hostile tenant: deeds, each with the step of the quiet tenant after which it is done."""
