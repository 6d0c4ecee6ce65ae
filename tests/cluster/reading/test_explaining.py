"""Why a pod is where it is: from the run's records and the API server's state, with the settings that are not enforced."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.reading.served import Printed, Served, serving, spotwright
from tests.cluster.reading.waiting_pods import IGNORES, waiting_pod
from tests.cluster.watching.watched_cluster import CONFIG, Cluster
from tests.cluster.watching.watched_objects import SPOT, done, job, node, pod

from spotwright.cluster.descheduler import why_not_moved
from spotwright.cluster.recorded_runs import RecordedRuns
from spotwright.cluster.unavailable_pools import definition_of
from spotwright.cluster.view import SeenPod
from spotwright.config import from_mapping
from spotwright.engine.events import PodStuckTerminating

TRAIN = job(backoffLimit=3)


@pytest.fixture
def waiting(tmp_path: Path) -> dict[str, Any]:
    """A Job whose first pod lost its node and whose second waits; returned is the second."""
    cluster = Cluster(tmp_path / "state")
    cluster.look(TRAIN, pod("one", TRAIN, node="n1", phase="Running"))
    cluster.view.put_node(node("n1", ready="Unknown", **SPOT))
    cut = pod("one", TRAIN, node="n1", phase="Running", deletionTimestamp="2027-01-15T08:00:40Z")
    second = pod("two", TRAIN, made=50)
    cluster.look(TRAIN, cut, second)
    cluster.store.close()
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}
    second["status"]["conditions"] = [condition]
    return second


def explain(certificates: Path, state: Path, shown: dict[str, Any], *words: str) -> Printed:
    with serving(certificates, state) as served:
        served.kubernetes.objects = {
            "/api/v1/namespaces/team-a/pods/two": shown,
            "/api/v1/namespaces/team-a/pods": {"items": [shown]},
            "/apis/batch/v1/namespaces/team-a/jobs/train": TRAIN,
        }
        return spotwright("explain", *words, "-n", "team-a", *served.options("admin"))


def test_a_pod_that_waits_is_explained(certificates: Path, tmp_path: Path, waiting: dict[str, Any]) -> None:
    told = explain(certificates, tmp_path / "state", waiting, "pod/two")
    assert told == Printed(0, EXPECTED, "")


EXPECTED = """\
Pod team-a/two, run team-a.train-job-uid

pod two: attempt 2 of task train
  waits for a node; kube-scheduler says: 0/3 nodes are available: 3 Insufficient cpu.
  rung 1 of 1: gpu
  spent: 1 of 10 interruptions, 0 of 3 errors
  attempt 1 in gpu-spot was lost: its node stopped reporting; then interruption 1 of 10: again on gpu
  not enforced: the rung: the webhook did not admit this pod, so only its own affinity decides where it may run
  not enforced: the budgets: they are counted, but pods are not refused when one is spent
"""


def test_a_deadline_of_its_policy_is_named_as_one_that_nothing_keeps(
    certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIG, "policy", {"default": {"spot": "prefer", "deadline": "8h"}})
    cluster = Cluster(tmp_path / "state")
    alive = pod("two", TRAIN, node="n1", phase="Running")
    cluster.look(TRAIN, alive)
    cluster.store.close()
    told = explain(certificates, tmp_path / "state", alive, "pod/two")
    [line] = [each for each in told.out.splitlines() if "deadline" in each]
    assert "not enforced: deadline (" in line
    assert "has no effect on a cluster" in line


def test_a_job_is_explained_by_its_live_pods(certificates: Path, tmp_path: Path, waiting: dict[str, Any]) -> None:
    annotations = {"spotwright.dev/attempt": "2", "spotwright.dev/rung": "gpu-spot", "spotwright.dev/why": "because"}
    waiting["metadata"]["annotations"] = annotations
    told = explain(certificates, tmp_path / "state", waiting, "job/train", "--json")
    (explained,) = json.loads(told.out)["objects"]
    assert (explained["object"], explained["run"]) == ("Job team-a/train", "team-a.train-job-uid")
    (shown,) = explained["pods"]
    assert (shown["name"], shown["attempt"], shown["status"]) == ("two", 2, "waiting")
    assert shown["webhook"] == {"attempt": "2", "rung": "gpu-spot", "why": "because"}
    assert shown["not_enforced"] == [
        "the rung: the pod has no required node affinity, so the rung is only a preference"
    ]


@pytest.mark.parametrize("name", ["team-a.train-job-uid", "last"])
def test_a_run_is_explained_by_its_live_pods(
    certificates: Path, tmp_path: Path, waiting: dict[str, Any], name: str
) -> None:
    told = explain(certificates, tmp_path / "state", waiting, name)
    assert told == Printed(0, EXPECTED.replace("Pod team-a/two", "Job team-a/train"), "")


def test_a_run_of_kubeflow_pipelines_is_explained_by_its_id_there(certificates: Path, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "state")
    meta = {"name": "digits", "namespace": "team-a", "uid": "flow-uid", "creationTimestamp": "2027-01-15T08:00:00Z"}
    flow: dict[str, Any] = {"kind": "Workflow", "metadata": {**meta, "labels": {"pipeline/runid": "0b1c-7"}}}
    flow |= {"spec": {}, "status": {}}
    step = pod(
        "step", flow, node="n1", phase="Running", annotations={"workflows.argoproj.io/node-name": "digits.train"}
    )
    cluster.look(flow, step)
    cluster.store.close()
    with serving(certificates, tmp_path / "state") as served:
        served.kubernetes.objects = {"/api/v1/namespaces/team-a/pods": {"items": [step]}}
        told = spotwright("explain", "0b1c-7", *served.options("admin"))
    assert told.code == 0
    assert told.out.startswith("Workflow team-a/digits, run team-a.digits-")
    assert "pod step: attempt 1 of task" in told.out


def test_a_run_that_is_over_says_how(certificates: Path, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "state")
    cluster.look(TRAIN, pod("one", TRAIN, node="n1", phase="Running"))
    complete = job(backoffLimit=3, status=done())
    cluster.look(complete, pod("one", complete, node="n1", phase="Succeeded", exit_code=0))
    cluster.store.close()
    with serving(certificates, tmp_path / "state") as served:
        served.kubernetes.objects = {"/api/v1/namespaces/team-a/pods": {"items": []}}
        told = spotwright("explain", "last", *served.options("admin"))
    name = "team-a.train-job-uid"
    assert told.out.splitlines()[-1] == (
        f"no attempt waits or runs now: the run has succeeded; spotwright show {name} --cluster lists all attempts"
    )


def explained(certificates: Path, state: Path, train: dict[str, Any], shown: dict[str, Any], **more: Any) -> Printed:
    with serving(certificates, state) as served:
        jobs = {"/apis/batch/v1/namespaces/team-a/jobs/train": train}
        served.kubernetes.objects = {"/api/v1/namespaces/team-a/pods/two": shown, **jobs, **more}
        return spotwright("explain", "pod/two", "-n", "team-a", *served.options("admin"))


def test_a_pod_that_waits_where_moving_is_free_tells_when_and_where_to(certificates: Path, tmp_path: Path) -> None:
    train = job(podFailurePolicy=IGNORES)
    made = waiting_pod(tmp_path, train, **{"spotwright.dev/rung": "gpu-spot"})
    told = explained(certificates, tmp_path / "state", train, made)
    assert re.search(r"will be evicted at \d\d:\d\d:\d\d; the next pod waits for a node of gpu\n", told.out), told


def test_a_pod_that_waits_where_moving_would_cost_tells_why_it_stays(certificates: Path, tmp_path: Path) -> None:
    train = job(backoffLimit=3)
    made = waiting_pod(tmp_path, train, **{"spotwright.dev/rung": "gpu-spot"})
    told = explained(certificates, tmp_path / "state", train, made)
    assert "stays there: its Job would count it against backoffLimit 3" in told.out, told


def test_a_queued_training_job_waits_for_kueue_in_every_answer(certificates: Path, tmp_path: Path) -> None:
    queue = {"kueue.x-k8s.io/queue-name": "team-a"}
    version = "kubeflow.org/v1"
    train = {**job(), "apiVersion": version, "kind": "PyTorchJob"}
    train["metadata"] = {**train["metadata"], "labels": queue}
    made = waiting_pod(tmp_path, train, **{"spotwright.dev/rung": "gpu-spot"})
    made["metadata"]["ownerReferences"][0]["apiVersion"] = version
    path = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs/train"
    told = explained(certificates, tmp_path / "state", {}, made, **{path: train})
    answer = why_not_moved(made, [train], is_admitted=True)
    assert answer == "Kueue chooses its flavor, and with it its nodes"
    assert f"stays there: {answer}" in " ".join(told.out.split()), told


def test_a_silent_node_is_named_with_the_commands_that_free_it(certificates: Path, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "state")
    made = pod("two", TRAIN, node="n1", phase="Running")
    cluster.look(TRAIN, made)
    cluster.store.close()
    silent = node("n1", ready="Unknown", **SPOT)
    silent["status"]["conditions"][0]["lastTransitionTime"] = "2027-01-15T08:00:20Z"
    told = explained(certificates, tmp_path / "state", TRAIN, made, **{"/api/v1/nodes/n1": silent})
    words = " ".join(told.out.split())
    assert re.search(
        r"node n1 does not report since \d\d:\d\d:20; if its machine is gone, free it by one of:", words
    ), told
    assert (
        "kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute kubectl delete node n1"
        in words
    )
    told = explained(certificates, tmp_path / "state", TRAIN, made)
    assert "the Node object n1 was deleted" in told.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pod/gone", "Pod gone is no longer in namespace team-a"),
        ("two", "no run 'two' in namespace team-a"),
        ("two", "name an object as KIND/NAME, with one of the kinds pod, experiment, jaxjob, job, jobset, mpijob"),
        ("deployment/web", "expected the name of a run, or KIND/NAME with one of the kinds pod, experiment"),
    ],
)
def test_an_object_that_cannot_be_explained_is_named(served: Served, words: str, message: str) -> None:
    told = spotwright("explain", words, "-n", "team-a", *served.options("admin"))
    assert (told.code, told.out) == (2, "")
    assert message in told.err


def test_a_pod_whose_volume_cannot_be_mounted_is_explained_by_its_events(
    certificates: Path, tmp_path: Path, waiting: dict[str, Any]
) -> None:
    waiting["spec"]["nodeName"] = "n2"
    why = 'FailedMount: MountVolume.SetUp failed for volume "data" : secret "data" not found'
    reason, _, message = why.partition(": ")
    event = {"type": "Warning", "reason": reason, "message": message, "lastTimestamp": "2027-01-15T08:02:00Z"}
    with serving(certificates, tmp_path / "state") as served:
        served.kubernetes.objects = {
            "/api/v1/namespaces/team-a/pods/two": waiting,
            "/apis/batch/v1/namespaces/team-a/jobs/train": TRAIN,
            "/api/v1/namespaces/team-a/events": {"items": [event]},
        }
        told = spotwright("explain", "pod/two", "-n", "team-a", *served.options("admin"))
    assert "has not started on node n2" in told.out
    assert why in " ".join(told.out.split())


def test_the_pools_that_are_left_out_are_told_with_until_when(
    certificates: Path, tmp_path: Path, waiting: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    keys = {name: definition_of(pool) for name, pool in from_mapping(CONFIG).pools.items()}
    pauses = [
        {"key": keys["gpu-spot"], "pool": "gpu-spot", "since": now, "until": now + 600, "times": 2},
        {"key": keys["gpu"], "pool": "gpu", "since": now, "until": now + 600, "times": 1, "namespace": "another-team"},
        {"key": keys["gpu"], "pool": "gpu", "since": now - 600, "until": now - 300, "times": 1},
        {"key": "of another pool", "pool": "others", "since": now, "until": now + 600, "times": 1},
    ]
    monkeypatch.setattr(RecordedRuns, "look_at_pools", lambda _: pauses)
    told = explain(certificates, tmp_path / "state", waiting, "job/train")
    pattern = r"\npool gpu-spot is left out until \d\d:\d\d:\d\d: attempts waited in vain for a node of it, 2 times in a row\n"
    assert re.search(pattern, told.out), told.out
    assert told.out.count(" is left out until ") == 1
    found = json.loads(explain(certificates, tmp_path / "state", waiting, "job/train", "--json").out)["objects"][0]
    assert [(one["pool"], one["times"]) for one in found["left_out"]] == [("gpu-spot", 2)]


def test_a_pod_on_a_node_of_which_nobody_knows_since_when_it_is_silent_is_explained(
    certificates: Path, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "state")
    made = pod("two", TRAIN, node="n1", phase="Running")
    cluster.look(TRAIN, made)
    (run,) = cluster.store.runs.values()
    run.add(PodStuckTerminating(cluster.now, "train", 1, node="n1"))
    run.commit()
    cluster.store.close()
    told = explained_with_pods_alone(certificates, tmp_path / "state", made, "pod/two")
    assert told.code == 0, told
    assert "node n1 does not report; if its machine is gone, free it by one of:" in told.out


OTHERS = (
    "/apis/",
    "/api/v1/nodes",
    "/api/v1/namespaces/kube-system",
    "/api/v1/namespaces/team-a/events",
    "/api/v1/namespaces/team-a/pods$",
)
"""The limits of a reader who may only get pods and read records."""


def explained_with_pods_alone(certificates: Path, state: Path, made: dict[str, Any], *words: str) -> Printed:
    with serving(certificates, state) as served:
        name = made["metadata"]["name"]
        served.kubernetes.objects = {f"/api/v1/namespaces/team-a/pods/{name}": made}
        served.kubernetes.forbidden = OTHERS
        return spotwright("explain", *words, "-n", "team-a", *served.options("admin"))


@pytest.mark.parametrize(
    "kinds", [("Job",), ("Job", "JobSet"), ("Job", "JobSet", "TrainJob"), ("Workflow",)], ids="-".join
)
@pytest.mark.parametrize("by", ["object", "pod", "run"])
def test_to_get_pods_is_enough_to_explain_them(
    certificates: Path, tmp_path: Path, kinds: tuple[str, ...], by: str
) -> None:
    names = ["fit-node-0" if kind == "Job" and len(kinds) > 1 else "fit" for kind in kinds]
    owners = [{**job(name, uid=f"uid-{kind}"), "kind": kind} for name, kind in zip(names, kinds, strict=True)]
    labels = {"jobset.sigs.k8s.io/jobset-name": "fit"} if "JobSet" in kinds else {}
    made = pod("one", owners[0], node="n1", phase="Running", labels=labels)
    cluster = Cluster(tmp_path / "state")
    cluster.look_at([SeenPod(made, tuple(owners))], owners[-1])
    (run,) = cluster.store.runs.values()
    words = {"object": f"{kinds[-1].lower()}/fit", "pod": "pod/one", "run": run.folder.name}[by]
    cluster.store.close()
    told = explained_with_pods_alone(certificates, tmp_path / "state", made, words)
    assert told.code == 0, told
    assert "pod one: attempt 1 of task" in told.out
    assert "runs on node n1 in pool gpu-spot" in told.out
    assert "you may not get nodes" in told.out
    assert (f"you may not get {kinds[-1].lower()}s in namespace team-a" in told.out) == (by == "object")


def test_of_a_workload_without_a_run_it_is_said_what_is_watched_or_that_this_is_not_known(
    certificates: Path, tmp_path: Path
) -> None:
    place = "/api/v1/namespaces/spotwright/configmaps/spotwright-reading"
    watched = {"namespaces": {"team-a": "uid-team-a"}, "kinds": {"Job": "watched"}}
    answers = {
        "had no pod with a policy while the controller watched": {"data": {"watched.json": json.dumps(watched)}},
        "does not serve namespace team-a": {"data": {"watched.json": json.dumps({**watched, "namespaces": {}})}},
        "has no entry for the recorder; check that it runs": {"data": {"ca.crt": "x"}},
    }
    with serving(certificates) as served:
        options = [word for word in served.options("admin") if word not in ("--controller", served.url)]

        def told() -> str:
            return " ".join(spotwright("explain", "job/train", "-n", "team-a", *options).out.split())

        for words, shown in answers.items():
            served.kubernetes.objects = {"/apis/batch/v1/namespaces/team-a/jobs/train": TRAIN, place: shown}
            assert words in told()
        served.kubernetes.forbidden = (place,)
        assert "cannot tell what the controller watches: you may not get ConfigMap spotwright-reading in" in told()
