"""How many pods an object has at once, and which need each other: of every kind what its controller makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.linter.linting import found_in
from tests.placing.placed import at_path

from spotwright.kinds.kind import all_kinds
from spotwright.kinds.situation import pod_groups

GOLDEN = Path(__file__).parent / "golden"
POD = {"spec": {"containers": [{"name": "main", "image": "i"}]}}


def of(api_version: str, kind: str, spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def a_job(**spec: Any) -> dict[str, Any]:
    return {"spec": {**spec, "template": POD}}


def a_set(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {"replicatedJobs": list(jobs)}


PATCHED = {
    "runtimePatches": [{"trainingRuntimeSpec": {"template": {"spec": a_set({"name": "n", "template": a_job()})}}}]
}
COUNTS: list[tuple[dict[str, Any], list[int | None], bool]] = [
    (of("v1", "Pod", POD["spec"]), [1], False),
    (of("batch/v1", "Job", a_job()["spec"]), [1], False),
    (of("batch/v1", "Job", a_job(parallelism=4, completions=3)["spec"]), [3], False),
    (of("batch/v1", "Job", a_job(parallelism=4)["spec"]), [4], False),
    (of("batch/v1", "Job", a_job(parallelism="{{workers}}")["spec"]), [None], False),
    (of("batch/v1", "CronJob", {"jobTemplate": a_job(parallelism=2)}), [2], False),
    (
        of(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            a_set({"name": "l", "template": a_job()}, {"name": "w", "replicas": 2, "template": a_job(parallelism=3)}),
        ),
        [1, 6],
        True,
    ),
    (of("trainer.kubeflow.org/v1alpha1", "TrainJob", {"trainer": {"numNodes": 8}, **PATCHED}), [8], True),
    (of("trainer.kubeflow.org/v1alpha1", "TrainJob", PATCHED), [None], True),
    (
        of(
            "trainer.kubeflow.org/v1alpha1",
            "TrainingRuntime",
            {
                "mlPolicy": {"numNodes": 4},
                "template": {
                    "spec": a_set(
                        {
                            "name": "node",
                            "template": {
                                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                                **a_job(),
                            },
                        },
                        {"name": "data", "template": a_job(parallelism=2)},
                    )
                },
            },
        ),
        [4, 2],
        True,
    ),
    (
        of(
            "kubeflow.org/v1",
            "PyTorchJob",
            {
                "elasticPolicy": {"maxReplicas": 6},
                "pytorchReplicaSpecs": {"Master": {"template": POD}, "Worker": {"replicas": 3, "template": POD}},
            },
        ),
        [1, 6],
        True,
    ),
    (of("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"replicas": 5, "template": POD}]}), [5], True),
    (
        of(
            "ray.io/v1",
            "RayCluster",
            {
                "headGroupSpec": {"template": POD},
                "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 4, "template": POD}],
            },
        ),
        [1, 8],
        False,
    ),
    (
        of(
            "ray.io/v1",
            "RayCluster",
            {"enableInTreeAutoscaling": True, "workerGroupSpecs": [{"replicas": 1, "maxReplicas": 9, "template": POD}]},
        ),
        [9],
        False,
    ),
    (
        of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"replicas": 3, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": POD, "workerTemplate": POD}},
        ),
        [3, 9],
        True,
    ),
    (
        of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"replicas": 3, "leaderWorkerTemplate": {"size": 4, "workerTemplate": POD}},
        ),
        [12],
        True,
    ),
    (
        of("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"driver": {}, "executor": {"instances": 7}}),
        [1, 7],
        False,
    ),
    (
        of(
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            {"driver": {}, "executor": {}, "dynamicAllocation": {"enabled": True}},
        ),
        [1, None],
        False,
    ),
    (of("apps/v1", "Deployment", {"replicas": 2, "template": POD}), [2], False),
    (of("apps/v1", "DaemonSet", {"template": POD}), [None], False),
    (of("argoproj.io/v1alpha1", "Workflow", {"templates": [{"name": "a", "container": {}}]}), [None, None], False),
    (of("example.com/v1", "Unheard", {"template": POD}), [], False),
]


@pytest.mark.parametrize(
    ("data", "counts", "is_gang"), COUNTS, ids=lambda value: value["kind"] if isinstance(value, dict) else ""
)
def test_an_object_has_as_many_pods_at_once_as_its_controller_makes(
    data: dict[str, Any], counts: list[int | None], is_gang: bool
) -> None:
    groups = list(pod_groups(data))
    assert [one.at_once for one in groups] == counts
    assert {one.is_gang for one in groups} <= {is_gang}


def test_every_place_of_pods_in_a_record_leads_to_pods_in_the_golden_files() -> None:
    seen = set()
    for file in sorted(GOLDEN.rglob("in.yaml")):
        for data in plain_yaml.load_all(file.read_text()):
            for group in pod_groups(data) if isinstance(data, dict) else ():
                seen.add((data["apiVersion"].rpartition("/")[0], data["kind"]))
                value = at_path(data, ".".join(map(str, group.path))) if group.path else data
                assert isinstance(value, dict), (file, group.path)
                assert group.place.form != "T" or "containers" in (value.get("spec") or {}), (file, group.path)
    assert seen <= all_kinds().keys()
    assert len(seen) > 15


CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}}
---
"""


def test_a_claim_of_one_pod_is_too_few_for_the_workers_of_every_kind() -> None:
    pod = {
        "containers": POD["spec"]["containers"],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    template = {"spec": pod}
    for data in (
        of("batch/v1", "Job", {"parallelism": 2, "template": template}),
        of(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            a_set({"name": "w", "replicas": 2, "template": {"spec": {"template": template}}}),
        ),
        of("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "w", "replicas": 2, "template": template}]}),
        of("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}}),
        of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 3, "workerTemplate": template}},
        ),
        of("ray.io/v1", "RayCluster", {"workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": template}]}),
    ):
        found = found_in(CLAIM + plain_yaml.dump_all([data]))
        assert "claim-of-one-node-shared" in {one.rule for one in found}, data["kind"]


@pytest.mark.parametrize(
    "odd", [None, "x", 1, [], [None], {"metadata": {"labels": "x"}}, {"spec": {"template": "x"}}], ids=repr
)
def test_an_object_of_another_shape_has_no_pods_or_unknown_ones(odd: Any) -> None:
    for group, name in all_kinds():
        for spec in (
            odd,
            {"template": odd},
            {"replicatedJobs": [odd]},
            {"template": {"spec": {"replicatedJobs": [{"template": odd}]}}},
        ):
            list(pod_groups({"apiVersion": f"{group}/v1".lstrip("/"), "kind": name, "spec": spec}))
