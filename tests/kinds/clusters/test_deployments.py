"""Deployments stay unchanged unless they say that they are workers."""

from __future__ import annotations

import pytest
from tests.placing.placed import PREFER, REQUIRE, at_path, place

SPOT = "kubernetes.azure.com/scalesetpriority"
WORKER = "spotwright.dev/role: worker"


def a_deployment(labels: str = "", of_pods: str = "", spec: str = "replicas: 3", pod: str = "") -> str:
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: embedder, labels: {{{labels}}}}}
spec:
  {spec}
  selector: {{matchLabels: {{app: e}}}}
  template:
    metadata: {{labels: {{app: e{of_pods}}}}}
    spec: {{containers: [{{name: worker, image: e}}]{pod}}}
"""


@pytest.mark.parametrize("labels", ["", "spotwright.dev/role: server"])
def test_a_deployment_that_is_no_worker_stays_unchanged_and_learns_the_label(labels: str) -> None:
    outcome = place(a_deployment(labels), PREFER)

    assert outcome.text == a_deployment(labels)
    assert outcome.reports("warning", "it serves requests", "label it spotwright.dev/role: worker")


@pytest.mark.parametrize("text", [a_deployment(WORKER), a_deployment(of_pods=f", {WORKER}")])
def test_a_worker_follows_the_policy(text: str) -> None:
    outcome = place(text, REQUIRE)

    assert at_path(outcome.value, "spec.template.spec.tolerations.0.key") == SPOT
    assert at_path(outcome.value, "spec.selector.matchLabels") == {"app": "e"}
    assert outcome.roles["embedder"].pools == ("spot",)


def test_a_policy_of_its_own_makes_a_deployment_a_worker() -> None:
    outcome = place(a_deployment("spotwright.dev/spot: require"), "{default: {timeout: 1h}}")

    assert outcome.roles["embedder"].pools == ("spot",)


def test_an_interruption_is_neither_counted_nor_bounded() -> None:
    outcome = place(a_deployment(WORKER), "{default: {spot: prefer, interruptions: {max: 3}}}")

    assert "the Deployment creates the pod again, uncounted" in outcome.roles["embedder"].after_interruption
    assert outcome.reports("warning", "embedder: interruptions.max", "no effect here")


def test_what_hurts_replicas_on_spot_is_named() -> None:
    claim = ", volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]"

    assert place(a_deployment(WORKER, spec="replicas: 1")).reports("note", "set replicas to 2 or more")
    assert place(a_deployment(WORKER, pod=claim)).reports("warning", "its volume may be bound to a zone")
    kept = place(a_deployment(WORKER), "{default: {spot: prefer, checkpoint: 'pvc://ckpt'}}")
    assert kept.reports("warning", "its replicas share one place for checkpoints")
    assert not kept.reports("bound to a zone")


def test_a_worker_on_on_demand_has_nothing_to_be_told() -> None:
    outcome = place(a_deployment(WORKER, spec="replicas: 1"), "{default: {spot: never}}")

    assert outcome.messages == []
