"""Pods that train together and meet by c10d: which objects are named, and which have their rendezvous on on-demand."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in

from spotwright.linter.rules import gangs
from spotwright.placing.environment import TORCHRUN_VARIABLE

NAME = TORCHRUN_VARIABLE["name"]
[RENDEZVOUS] = [rule for rule in gangs.RULES if rule.id == "rendezvous-on-spot"]
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    numNodes: %d
    command: [torchrun, --rdzv-backend=%s, "--rdzv-endpoint=train-node-0-0.train:29400", train.py]
  runtimePatches:
  - manager: example.com/me
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          - name: node
            template:
              spec:
                template:
                  spec:
                    tolerations:
                    - {key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}
                    affinity:
                      nodeAffinity:
                        preferredDuringSchedulingIgnoredDuringExecution:
                        - weight: 100
                          preference:
                            matchExpressions:
                            - {key: kubernetes.azure.com/scalesetpriority, operator: In, values: [spot]}
"""


def named(text: str, rule: str = RENDEZVOUS.id) -> list[str]:
    return [finding.text for finding in found_in(text) if finding.rule == rule]


@pytest.mark.parametrize(
    ("nodes", "backend", "is_named"), [(4, "c10d", True), (1, "c10d", False), (4, "etcd-v2", False)]
)
def test_a_trainjob_that_meets_at_one_of_its_pods_is_named(nodes: int, backend: str, is_named: bool) -> None:
    found = named(TRAIN_JOB % (nodes, backend))
    assert len(found) == is_named
    assert all("meets at one of its 4 pods, which share one template" in text for text in found)


def test_a_set_is_named_once_and_not_where_it_meets_at_another_job() -> None:
    [found] = named(RENDEZVOUS.fails)
    assert (
        found
        == "JobSet train workers meets at train-workers-0-0.train:29400, one of its pods, and they share one template on spot"
    )
    assert named(RENDEZVOUS.passes) == []
    assert named(RENDEZVOUS.fails.replace("parallelism: 4", "parallelism: 1").replace("completions: 4", "")) == []


@pytest.mark.parametrize(("value", "said"), [('"1"', None), ('"0"', f"has 0 as {NAME}"), ("null", f"has no {NAME}")])
def test_a_value_of_the_users_own_is_named(value: str, said: str | None) -> None:
    found = named(RENDEZVOUS.passes.replace('value: "1"', f"value: {value}"), "torchrun-shares-store")
    assert (found == []) if said is None else (said in found[0])
