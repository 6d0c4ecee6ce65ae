"""Numbers of attempts on a real API server: two replicas, bursts, an administrator's edit, and the end of their workload."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import IO, Any

import pytest
import yaml
from tests.cluster.chart.rendered import CHART
from tests.cluster.conftest import Measured
from tests.cluster.live.kube import Kube

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.attempt_numbers import Asking, Given, Numbers, Slot, Wait
from spotwright.cluster.task_objects import WORKLOAD_LABEL

pytestmark = pytest.mark.cluster


@pytest.fixture
def root(kube: Kube, namespace: str) -> dict[str, Any]:
    """A suspended Job, and the kind."""
    kube.apply(yaml.safe_load((CHART / "crds" / "spotcounter.yaml").read_text(encoding="utf-8")))
    kube.run("wait", "--for=condition=Established", "crd/spotcounters.spotwright.dev", "--timeout=60s")
    template = {"spec": {"restartPolicy": "Never", "containers": [kube.container("true")]}}
    meta = {"name": "train", "namespace": namespace}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"suspend": True, "template": template}}
    kube.apply(job)
    found = kube.get("job", "train", namespace)
    assert found is not None
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**meta, "uid": found["metadata"]["uid"]}}


def two_replicas(kube: Kube, root: dict[str, Any], reviews: int, *, slots: int = 1, at_once: bool = True) -> list[Any]:
    """The numbers of the reviews of two processes that begin at the same time."""
    given = {"kubeconfig": str(kube.kubeconfig), "root": root, "path": "train", "slots": slots}
    line = json.dumps({**given, "reviews": reviews, "at_once": at_once}) + "\n"
    command = [sys.executable, "-m", "tests.cluster.live.numbers_replica"]
    with contextlib.ExitStack() as stack:
        processes = []
        for _ in range(2):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        for process in processes:
            said(process).write(line)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            said(process).write("go\n")
        return [json.loads(process.communicate(timeout=60)[0]) for process in processes]


def said(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdin is not None
    return process.stdin


@pytest.mark.parametrize("slots", [1, 100])
def test_a_burst_at_two_replicas_is_numbered_once_in_half_a_second(
    kube: Kube, root: dict[str, Any], measured: Measured, slots: int
) -> None:
    answers = two_replicas(kube, root, 50, slots=slots)
    found = [(one["slot"], one["number"]) for each in answers for one in each["found"]]
    assert sorted(found) == ([(0, n) for n in range(1, 101)] if slots == 1 else [(n, 1) for n in range(100)])
    last = max(one["number_s"] for each in answers for one in each["found"])
    measured(f"the last of 100 pods of {slots} tasks has its number", last)
    measured(f"the last of 100 pods of {slots} tasks has its record", max(each["seconds"] for each in answers))
    assert sum(each["writes"] for each in answers) < 60
    kept = kube.list("spotcounters", root["metadata"]["namespace"], f"{WORKLOAD_LABEL}={root['metadata']['uid']}")
    records = {review: one for each in kept for review, one in each["spec"].get("records", {}).items()}
    assert len(records) == 100


def test_reviews_one_after_the_other_are_numbered_in_milliseconds(
    kube: Kube, root: dict[str, Any], measured: Measured
) -> None:
    answers = two_replicas(kube, root, 60, at_once=False)
    numbers = sorted(one["number"] for each in answers for one in each["found"])
    assert numbers == list(range(1, 121))
    took = sorted(one["number_s"] + one["keep_s"] for each in answers for one in each["found"])
    measured("a number and its record, of two replicas at once: p50", took[60])
    measured("the same: p99", took[118])


def run(kube: Kube, scenario: Callable[[Numbers], Awaitable[None]]) -> None:
    async def within() -> None:
        api = Api(connect(find_cluster(kubeconfig=str(kube.kubeconfig))))
        numbers = Numbers(api)
        try:
            await scenario(numbers)
        finally:
            await numbers.close()
            await api.close()

    asyncio.run(within())


def asking(root: dict[str, Any], review: str, **more: Any) -> Asking:
    return Asking(review, root["metadata"]["namespace"], root, "train", **{"is_settled": True, **more})


def test_an_edit_and_a_deletion_by_others_lose_no_number_that_the_journal_knows(
    kube: Kube, root: dict[str, Any]
) -> None:
    namespace = root["metadata"]["namespace"]

    async def scenario(numbers: Numbers) -> None:
        first = await numbers.number(asking(root, "one"))
        assert isinstance(first, Given)
        [made] = kube.list("spotcounters", namespace)
        name, patch = made["metadata"]["name"], {"spec": {"tasks": {"train": {"seen": "5"}}}}
        await asyncio.to_thread(
            kube.run, "patch", "spotcounter", name, "-n", namespace, "--type=merge", f"-p={json.dumps(patch)}"
        )
        second = await numbers.number(asking(root, "two"))
        assert isinstance(second, Given)
        assert (first.number, second.number) == (1, 6)
        await asyncio.to_thread(kube.run, "delete", "spotcounter", name, "-n", namespace)
        asked = asking(root, "three", known={0: Slot(7)})
        assert await numbers.number(asked) == Wait(is_lost=True)
        third = await numbers.number(asked, ignores_loss=True)
        assert isinstance(third, Given)
        assert third.number == 8
        assert [text for text in numbers.take_problems() if f"{namespace}/{name} is missing" in text]

    run(kube, scenario)


def test_objects_go_with_their_workload(kube: Kube, root: dict[str, Any]) -> None:
    namespace = root["metadata"]["namespace"]

    async def scenario(numbers: Numbers) -> None:
        await numbers.number(asking(root, "one"))
        await numbers.agree(namespace, root, "set/0", "spot;demand", ("spot",))

    run(kube, scenario)
    assert len(kube.list("spotcounters", namespace)) == 2
    kube.run("delete", "job", "train", "-n", namespace)
    kube.wait(lambda: not kube.list("spotcounters", namespace), "they are deleted with the Job", 60)
