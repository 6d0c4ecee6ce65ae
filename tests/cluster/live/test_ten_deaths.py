"""Ten ways to die on a real cluster, each of one kind of workload: the controller records the cause that people wrote down.

`make cluster-record` lets every kind die every death, by hand; these are the ones that CI looks at each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pytest
from scripts.make_recorded_deaths import expected_causes
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.conftest import Measured
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.kube import Kube, Object, job, pod, pod_spec
from tests.cluster.live.workloads import make, selector_of

from spotwright.engine.state import AttemptState
from spotwright.model.attempts import Cause

pytestmark = [pytest.mark.cluster, pytest.mark.cluster_ci]

STRUCK, OTHER = 2, 3  # two spot nodes
STARTS = 180.0  # seconds until pods run, on a busy machine
RECORDED = 180.0  # seconds until the end of a pod is recorded; a deleted Node is noticed within a minute
WORK = "trap 'exit 143' TERM; while :; do sleep 0.2; done"
EXPECTED = expected_causes()
RECORDED_AS = {"workflow": "argo"}  # the name of a kind in the recordings, where it has another one


class Strike(NamedTuple):
    """The target of a death: the pods of one workload, and their node."""

    kube: Kube
    faults: Faults
    namespace: str
    pods: Sequence[Object]

    def each(self, *command: str) -> None:
        """Run kubectl with a command and the name of each pod."""
        for each in self.pods:
            self.kube.run(*command, "pod", each["metadata"]["name"], "-n", self.namespace)

    def wait_until_given_up(self) -> None:
        """Wait until Kubernetes has given up the pods of a node that does not report."""
        names = {each["metadata"]["name"] for each in self.pods}

        def are_marked() -> bool:
            pods = [each for each in self.kube.list("pods", self.namespace) if each["metadata"]["name"] in names]
            return all("deletionTimestamp" in each["metadata"] for each in pods)

        self.kube.wait(are_marked, "Kubernetes has given up the pods", 60)


def cut_power(strike: Strike) -> None:
    """The machine goes for good; once Kubernetes has noticed it, the cloud's controller deletes the Node object."""
    strike.faults.cut_power(STRUCK)
    strike.wait_until_given_up()
    strike.faults.delete(STRUCK)


def cut_network(strike: Strike) -> None:
    strike.faults.unplug(STRUCK)
    strike.wait_until_given_up()
    strike.faults.plug(STRUCK)


def preempt(strike: Strike) -> None:
    """A pod of a higher priority asks for all that the node has."""
    processors = (strike.kube.get("node", f"n{STRUCK}") or {})["status"]["allocatable"]["cpu"]
    container = {**strike.kube.container("true"), "resources": {"requests": {"cpu": f"{int(processors) * 1000 - 5}m"}}}
    spec = pod_spec(container, f"n{STRUCK}", priorityClassName=strike.namespace)
    meta = {"name": strike.namespace}
    strike.kube.apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 1000},
        pod("urgent", strike.namespace, spec),
    )


DEATHS: dict[tuple[str, str], Callable[[Strike], object]] = {
    ("power-cut", "job"): cut_power,
    ("network-cut", "jobset"): cut_network,
    ("node-shutdown", "workflow"): lambda strike: strike.faults.shut_down(STRUCK),
    ("node-deleted", "trainjob"): lambda strike: strike.faults.delete(STRUCK),
    ("drain-exit-143", "trainjob"): lambda strike: strike.faults.drain(STRUCK),
    ("taint", "jobset"): lambda strike: strike.faults.taint(STRUCK),
    ("preemption", "job"): preempt,
    ("delete-exit-143", "workflow"): lambda strike: strike.each("delete", "--wait=false"),
    ("delete-forced", "job"): lambda strike: strike.each("delete", "--grace-period=0", "--force"),
}
"""By the name of the death in `tests/cluster/expected_causes.yaml`, and the kind of workload that dies it."""


@pytest.fixture(scope="module")
def leader(kube: Kube, bed: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """One controller for all deaths."""
    with controller(kube, bed, tmp_path_factory.mktemp("deaths"), configuration("10m")) as made:
        yield made


@pytest.fixture
def one_spot_node(kube: Kube, faults: Faults) -> Iterator[Faults]:
    """Faults of the one node on which spot pods can run until it is struck."""
    kube.run("cordon", f"n{OTHER}")
    yield faults
    kube.run("uncordon", f"n{OTHER}")


@pytest.fixture
def priorities(kube: Kube, namespace: str) -> Iterator[None]:
    """The priority class that a death makes has the name of the namespace."""
    yield
    kube.run("delete", "priorityclass", namespace, "--ignore-not-found")


@pytest.mark.usefixtures("priorities")
@pytest.mark.parametrize(("death", "kind"), DEATHS)
def test_a_death_has_the_cause_that_people_wrote_down(
    kube: Kube, leader: Controller, one_spot_node: Faults, namespace: str, measured: Measured, death: str, kind: str
) -> None:
    leader.enable(namespace)
    if not make(kube, kind, namespace, WORK):
        pytest.skip(f"this cluster has no {kind}s")
    pods = kube.wait(partial(running, kube, namespace, kind), f"the pods of the {kind} run", STARTS)
    kube.run("uncordon", f"n{OTHER}")
    struck = time.monotonic()
    DEATHS[death, kind](Strike(kube, one_spot_node, namespace, pods))
    ended = kube.wait(partial(first_attempts, leader, kind, len(pods)), "the ends are recorded", RECORDED)
    measured(f"{death} of a {kind}: until its cause is recorded", time.monotonic() - struck)
    assert {attempt.cause for attempt in ended} <= allowed(death, kind), [attempt.cause_why for attempt in ended]


def test_memory_that_runs_out_is_the_cause_where_the_limit_is_the_container_s(
    kube: Kube, leader: Controller, namespace: str
) -> None:
    leader.enable(namespace)
    limited = {**kube.container("sleep 1; exec tail /dev/zero"), "resources": {"limits": {"memory": "40Mi"}}}
    greedy = job("greedy", namespace, pod_spec(limited))
    kube.apply(greedy)
    (ended,) = kube.wait(partial(first_attempts, leader, "greedy", 1), "the end is recorded", RECORDED)
    assert ended.cause in allowed("out-of-memory", "job"), ended.cause_why


def running(kube: Kube, namespace: str, kind: str) -> list[Object]:
    """The pods of a workload once all of them run on the node that will be struck."""
    pods = kube.list("pods", namespace, selector_of(kind))
    wanted = 1 if kind in ("job", "workflow") else 2
    here = [each for each in pods if each["spec"].get("nodeName") == f"n{STRUCK}"]
    return here if len(here) == wanted and all(each["status"].get("phase") == "Running" for each in here) else []


def first_attempts(leader: Controller, name: str, count: int) -> list[AttemptState]:
    """The first attempt of each pod of a workload, once all their ends have a cause."""
    ended = [attempt for attempt in leader.attempts(name) if attempt.number == 1 and attempt.cause]
    return ended if len(ended) >= count else []


def allowed(death: str, kind: str) -> set[Cause]:
    """The causes that a death of this kind may have: a pod of a silent node is judged before its end or after it."""
    causes, recorded = EXPECTED[death], RECORDED_AS.get(kind, kind)
    special = ((f"{recorded} {moment}", recorded, moment, "all") for moment in ("lost", "ended"))
    return {next(causes[which] for which in each if which in causes).cause for each in special}
