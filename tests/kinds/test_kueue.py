"""Kueue assigns work to the flavors of those pools that its policy allows, and to no others.

The rules of admission are stated here once more, from kubernetes-sigs/kueue v0.19.2 (``flavorassigner.go``), and applied to what
``place`` and ``pools command --as kueue`` write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import FILE, assert_unplaces, at_path

from spotwright import config
from spotwright.config import Config
from spotwright.kinds.kueue import QueueOptions, queue_lines
from spotwright.manifests.files import PlacedFile, place_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.kueue_flavors import flavor_labels
from spotwright.views.explanation import explanation_json, explanation_text

QUEUE = "kueue.x-k8s.io/queue-name"
NODE = "node: {cpu: 8, memory: 32Gi}"
GPU_NODE = "node: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}"
AFFINITY = "affinity.nodeAffinity"


def a_config(provider: str, spot: str = "prefer", more: str = "", policy: str = "", own: str = "") -> Config:
    own_spot, own_on_demand = (f", labels: {{{own}: {kind}}}" if own else "" for kind in ("spot", "regular"))
    return config.parse(f"""\
version: 1
pools:
  spot: {{capacity: spot, provider: {provider}, {NODE}, price: 0.1/h{own_spot}}}
  regular: {{capacity: on-demand, provider: {provider}, {NODE}, price: 0.3/h{own_on_demand}}}
{more}policy: {{default: {{spot: {spot}{policy}}}}}
""")


def a_job(pod: str = "", labels: str = f"{{{QUEUE}: team}}") -> str:
    return f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: train, labels: {labels}}}
spec:
  template:
    spec:
      restartPolicy: Never
{pod}      containers: [{{name: main, image: python, resources: {{requests: {{cpu: 1, memory: 1Gi}}}}}}]
"""


def place(text: str, settings: Config) -> PlacedFile:
    placed = place_text(text, FILE, settings, options=PlaceOptions(only_explain=True))
    assert place_text(placed.text, FILE, settings).text == placed.text
    assert_unplaces(text, placed.text)
    return placed


def pod_of(placed: PlacedFile, path: str = "spec.template.spec") -> dict[str, Any]:
    pod: dict[str, Any] = at_path(plain_yaml.load(placed.text), path)
    return pod


def objects(settings: Config, options: QueueOptions | None = None) -> dict[str, list[Any]]:
    """The printed objects by kind."""
    lines = queue_lines(settings.pools, options or QueueOptions())
    by_kind: dict[str, list[Any]] = {}
    for one in plain_yaml.load_all("\n".join(lines)):
        by_kind.setdefault(one["kind"], []).append(one)
    return by_kind


def matches(condition: dict[str, Any], labels: dict[str, str]) -> bool:
    value, values = labels.get(condition["key"]), condition.get("values", [])
    return {
        "In": lambda: value in values,
        "NotIn": lambda: value not in values,
        "Exists": lambda: value is not None,
        "DoesNotExist": lambda: value is None,
    }[condition["operator"]]()


def assigned(pod: dict[str, Any], settings: Config, *, union: bool) -> list[str]:
    """The flavors that Kueue may assign, in their order. ``union``: as before 0.18.6, by the labels of all flavors together."""
    printed = objects(settings)
    flavors = {one["metadata"]["name"]: one["spec"] for one in printed["ResourceFlavor"]}
    [queue] = printed["ClusterQueue"]
    every = {key for spec in flavors.values() for key in spec.get("nodeLabels", {})}
    names = [one["name"] for one in queue["spec"]["resourceGroups"][0]["flavors"]]
    return [
        name
        for name in names
        if tolerates(pod, flavors[name]) and admits(pod, flavors[name].get("nodeLabels", {}), every if union else None)
    ]


def tolerates(pod: dict[str, Any], flavor: dict[str, Any]) -> bool:
    return all(
        any(one["key"] == taint["key"] and one.get("value") == taint.get("value") for one in pod.get("tolerations", []))
        for taint in flavor.get("nodeTaints", [])
    )


def admits(pod: dict[str, Any], labels: dict[str, str], keys: set[str] | None) -> bool:
    known = labels.keys() if keys is None else keys
    if any(labels.get(key) != value for key, value in pod.get("nodeSelector", {}).items() if key in known):
        return False
    required = at_path(pod, f"{AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms") or []
    terms = [[one for one in term["matchExpressions"] if one["key"] in known] for term in required]
    return not all(terms) or not terms or any(all(matches(one, labels) for one in term) for term in terms)


PROVIDERS = ["aks", "gke", "eks", "karpenter"]


@pytest.mark.parametrize("union", [False, True], ids=["0.19", "0.17"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("spot", "flavors"), [("require", ["spot"]), ("never", ["regular"]), ("prefer", ["spot", "regular"])]
)
def test_the_flavors_that_match_are_those_of_the_policy(
    provider: str, spot: str, flavors: list[str], union: bool
) -> None:
    settings = a_config(provider, spot)

    assert assigned(pod_of(place(a_job(), settings)), settings, union=union) == flavors


@pytest.mark.parametrize("spot", ["require", "never"])
def test_pools_of_no_provider_are_told_apart_by_their_own_labels(spot: str) -> None:
    settings = a_config("generic", spot, own="capacity")
    expected = ["spot"] if spot == "require" else ["regular"]

    assert assigned(pod_of(place(a_job(), settings)), settings, union=False) == expected


@pytest.mark.parametrize("union", [False, True], ids=["0.19", "0.17"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_pool_that_the_ladder_does_not_name_is_excluded_also_where_the_others_share_a_label(
    provider: str, union: bool
) -> None:
    more = f"  untaken: {{capacity: spot, provider: {provider}, {NODE}}}\n"
    settings = a_config(provider, policy=", ladder: [spot, regular]", more=more)
    pools = dict(settings.pools)
    for name in ("spot", "regular"):
        pools[name] = replace(pools[name], labels={**pools[name].labels, "class": "train"})
    settings = replace(settings, pools=pools)

    assert assigned(pod_of(place(a_job(), settings)), settings, union=union) == ["spot", "regular"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_nothing_is_preferred_because_the_order_of_the_flavors_decides(provider: str) -> None:
    pod = pod_of(place(a_job(), a_config(provider)))

    assert at_path(pod, f"{AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution") is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_pool_whose_nodes_are_too_small_is_excluded_because_kueue_knows_no_nodes(provider: str) -> None:
    settings = a_config(
        provider, more=f"  tiny: {{capacity: spot, provider: {provider}, node: {{cpu: 500m, memory: 1Gi}}}}\n"
    )

    assert assigned(pod_of(place(a_job(), settings)), settings, union=False) == ["spot", "regular"]


def test_work_without_gpus_is_kept_off_the_flavors_of_gpu_pools() -> None:
    more = f"  gpu-spot: {{capacity: spot, provider: aks, {GPU_NODE}}}\n"
    more += f"  gpu: {{capacity: on-demand, provider: aks, {GPU_NODE}}}\n"
    settings = a_config("aks", more=more)

    assert assigned(pod_of(place(a_job(), settings)), settings, union=False) == ["spot", "regular"]


def test_conditions_are_added_to_every_alternative_of_the_users_affinity() -> None:
    terms = [{"matchExpressions": [{"key": "team", "operator": one}]} for one in ("Exists", "DoesNotExist")]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pod = pod_of(place(a_job(f"      affinity: {json.dumps(affinity)}\n"), a_config("aks", "require")))

    required = at_path(pod, f"{AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
    assert [len(term["matchExpressions"]) for term in required] == [3, 3]


def test_work_in_no_queue_is_placed_as_before() -> None:
    placed = place(a_job(labels="{}"), a_config("aks"))

    assert at_path(pod_of(placed), f"{AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution")
    assert placed.roles[0].queue == ""


def test_explain_says_what_kueue_decides_and_what_it_does_not_keep() -> None:
    settings = a_config("eks")
    placed = {FILE: place_text(a_job(), FILE, settings, options=PlaceOptions(only_explain=True))}
    text = explanation_text(placed, settings)
    role = explanation_json(placed, settings)["files"][FILE]["roles"][0]

    assert "in the queue team: Kueue takes the first flavor that matches and has quota, of spot, regular" in text
    assert "fall_back_after and pending_timeout have no effect" in text
    assert role["queue"].startswith("team: ")
    assert role["policy"]["spot"]["enforcement"] == "Kueue, by the order of its flavors"
    for field in ("fall_back_after", "pending_timeout"):
        assert role["policy"][field]["enforcement"] == "nothing: Kueue goes on to the next flavor by quota alone"


def test_a_pool_that_no_label_tells_apart_is_named() -> None:
    more = "  small: {capacity: spot, provider: generic, labels: {capacity: spot}, node: {cpu: 500m, memory: 1Gi}}\n"
    placed = place(a_job(), a_config("generic", own="capacity", more=more))

    assert any("Kueue may also assign small, whose nodes no label tells apart" in one.text for one in placed.findings)


def test_a_ladder_against_the_order_of_the_flavors_is_named() -> None:
    text = a_config("aks", more=f"  cheap: {{capacity: spot, provider: aks, {NODE}, price: 0.01/h}}\n").text
    tasks = "policy: {tasks: {train: {ladder: [spot, cheap, regular]}}, default: "
    placed = place(a_job(), config.parse(text.replace("policy: {default: ", tasks)))

    assert any("is not the order of the flavors (cheap, spot, regular)" in one.text for one in placed.findings)


CRON = f"""\
apiVersion: batch/v1
kind: CronJob
metadata: {{name: nightly}}
spec:
  schedule: "0 1 * * *"
  jobTemplate:
    metadata: {{labels: {{{QUEUE}: team}}}}
    spec: {{template: {{spec: {{containers: [{{name: main, image: python}}]}}}}}}
"""


def test_the_jobs_of_a_cron_job_are_queued_by_the_label_of_their_template() -> None:
    settings = a_config("aks", "require")
    pod = pod_of(place(CRON, settings), "spec.jobTemplate.spec.template.spec")

    assert assigned(pod, settings, union=False) == ["spot"]


def test_a_queue_that_kueue_does_not_read_is_named() -> None:
    text = CRON.replace("metadata: {name: nightly}", f"metadata: {{name: nightly, labels: {{{QUEUE}: team}}}}")
    placed = place(text.replace(f"    metadata: {{labels: {{{QUEUE}: team}}}}\n", ""), a_config("aks"))

    assert any("write this label in spec.jobTemplate.metadata" in one.text for one in placed.findings)
    assert placed.roles[0].queue == ""


def roles_of(names: list[str]) -> Iterator[str]:
    for name in names:
        yield f"    {name}: {{template: {{spec: {{containers: [{{name: pytorch, image: torch}}]}}}}}}\n"


def test_each_role_of_a_job_gets_flavors_of_its_own() -> None:
    text = f"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: t, labels: {{{QUEUE}: team}}}}\nspec:\n"
    text += "  pytorchReplicaSpecs:\n" + "".join(roles_of(["Master", "Worker"]))
    settings = a_config("gke")
    placed = place(text, settings)
    pods = [pod_of(placed, f"spec.pytorchReplicaSpecs.{name}.template.spec") for name in ("Master", "Worker")]

    assert [assigned(pod, settings, union=False) for pod in pods] == [["regular"], ["spot", "regular"]]


@pytest.mark.parametrize(("region", "label"), [(", region: eastus", "eastus-1"), ("", None)])
def test_a_flavor_of_aks_names_a_zone_as_its_nodes_do_or_not_at_all(region: str, label: str | None) -> None:
    pools = config.parse(
        f'version: 1\npools:\n  spot: {{capacity: spot, provider: aks, zones: ["1"], {NODE}{region}}}\n'
    ).pools
    assert flavor_labels(pools["spot"]).get("topology.kubernetes.io/zone") == label
