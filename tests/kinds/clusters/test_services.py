"""Services, datastores, notebooks and node agents: what they need on on-demand, and why they go to no spot pool."""

from __future__ import annotations

from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import FILE, PREFER, a_config, at_path, place, refusal

from spotwright.manifests.files import place_text
from spotwright.placing.context import PlaceOptions

SPOT = "kubernetes.azure.com/scalesetpriority"
KINDS = ["apps/v1 StatefulSet", "apps/v1 ReplicaSet", "kubeflow.org/v1 Notebook", "v1 ReplicationController"]
REQUIRED = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0.matchExpressions"


def an_object(kind: str, spot: str = "", spec: str = "template: {spec: {containers: [{name: a, image: i}]}}") -> str:
    api_version, name = kind.split()
    labels = f", labels: {{spotwright.dev/spot: {spot}}}" if spot else ""
    return f"apiVersion: {api_version}\nkind: {name}\nmetadata: {{name: x{labels}}}\nspec: {{{spec}}}\n"


def pod_of(value: Any) -> Any:
    return at_path(value, "spec.template.spec")


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_of_its_own_places_it_on_on_demand_and_writes_nothing_else(kind: str) -> None:
    outcome = place(an_object(kind, "never"))

    assert set(pod_of(outcome.value)) == {"containers", "affinity"}
    assert pod_of(outcome.value)["containers"] == [{"name": "a", "image": "i"}]
    assert outcome.roles["x"].pools == ("regular",)


@pytest.mark.parametrize("spot", ["require", "prefer"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_label_that_asks_for_spot_is_refused_with_the_reason_and_the_way_out(kind: str, spot: str) -> None:
    message = refusal(an_object(kind, spot))

    assert message.startswith("work.yaml:2: kind: ")
    assert f"goes to no spot pool (spot: {spot}, work.yaml:3)" in message
    assert "keep it on on-demand: write spot: never, or name its pods with --pod-path" in message


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_policy_leaves_it_unchanged_and_names_the_label(kind: str) -> None:
    text = an_object(kind)

    assert place(text).text == text
    assert place(text).reports("stays unchanged", "label it spotwright.dev/spot: never")


def test_a_pattern_of_the_policy_may_keep_it_on_on_demand_but_does_not_bring_it_to_spot() -> None:
    text = an_object("apps/v1 StatefulSet")

    assert place(text, "{default: {spot: prefer}, tasks: {x: {spot: never}}}").roles["x"].pools == ("regular",)
    assert place(text, "{default: {spot: never}, tasks: {'**': {spot: require}}}").text == text


def test_a_path_of_its_pods_places_it_where_its_policy_says_and_other_objects_as_ever() -> None:
    text = "---\n".join(
        [an_object("apps/v1 StatefulSet", "require"), an_object("apps/v1 DaemonSet", "prefer", "template: {spec: {}}")]
    )
    options = PlaceOptions(pod_paths=(("spec", "template", "spec"),))
    placed = place_text(text, FILE, a_config(PREFER), options=options)
    stateful, daemons = plain_yaml.load_all(placed.text)

    assert pod_of(stateful)["tolerations"][0]["key"] == pod_of(daemons)["tolerations"][0]["key"] == SPOT


def test_a_notebook_with_gpus_tolerates_the_taint_of_gpu_nodes() -> None:
    spec = "template: {spec: {containers: [{name: a, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
    outcome = place(an_object("kubeflow.org/v1 Notebook", "never", spec))

    assert [one["key"] for one in pod_of(outcome.value)["tolerations"]] == ["sku"]
    assert outcome.roles["x"].pools == ("gpu",)


def test_the_model_of_a_predictor_has_its_requests_and_each_part_is_a_role() -> None:
    spec = "predictor: {sklearn: {resources: {limits: {nvidia.com/gpu: 1}}}}, transformer: {containers: [{name: a, image: i}]}"
    outcome = place(an_object("serving.kserve.io/v1beta1 InferenceService", "never", spec))

    assert {name: role.pools for name, role in outcome.roles.items()} == {
        "x/predictor": ("gpu",),
        "x/transformer": ("regular",),
    }
    assert "containers" not in at_path(outcome.value, "spec.predictor")
    assert outcome.reports("note", "kubernetes.podspec-affinity")


def test_a_daemon_set_that_prefers_spot_gets_tolerations_and_no_preference() -> None:
    pod = pod_of(place(an_object("apps/v1 DaemonSet", "prefer")).value)

    assert [one["key"] for one in pod["tolerations"]] == [SPOT]
    assert "affinity" not in pod


@pytest.mark.parametrize(("spot", "tolerates"), [("require", True), ("never", False)])
def test_a_daemon_set_may_run_on_one_kind_of_capacity_alone(spot: str, tolerates: bool) -> None:
    outcome = place(an_object("apps/v1 DaemonSet", spot), PREFER)
    pod = pod_of(outcome.value)

    assert len(at_path(pod, REQUIRED)) == 1
    assert ("tolerations" in pod) is tolerates
    assert "no interruption" in outcome.roles["x"].after_interruption or tolerates


def test_a_pattern_that_matches_everything_moves_no_daemon_set() -> None:
    text = an_object("apps/v1 DaemonSet")

    assert place(text, "{default: {spot: never}, tasks: {'**': {spot: require}}}").text == text
