"""The explanation of each pool of a waiting pod: a node on its way, a backoff, a pause; and of pods that are open to all."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.left_out_pools import leave_out
from tests.cluster.reading.served import Printed, serving, spotwright
from tests.cluster.reading.waiting_pods import IGNORES, waiting_pod
from tests.cluster.watching.watched_cluster import CONFIG
from tests.cluster.watching.watched_objects import job
from tests.cluster.words import said

from spotwright import config as configuration
from spotwright.clouds.cluster_autoscaler import likely_group
from spotwright.cluster.unavailable_pools import Findings
from spotwright.scheduling.budgets import Pause

STATUS = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
EVENTS, POOL_EVENTS = "/api/v1/namespaces/team-a/events", "/api/v1/namespaces/default/events"
GROUPS = {name: likely_group(pool) for name, pool in configuration.from_mapping(CONFIG).pools.items()}
OPEN = {
    "spotwright.dev/rung": "gpu-spot,gpu",
    "spotwright.dev/open": "the autoscaler's expander orders them",
    "spotwright.dev/why": "first attempt, open to all its rungs: the autoscaler's expander orders them",
    "spotwright.dev/attempt": "1",
}
PINNED = {"spotwright.dev/rung": "gpu-spot"}
TIME = r"\d\d:\d\d:\d\d"


def group(pool: str, **more: Any) -> dict[str, Any]:
    return said.group(GROUPS[pool], since=time.time() - 14, **more)


def status(*groups: dict[str, Any]) -> dict[str, Any]:
    return {STATUS: said.status(*groups, when=time.time())}


def ours(event: dict[str, Any]) -> dict[str, Any]:
    """An Event about the pod that is explained."""
    return {**event, "involvedObject": {**event["involvedObject"], "name": "two", "uid": "uid-two"}}


def told(
    certificates: Path,
    tmp_path: Path,
    marks: dict[str, str],
    objects: dict[str, Any],
    *options: str,
    found: Findings | None = None,
) -> Printed:
    """The explanation of the waiting pod; ``objects`` by path are further objects of the API server."""
    train = job(podFailurePolicy=IGNORES)
    made = waiting_pod(tmp_path, train, **marks)
    with serving(certificates, tmp_path / "state", found=found) as served:
        served.kubernetes.objects = {
            "/api/v1/namespaces/team-a/pods/two": made,
            "/apis/batch/v1/namespaces/team-a/jobs/train": train,
            **objects,
        }
        return spotwright("explain", "pod/two", "-n", "team-a", *options, *served.options("admin"))


def test_a_node_on_its_way_is_told_of_its_pool_with_its_moment(certificates: Path, tmp_path: Path) -> None:
    coming = group("gpu-spot", target=1, state="InProgress")
    out = told(certificates, tmp_path, PINNED, status(coming, group("gpu"))).out
    assert re.search(rf"gpu-spot: a node of \S+ is on its way, since {TIME}\n", out), out
    assert re.search(r"  gpu: not asked yet\n", out), out


def test_a_backoff_and_a_full_group_are_told_of_their_pools(certificates: Path, tmp_path: Path) -> None:
    refused, full = (
        group("gpu-spot", state="Backoff", error="OUT_OF_RESOURCES"),
        group("gpu", target=2, ready=2, most=2),
    )
    out = told(certificates, tmp_path, PINNED, status(refused, full)).out
    words = " ".join(out.split())
    assert re.search(
        rf"gpu-spot: \S+ is in backoff after a failed scale-up \(OUT_OF_RESOURCES: refused\), since {TIME}", words
    )
    assert re.search(r"gpu: \S+ is at its maximum of 2", words), out


def test_a_pool_that_is_passed_over_says_until_when(certificates: Path, tmp_path: Path) -> None:
    now = time.time()
    pools = configuration.from_mapping(CONFIG).pools
    found = Findings()
    leave_out(found, "team-a", {"gpu-spot": Pause(1, now, now + 300)}, pools)
    leave_out(found, "team-b", {"gpu": Pause(1, now, now + 300)}, pools)
    out = told(certificates, tmp_path, {"spotwright.dev/rung": "gpu"}, {}, found=found).out
    assert re.search(rf"gpu-spot: out of capacity, passed over until {TIME}\n", out), out
    assert out.count("passed over") == 1, "what another namespace has found holds for that one alone"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            lambda now: said.triggered(now, GROUPS["gpu-spot"]),
            r"gpu-spot: a node of \S+ is ordered \(TriggeredScaleUp\)",
        ),
        (
            said.not_triggered,
            r"gpu-spot: no node group that fits it can grow: max node group size reached",
        ),
    ],
)
def test_events_tell_where_the_status_is_for_others(certificates: Path, tmp_path: Path, event: Any, words: str) -> None:
    out = told(
        certificates, tmp_path, PINNED, {EVENTS: {"items": [ours(event(time.time()))]}, POOL_EVENTS: {"items": []}}
    ).out
    assert re.search(words, " ".join(out.split())), out


def test_an_open_pod_is_told_with_all_its_rungs_and_who_keeps_their_order(certificates: Path, tmp_path: Path) -> None:
    out = told(certificates, tmp_path, OPEN, {}).out
    assert "  all 2 rungs: gpu-spot, gpu\n" in out, out
    assert "admitted as attempt 1: first attempt, open to all its rungs: the autoscaler's expander orders them" in out
    assert "will be evicted at" not in out
    assert "so the rung is only a preference" not in out


def test_the_facts_of_an_open_pod(certificates: Path, tmp_path: Path) -> None:
    objects = status(group("gpu-spot", state="Backoff"), group("gpu", target=1, state="InProgress"))
    out = told(certificates, tmp_path, OPEN, objects, "--json").out
    [pod] = json.loads(out)["objects"][0]["pods"]
    assert pod["rung"] == {"number": None, "of": 2, "pools": ["gpu-spot", "gpu"], "is_open": True}
    assert [(one["pool"], one["is_asked"], bool(one["since"])) for one in pod["pools"]] == [
        ("gpu-spot", True, True),
        ("gpu", True, True),
    ]
    assert "in backoff" in pod["pools"][0]["state"]
    assert "on its way" in pod["pools"][1]["state"]
    assert pod["move"] is None


def test_the_time_that_the_job_waits_afterwards_is_told(certificates: Path, tmp_path: Path) -> None:
    out = told(certificates, tmp_path, PINNED, {}).out
    assert "its Job makes that pod 10s later: it waits twice as long after each failed pod" in " ".join(out.split()), (
        out
    )


FILE = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team-a}
spec: {}
"""


def told_of_file(certificates: Path, tmp_path: Path, text: str, *options: str, name: str = "job.yaml") -> Printed:
    """The explanation of a file's objects."""
    train = job(podFailurePolicy=IGNORES)
    made = waiting_pod(tmp_path, train, **PINNED)
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with serving(certificates, tmp_path / "state") as served:
        served.kubernetes.objects = {
            "/api/v1/namespaces/team-a/pods": {"items": [made]},
            "/api/v1/namespaces/team-a/pods/two": made,
            "/apis/batch/v1/namespaces/team-a/jobs/train": train,
        }
        return spotwright("explain", str(file), *options, *served.options("admin"))


@pytest.mark.parametrize("options", [(), ("-n", "team-b")])
def test_the_namespace_of_a_file_counts(certificates: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    printed = told_of_file(certificates, tmp_path, FILE, *options)
    assert printed.out.startswith("Job team-a/train, run team-a.train-job-uid\n"), printed


def test_a_file_without_a_namespace_is_about_that_of_the_command(certificates: Path, tmp_path: Path) -> None:
    text = FILE.replace(", namespace: team-a", "")
    assert told_of_file(certificates, tmp_path, text, "-n", "team-a").out.startswith("Job team-a/train")


def test_each_object_of_a_file_is_explained(certificates: Path, tmp_path: Path) -> None:
    pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: two, namespace: team-a}\n"
    out = told_of_file(certificates, tmp_path, FILE + pod).out
    assert "Job team-a/train" in out
    assert "\n\nPod team-a/two" in out


@pytest.mark.parametrize(
    "beside",
    [
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n",
        "---\napiVersion: v1\nkind: Service\nmetadata: {name: train}\n---\n",
        "---\n# nothing\n",
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {generateName: data-}\n",
    ],
)
def test_objects_beside_it_that_nobody_places_are_passed_over(certificates: Path, tmp_path: Path, beside: str) -> None:
    printed = told_of_file(certificates, tmp_path, FILE + beside)
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("Job team-a/train")
    assert printed.out.count("run team-a.train") == 1


def test_a_list_as_kubectl_writes_it_is_read(certificates: Path, tmp_path: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [job()]}
    printed = told_of_file(certificates, tmp_path, json.dumps(listed), name="jobs.json")
    assert printed.out.startswith("Job team-a/train"), printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.replace("name: train", "generateName: train-"), "job.yaml:1: its Job gets its name when it is created"),
        ("kind: Job\nmetadata: 3\n", "gets its name when it is created"),
        ("kind: Job\n", "gets its name when it is created"),
        ("", "no object of the kinds Pod, Experiment"),
        ("[1, 2]\n", "no object of the kinds Pod, Experiment"),
        ("just words\n", "no object of the kinds Pod, Experiment"),
        ("metadata: {name: train}\n", "no object of the kinds Pod, Experiment"),
        ("kind: [\n", "it is not valid YAML"),
        ("a: &x [*x]\n", ""),
        ("kind: {a: b}\nmetadata: {name: x}\n", ""),
        (
            "kind: ConfigMap\nmetadata: {name: x}\n",
            "no object of the kinds Pod, Experiment, JAXJob, Job, JobSet, MPIJob,",
        ),
        ("kind: Job\nmetadata: {name: ../../secrets/x}\n", ""),
        ("kind: Job\nmetadata: {name: [a]}\n", ""),
    ],
)
def test_a_file_that_names_no_object_is_refused_in_one_sentence(
    certificates: Path, tmp_path: Path, text: str, message: str
) -> None:
    printed = told_of_file(certificates, tmp_path, text, "-n", "team-a")
    assert (printed.code, printed.out) == (2, ""), printed
    assert message in " ".join(printed.err.split()), printed.err
    assert "Traceback" not in printed.err
    assert len(printed.err.strip().splitlines()) <= 3


def test_a_file_that_is_not_there_is_named(certificates: Path, tmp_path: Path) -> None:
    with serving(certificates, tmp_path / "state") as served:
        (tmp_path / "state").mkdir(exist_ok=True)
        printed = spotwright("explain", str(tmp_path / "none.yaml"), *served.options("admin"))
    assert printed.code == 2
    assert "none.yaml" in printed.err
