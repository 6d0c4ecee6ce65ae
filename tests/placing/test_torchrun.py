"""Pods whose code torchrun starts do not share its store, so that an agent which comes for a lost one can join."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kinds.kubeflow.runtimes import a_runtime
from tests.placing.placed import assert_unplaces, place

from spotwright.placing.environment import TORCHRUN_VARIABLE, c10d_endpoint, restarts_ranks, starts_torchrun

NAME = TORCHRUN_VARIABLE["name"]
POLICY = "{default: {spot: prefer}}"
JOB_SET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        template:
          spec:
            containers: [%s]
"""
PYTORCH_JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  elasticPolicy: {minReplicas: 2, maxReplicas: 4}
  pytorchReplicaSpecs:
    Worker: {replicas: 4, template: {spec: {containers: [{name: pytorch, image: "train:1"}]}}}
"""


def values(value: Any) -> list[str]:
    """The variable's values anywhere in an object."""
    if isinstance(value, list):
        return [found for item in value for found in values(item)]
    if not isinstance(value, dict):
        return []
    return [value["value"]] if value.get("name") == NAME else values(list(value.values()))


@pytest.mark.parametrize(
    ("container", "does"),
    [
        ({"command": ["torchrun", "--nnodes", "2:4", "train.py"]}, True),
        ({"command": ["python3", "-m", "torch.distributed.run", "train.py"]}, True),
        ({"command": ["sh", "-c"], "args": ["cd /code && accelerate launch train.py"]}, True),
        ({"env": [{"name": "PET_NNODES", "value": "4"}]}, True),
        ({"command": ["python3", "train.py"]}, False),
        ({"command": ["python3", "-c", "import torch.distributed"]}, False),
        ({"command": ["agent"], "env": [{"name": "WORKER_COMMAND", "value": "torchrun train.py"}]}, True),
        ({"command": ["agent"], "env": [{"name": "WORKER_COMMAND"}]}, False),
        ({"command": None, "env": [None]}, False),
    ],
)
def test_what_starts_torchrun(container: dict[str, Any], does: bool) -> None:
    assert starts_torchrun(container) == does


@pytest.mark.parametrize(
    ("container", "found"),
    [
        ("{name: main, image: a, command: [torchrun, train.py]}", ["1"]),
        ("{name: main, image: a, command: [python3, train.py]}", []),
        (f"{{name: main, image: a, command: [torchrun], env: [{{name: {NAME}, value: '0'}}]}}", ["0"]),
    ],
)
def test_a_jobset_gets_the_variable_where_torchrun_is_started_and_its_user_has_set_none(
    container: str, found: list[str]
) -> None:
    assert values(place(JOB_SET % container, POLICY).value) == found


@pytest.mark.parametrize(
    ("container", "does"),
    [
        ({"command": ["torchrun", "--max-restarts", "3", "train.py"]}, True),
        ({"command": ["sh", "-c", "torchrun --max_restarts=3 train.py"]}, True),
        ({"command": ["torchrun", "train.py"], "env": [{"name": "PET_MAX_RESTARTS", "value": "3"}]}, True),
        ({"command": ["torchrun", "--max-restarts=0", "train.py"]}, False),
        ({"command": ["torchrun", "train.py"]}, False),
        ({"command": ["supervise", "--max-restarts", "3"]}, False),
    ],
)
def test_where_torchrun_starts_ranks_again(container: dict[str, Any], does: bool) -> None:
    assert restarts_ranks(container) is does


def test_a_job_that_restarts_its_ranks_gets_the_variable_and_gives_it_back() -> None:
    text = JOB_SET % "{name: main, image: a, command: [torchrun, --max-restarts, '3', train.py]}"
    placed = place(text, POLICY)
    assert values(placed.value) == ["1"]
    assert_unplaces(text, placed.text)


C10D = ["torchrun", "--rdzv-backend=c10d", "--rdzv-endpoint=train-workers-0-0.train:29400", "train.py"]


@pytest.mark.parametrize(
    ("container", "endpoint"),
    [
        ({"command": C10D}, "train-workers-0-0.train:29400"),
        ({"command": ["torchrun"], "args": ["--rdzv_backend", "c10d", "--rdzv_endpoint", "a-0-0.a"]}, "a-0-0.a"),
        ({"command": ["sh", "-c", "torchrun --rdzv-backend c10d --rdzv-endpoint '$FIRST:1' train.py"]}, "$FIRST:1"),
        (
            {"env": [{"name": "PET_RDZV_BACKEND", "value": "c10d"}, {"name": "PET_RDZV_ENDPOINT", "value": "b:1"}]},
            "b:1",
        ),
        ({"env": [{"name": "WORKER_COMMAND", "value": " ".join(C10D)}]}, "train-workers-0-0.train:29400"),
        ({"command": ["torchrun", "--rdzv-backend=etcd-v2", "--rdzv-endpoint=etcd:2379"]}, ""),
        ({"command": ["torchrun", "--rdzv-endpoint=a-0-0.a:1"]}, ""),  # the backend static
        ({"command": ["torchrun", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]}, ""),
        ({"command": ["torchrun", "--standalone"], "env": 7}, ""),
        ({"command": C10D[0], "args": {}, "env": ["x", None]}, ""),
    ],
)
def test_where_agents_meet_by_c10d(container: dict[str, Any], endpoint: str) -> None:
    assert c10d_endpoint(container) == endpoint


LEADER = """\
  - name: leader
    template:
      spec:
        template:
          spec:
            containers: [{name: main, image: a, command: %s}]
"""


def test_pods_of_one_template_that_meet_at_one_of_them_are_told_how_to_keep_it_on_on_demand() -> None:
    four = JOB_SET.replace("      spec:\n        template", "      spec:\n        parallelism: 4\n        template", 1)
    said = "workers: its pods meet at train-workers-0-0.train:29400, which is one of them, and they share one template"
    assert place(four % f"{{name: main, image: a, command: {C10D}}}", POLICY).reports(said, "leader, with one pod")
    assert not place(JOB_SET % f"{{name: main, image: a, command: {C10D}}}", POLICY).reports("meet at")
    at_leader = str([each.replace("workers", "leader") for each in C10D])
    led = four % f"{{name: main, image: a, command: {at_leader}}}" + LEADER % at_leader
    assert not place(led, POLICY).reports("meet at")


@pytest.mark.parametrize(("nodes", "is_told"), [(4, True), (1, False)])
def test_a_trainjob_that_meets_at_one_of_its_pods_is_told(nodes: int, is_told: bool) -> None:
    trainjob = (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: train}\n"
        f"spec: {{runtimeRef: {{name: torch}}, trainer: {{numNodes: {nodes}, command: {C10D}}}}}\n"
    )
    outcome = place(trainjob, POLICY, beside=a_runtime(), target="{kubernetes: '1.33', trainer: '2.3'}")
    assert (
        outcome.reports("which is one of them, and they share one template", "the runtime has the replicated jobs")
        is is_told
    )


def test_what_explain_says_of_the_variable() -> None:
    def said(container: str) -> str:
        [role] = place(JOB_SET % container, POLICY).roles.values()
        return role.torchrun

    meets = f"{NAME}=1 in main, so that ranks that start again meet, and so does an agent that comes for a lost one"
    assert said("{name: main, image: a, command: [torchrun, train.py]}") == meets
    own = f"{{name: main, image: a, command: [torchrun], env: [{{name: {NAME}, value: '0'}}]}}"
    assert said(own) == f"{NAME}=0 in main, so not all may meet again (yours: write 1)"
    assert said("{name: main, image: a, command: [python3, train.py]}") == ""


def test_an_elastic_pytorchjob_gets_the_variable_by_what_its_operator_sets() -> None:
    assert values(place(PYTORCH_JOB, POLICY).value) == ["1"]
    still = PYTORCH_JOB.replace("  elasticPolicy: {minReplicas: 2, maxReplicas: 4}\n", "")
    assert values(place(still, POLICY).value) == []


@pytest.mark.parametrize(("policy", "found"), [("torch: {}", ["1"]), ("mpi: {}", [])])
def test_a_trainjob_and_its_runtime_get_the_variable_of_torch_runtimes(policy: str, found: list[str]) -> None:
    runtime = a_runtime().replace("torch: {}", policy)
    trainjob = (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: train}\n"
        "spec: {runtimeRef: {name: torch}, trainer: {numNodes: 2}}\n"
    )
    assert values(place(runtime, POLICY).value) == found
    placed = place(trainjob, POLICY, beside=runtime, target="{kubernetes: '1.33', trainer: '2.3'}")
    assert values(placed.value["spec"]["trainer"]) == found
