"""The real controller process on a cluster whose nodes die: the rung of the next attempt, and the end where a budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.budget_trials.orders import Order
from tests.cluster.budget_trials.trial import KINDS, Result, run_orders
from tests.cluster.live.idle_autoscaler import idle_autoscaler
from tests.cluster.live.kube import Kube, Object, job
from tests.cluster.live.replicas import Controllers, configure, controllers
from tests.cluster.recorder.api import Api

from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause

pytestmark = pytest.mark.cluster

CONFIGURATION = """\
version: 1
target: {kubernetes: "1.35"}
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 1000, memory: 8Gi}}
  system: {capacity: on-demand, provider: aks, node: {cpu: 1000, memory: 8Gi}}
policy:
  default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 1, errors: {retries: 0}}
"""
FOLLOWED = 240.0  # seconds until a lost node, its pod and the next one are through, on a busy machine
QUIET = 15.0  # seconds in which a workload that is over makes no pod


@pytest.fixture
def controller(bed: Settings, kube: Kube, tmp_path: Path) -> Iterator[Controllers]:
    with controllers(bed, kube, tmp_path) as made:
        yield made


def pool_of(kube: Kube, pod: Object) -> str:
    labels: dict[str, str] = (kube.get("node", pod["spec"]["nodeName"]) or {})["metadata"]["labels"]
    return labels["agentpool"]


def test_after_a_power_cut_the_next_attempt_is_on_on_demand(
    kube: Kube, controller: Controllers, namespace: str, faults: Faults
) -> None:
    configure(kube, namespace, CONFIGURATION)
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
        for key in ("unreachable", "not-ready")
    ]
    script = 'if [ "$SPOTWRIGHT_ATTEMPT" = 1 ]; then sleep 600; fi'
    spec = {"restartPolicy": "Never", "tolerations": tolerations, "containers": [kube.container(script)]}
    train = job("train", namespace, spec)
    del train["spec"]["backoffLimit"]  # a limit of the user's would stay
    kube.apply(train)
    first = kube.wait(
        lambda: next((pod for pod in kube.list("pods", namespace) if pod["status"]["phase"] == "Running"), None),
        "the first attempt runs",
        FOLLOWED,
    )
    assert pool_of(kube, first) == "spot"
    node = int(first["spec"]["nodeName"].removeprefix("n"))
    faults.cut_power(node)
    kube.wait(
        lambda: "deletionTimestamp" in kube.pod(first["metadata"]["name"], namespace)["metadata"],
        "the lost pod is marked",
        FOLLOWED,
    )
    faults.delete(node)  # as a cloud does with a machine that is gone
    run = kube.wait(lambda: ended(controller, namespace, "train"), "the run has ended", FOLLOWED)
    (task,) = run.tasks.values()
    assert [attempt.cause for attempt in task.attempts] in (
        [Cause.LOST, Cause.SUCCEEDED],
        [Cause.INTERRUPTED, Cause.SUCCEEDED],
    )
    assert [attempt.pool for attempt in task.attempts] == ["spot", "system"]
    second = next(pod for pod in kube.list("pods", namespace) if pod["metadata"]["uid"] in task.attempts[1].key)
    annotations = second["metadata"]["annotations"]
    assert (annotations["spotwright.dev/attempt"], annotations["spotwright.dev/rung"]) == ("2", "system")
    assert annotations["spotwright.dev/why"] == "interruption 1 of 3: falls back to system"


def ended(controller: Controllers, namespace: str, name: str) -> RunState | None:
    run = controller.runs().get((namespace, name))
    return run if run is not None and run.finished_at is not None else None


@pytest.fixture(scope="module")
def spent(bed: Settings, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Result]:
    """One workload of each kind that spends its errors, and one that spends its interruptions."""
    orders = [Order(2, 0, "k"), Order(2, 0, "iii")]
    with controllers(bed, kube, tmp_path_factory.mktemp("spent")) as made:
        results = run_orders(Api(bed.kubeconfig), made, orders, watch_for=QUIET)
    return {(each.kind, each.endings): each for each in results}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("endings", "causes", "said"),
    [
        ("k", ["failed"], "no retry is left (errors.retries is 0) (attempt 1)"),
        ("iii", ["interrupted"] * 3, "interrupted 3 times, interruptions.max is 2 (attempts 1, 2, 3)"),
    ],
)
def test_a_refusal_ends_each_kind_for_good(
    spent: dict[tuple[str, str], Result], kind: str, endings: str, causes: list[str], said: str
) -> None:
    result = spent[kind, endings]
    assert (result.end, list(result.causes)) == ("failed", causes)
    assert result.later == 0
    if kind == "kfp" and endings == "k":  # KFP's launcher makes 1 of it, which is no interruption for certain
        assert result.refusal == ""
    else:
        assert result.refusal.endswith(said)


TASKS, TIMES, FALL_BACK = 4, 50, 12
KILLED_AT = 8
AROUND = 5.0  # seconds: a review that fails began so long before or after the kill at most, on a busy machine
CATCHING_UP = 5.0  # seconds after it holds the Lease in which a new leader reads what there is, on a busy machine
QUICK = f"""\
version: 1
target: {{kubernetes: "1.35"}}
pools:
  spot-a: {{capacity: spot, provider: aks, labels: {{pool: a}}}}
  spot-b: {{capacity: spot, provider: aks, labels: {{pool: b}}}}
  regular: {{capacity: on-demand, provider: aks, labels: {{pool: r}}}}
policy:
  default:
    spot: prefer
    ladder: [spot-a, spot-b, regular]
    interruptions: {{max: 90}}
    fall_back_after: {FALL_BACK}
    timeout: 1h  # without it a Job counts its interruptions, and its pods are sent to no single pool
"""


class Made(NamedTuple):
    """A pod that was made again, and when."""

    pod: Object
    at: float

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    def mark(self, name: str) -> str:
        return str(self.pod["metadata"]["annotations"].get(f"spotwright.dev/{name}", ""))


def test_200_recreations_with_two_replicas_of_which_the_leader_is_killed_get_the_right_or_the_last_certain_rung(
    bed: Settings, kube: Kube, namespace: str, tmp_path: Path, measured: Callable[[str, float], None]
) -> None:
    configure(kube, namespace, QUICK)
    api = Api(bed.kubeconfig)
    killed: list[float] = []
    with idle_autoscaler(kube, QUICK), controllers(bed, kube, tmp_path, replicas=2) as made:
        jobs = [
            api.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", managed_job(f"quick-{number}"))
            for number in range(TASKS)
        ]

        def recreate(owner: Object) -> list[Made]:
            pods = []
            for number in range(1, TIMES + 1):
                pods.append(recreated(api, namespace, owner))
                if owner is jobs[0] and number == KILLED_AT:
                    leader = made.leader()
                    killed.append(time.time())
                    made.kill(leader)
            return pods

        with ThreadPoolExecutor(TASKS) as threads:
            stories = list(threads.map(recreate, jobs))
        answered = [made.log(number).count("pod is admitted") for number in range(2)]
        (survivor,) = {number for number, _ in made.processes}
        until = moment_of(made.log(survivor), "this replica records now")
        runs = made.runs()
    assert all(answered), f"one replica answered alone: {answered}"
    measured("without a leader, after it was killed", until - killed[0])
    late = 0
    for owner, pods in zip(jobs, stories, strict=True):
        (task,) = runs[namespace, owner["metadata"]["name"]].tasks.values()
        late += check_rungs(
            pods, {attempt.key.partition("/")[0] for attempt in task.attempts}, killed[0], until + CATCHING_UP
        )
    measured("pods of 200 on the last certain rung beside a leader (a number)", late)


def check_rungs(pods: Sequence[Made], recorded: AbstractSet[str], killed: float, until: float) -> int:
    """Each pod has its number, and the rung that follows from the records, or the last certain one.

    Returns how many had the latter though a replica was recording: their review began less than half a second before the end
    of the previous attempt was recorded.
    """
    lost = [each for each in pods if not each.mark("attempt")]  # its review was with the replica that was killed
    assert len(lost) <= 1
    assert all(abs(each.at - killed) < AROUND for each in lost), [each.at - killed for each in lost]
    numbers = [int(each.mark("attempt")) for each in pods if each not in lost]
    assert numbers == list(range(1, len(numbers) + 1)) or (lost and numbers == sorted(set(numbers)))
    before = late = 0
    for each in pods:
        rung = each.mark("rung")
        if each not in lost and rung != rung_after(before):
            assert rung in {rung_after(fewer) for fewer in range(before)}, (
                f"attempt {each.mark('attempt')} is on {rung}"
            )
            late += not killed - 1 <= each.at <= until
        before += each.uid in recorded
    assert before >= FALL_BACK
    assert pods[-1].mark("rung") == "regular"
    return late


def rung_after(interruptions: int) -> str:
    """The pool of the next attempt: both spot pools in turn, then on-demand."""
    return "regular" if interruptions >= FALL_BACK else "spot-b" if interruptions % 2 else "spot-a"


def moment_of(log: str, words: str) -> float:
    """When a line with these words was written, in Unix seconds."""
    line = next(line for line in reversed(log.splitlines()) if words in line)
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()


def managed_job(name: str) -> Object:
    """A Job that Kubernetes' own controller leaves alone, so that the test makes its pods, as quickly as it likes."""
    template = {
        "spec": {
            "restartPolicy": "Never",
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "localhost/busybox:1", "command": ["true"]}],
        }
    }
    spec = {"managedBy": "testbed.spotwright.dev/test", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def recreated(api: Api, namespace: str, owner: Object) -> Made:
    """Make one pod of the Job, and end it at once as the pod garbage collector does when a Node is gone."""
    template = owner["spec"]["template"]
    named = {key: owner["metadata"][key] for key in ("name", "uid")}
    reference = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, **named}
    metadata = {**template["metadata"], "generateName": f"{named['name']}-", "ownerReferences": [reference]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    at = time.time()
    new = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    pod: Object = api.request("POST", pods, new)
    name = pod["metadata"]["name"]
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    gone["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    api.patch(f"{pods}/{name}/status", {"status": {"phase": "Failed", "conditions": [gone]}})
    api.request("DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 0})
    return Made(pod, at)
