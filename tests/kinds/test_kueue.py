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
from tests.linter.linting import found_in
from tests.placing.placed import FILE, assert_unplaces, at_path

from spotwright import config
from spotwright.config import Config
from spotwright.kinds.kueue import QueueOptions, queue_lines
from spotwright.linter.rule import AKS_POOLS, ON_SPOT, job
from spotwright.manifests.files import PlacedFile, place_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import ManifestError, References, parse
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


@pytest.mark.parametrize("provider", ["generic", "oke"])
@pytest.mark.parametrize("spot", ["require", "never"])
def test_pools_whose_name_no_label_has_are_told_apart_by_their_own_labels(spot: str, provider: str) -> None:
    settings = a_config(provider, spot, own="capacity")
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

    assert any("Kueue may also assign small, whose nodes no label distinguishes" in one.text for one in placed.findings)


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


FLAVOR = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n---\n"
CHEAP = FLAVOR.format(
    name="cheap",
    spec="nodeLabels: {kubernetes.azure.com/scalesetpriority: spot}, nodeTaints: [{key: kubernetes.azure.com/scalesetpriority, "
    "value: spot, effect: NoSchedule}]",
)
DEAR = FLAVOR.format(name="dear", spec="nodeLabels: {kubernetes.azure.com/agentpool: regular}")


def a_queue(*flavors: str, name: str = "team", namespace: str = "ml") -> str:
    """A LocalQueue with its ClusterQueue, whose flavors have this order."""
    listed = ", ".join(f"{{name: {flavor}}}" for flavor in flavors)
    return (
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: shared}\n"
        f"spec: {{resourceGroups: [{{coveredResources: [cpu, memory], flavors: [{listed}]}}]}}\n---\n"
        f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        "spec: {clusterQueue: shared}\n"
    )


def beside(text: str, queue: str, settings: Config) -> PlacedFile:
    """Place a text with the objects of its queue as files of ``--with``."""
    references = References(parse(queue, "queue.yaml"))
    placed = place_text(text, FILE, settings, references, PlaceOptions(only_explain=True))
    assert_unplaces(text, placed.text)
    return placed


def messages(placed: PlacedFile) -> str:
    return "\n".join(str(finding) for finding in placed.findings)


UNLABELLED = a_job(labels="{}").replace("name: train", "name: train, namespace: ml")


def test_the_flavors_of_the_queue_count_in_their_own_order() -> None:
    placed = beside(a_job(), DEAR + CHEAP + a_queue("cheap", "dear"), a_config("aks"))

    assert "in the order of ClusterQueue shared (queue.yaml:14): cheap, dear" in messages(placed)
    assert placed.roles[0].queue.endswith("of cheap, dear, in ClusterQueue shared (queue.yaml:14)")
    assert "put the spot flavors first" not in messages(placed)


def test_a_queue_that_has_on_demand_before_spot_is_named_because_prefer_is_its_order() -> None:
    placed = beside(a_job(), DEAR + CHEAP + a_queue("dear", "cheap"), a_config("aks"))

    assert (
        "warning: job: ClusterQueue shared (queue.yaml:14) has the flavor dear (on-demand) before cheap (spot)"
        in messages(placed)
    )
    assert placed.roles[0].enforced("spot").text == "nothing: its queue has on-demand before spot"
    required = beside(a_job(), DEAR + CHEAP + a_queue("dear", "cheap"), a_config("aks", "require"))
    assert "put the spot flavors first" not in messages(required)
    assert required.roles[0].queue.endswith("of cheap, in ClusterQueue shared (queue.yaml:14)")


def test_a_queue_without_a_flavor_that_the_work_may_have_never_admits_it() -> None:
    placed = beside(a_job(), DEAR + a_queue("dear"), a_config("aks", "require"))

    assert "has no flavor of its pools (spot) that it may have, so it is never admitted" in messages(placed)


def test_a_flavor_whose_taint_the_work_does_not_tolerate_is_named() -> None:
    spec = (
        "nodeLabels: {kubernetes.azure.com/agentpool: regular}, nodeTaints: [{key: team, value: b, effect: NoSchedule}]"
    )
    placed = beside(a_job(), CHEAP + FLAVOR.format(name="dear", spec=spec) + a_queue("cheap", "dear"), a_config("aks"))

    assert "Kueue never assigns the flavor dear" in messages(placed)
    assert "it does not tolerate the taint team=b:NoSchedule" in messages(placed)
    tolerated = spec + ", tolerations: [{key: team, operator: Exists}]"
    queue = CHEAP + FLAVOR.format(name="dear", spec=tolerated) + a_queue("cheap", "dear")
    assert "Kueue never assigns" not in messages(beside(a_job(), queue, a_config("aks")))


SYSTEM = FLAVOR.format(name="system", spec="nodeLabels: {pool: system}")


def test_work_that_must_have_its_labels_is_kept_off_a_flavor_of_no_pool() -> None:
    placed = beside(a_job(), CHEAP + DEAR + SYSTEM + a_queue("cheap", "dear", "system"), a_config("aks", "require"))

    assert {"key": "pool", "operator": "NotIn", "values": ["system"]} in required_of(placed)


def test_work_that_only_prefers_spot_may_have_a_flavor_of_no_pool_as_without_us() -> None:
    placed = beside(a_job(), CHEAP + DEAR + SYSTEM + a_queue("cheap", "dear", "system"), a_config("aks"))

    assert required_of(placed) == []


@pytest.mark.parametrize("spot", ["prefer", "require"])
def test_work_whose_queue_has_flavors_of_no_pool_alone_is_kept_off_none_of_them(spot: str) -> None:
    placed = beside(a_job(), SYSTEM + a_queue("system"), a_config("aks", spot))

    assert [one for one in required_of(placed) if one["operator"] == "NotIn"] == []


def required_of(placed: PlacedFile) -> list[Any]:
    """The required conditions of the only term."""
    terms = at_path(pod_of(placed), f"{AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
    return [one for term in terms or [] for one in term["matchExpressions"]]


GKE_L4 = "cloud.google.com/gke-accelerator: nvidia-l4"


def test_a_flavor_by_a_label_that_the_machine_tells_is_that_of_its_pools() -> None:
    l4 = "machine: g2-standard-8, node: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}"
    more = f"  l4-spot: {{capacity: spot, provider: gke, {l4}}}\n  l4: {{capacity: on-demand, provider: gke, {l4}}}\n"
    flavors = FLAVOR.format(name="a", spec=f'nodeLabels: {{{GKE_L4}, cloud.google.com/gke-spot: "true"}}')
    flavors += FLAVOR.format(name="b", spec=f"nodeLabels: {{{GKE_L4}, cloud.google.com/gke-provisioning: standard}}")
    text = a_job().replace("cpu: 1, memory: 1Gi}", "cpu: 1}, limits: {nvidia.com/gpu: 1}")
    placed = beside(text, flavors + a_queue("a", "b"), a_config("gke", more=more))

    assert "in the order of ClusterQueue shared (queue.yaml:14): a, b" in messages(placed)
    assert required_of(placed) == []


def test_the_old_label_of_an_aks_pool_names_it_as_the_new_one_does() -> None:
    old = DEAR.replace("kubernetes.azure.com/agentpool", "agentpool")
    placed = beside(a_job(), old + CHEAP + a_queue("dear", "cheap"), a_config("aks"))

    assert "in the order of ClusterQueue shared (queue.yaml:14): dear, cheap" in messages(placed)
    assert "put the spot flavors first" in messages(placed)
    assert required_of(placed) == []


def test_the_flavor_of_a_pool_by_a_label_that_nobody_writes_is_completed() -> None:
    flavor = FLAVOR.format(name="dear", spec="nodeLabels: {agentpool: regular}").removesuffix("---\n")
    placed = place(flavor, a_config("aks"))

    assert plain_yaml.load(placed.text)["spec"]["nodeLabels"]["kubernetes.azure.com/agentpool"] == "regular"


def test_no_condition_excludes_the_nodes_of_a_flavor_in_use_by_a_label_that_it_does_not_name() -> None:
    """Every node has the label of its operating system, whether its flavor names it or not."""
    tiny = "  tiny: {capacity: spot, provider: aks, node: {cpu: 500m, memory: 1Gi}}\n"
    small = FLAVOR.format(name="tiny", spec="nodeLabels: {kubernetes.io/os: linux}")
    placed = beside(a_job(), CHEAP + DEAR + small + a_queue("cheap", "dear", "tiny"), a_config("aks", more=tiny))

    assert required_of(placed) == []


def test_a_flavor_that_no_file_shows_is_named_unless_it_has_the_name_of_a_pool() -> None:
    shown = messages(beside(a_job(), a_queue("spot", "regular"), a_config("aks")))
    assert "unknown flavors" not in shown
    assert "in the order of ClusterQueue shared (queue.yaml:4): spot, regular" in shown

    hidden = messages(beside(a_job(), a_queue("spot", "old"), a_config("aks")))
    assert "has unknown flavors (old): give their ResourceFlavors with --with" in hidden


def test_the_only_cluster_queue_counts_where_no_file_shows_the_local_queue() -> None:
    without, name = a_queue("dear", "cheap").partition("---")[0], "in the order of ClusterQueue shared (queue.yaml:14)"

    assert f"{name}: dear, cheap" in messages(beside(a_job(), DEAR + CHEAP + without, a_config("aks")))
    both = f"{DEAR}{CHEAP}{without}---\n{without.replace('shared', 'other')}"
    assert "in the order of" not in messages(beside(a_job(), both, a_config("aks")))


def test_flavors_without_a_cluster_queue_are_those_of_their_pools_in_the_assumed_order() -> None:
    placed = beside(a_job(), DEAR + FLAVOR.format(name="any", spec=""), a_config("aks"))

    assert "leave these flavors, to be in this order: spot, dear" in messages(placed)


def test_a_flavor_with_the_name_of_one_pool_and_the_labels_of_another_is_that_of_its_labels() -> None:
    swapped = FLAVOR.format(name="spot", spec="nodeLabels: {kubernetes.azure.com/agentpool: regular}")
    placed = beside(a_job(), swapped + a_queue("spot"), a_config("aks", "never"))

    assert placed.roles[0].queue.endswith("of spot, in ClusterQueue shared (queue.yaml:9)")
    assert "never admitted" not in messages(placed)


def test_a_ladder_in_another_order_than_the_queue_is_named() -> None:
    settings = a_config(
        "aks", policy=", ladder: [spot, more, regular]", more=f"  more: {{capacity: spot, provider: aks, {NODE}}}\n"
    )
    texts = messages(beside(a_job(), a_queue("more", "spot", "regular"), settings))

    assert "its ladder (spot, more, regular) is not the order of the flavors (more, spot, regular)" in texts
    assert "is not the order" not in messages(beside(a_job(), a_queue("spot", "more", "regular"), settings))


def test_work_that_names_no_queue_is_in_the_default_one_of_its_namespace() -> None:
    queue = CHEAP + DEAR + a_queue("cheap", "dear", name="default")
    placed = beside(UNLABELLED, queue, a_config("aks"))

    assert "it names no queue, so Kueue puts it into the LocalQueue default of its namespace" in messages(placed)
    assert placed.roles[0].queue.startswith("default: ")
    assert "affinity" not in pod_of(placed)
    own = place_text(f"{UNLABELLED}---\n{queue}", FILE, a_config("aks"))
    assert "LocalQueue default of its namespace (work.yaml:" in messages(own)


@pytest.mark.parametrize(
    ("text", "queue", "release"),
    [
        (UNLABELLED, a_queue("spot", name="default", namespace="other"), ""),
        (UNLABELLED, a_queue("spot", name="default", namespace="null"), ""),
        (UNLABELLED, a_queue("spot", name="team"), ""),
        (UNLABELLED, a_queue("spot", name="default").replace("kueue.x-k8s.io", "queues.example.com"), ""),
        (UNLABELLED, a_queue("spot", name="default"), "target: {kueue: '0.11'}\n"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ml}\nspec: {containers: [{name: main, image: a}]}\n",
            a_queue("spot", name="default"),
            "",
        ),
    ],
)
def test_the_default_queue_of_others_is_not_that_of_the_work(text: str, queue: str, release: str) -> None:
    settings = config.parse(
        f"version: 1\npools: {{spot: {{capacity: spot, provider: aks}}, od: {{capacity: on-demand, provider: aks}}}}\n{release}"
        "policy: {default: {spot: prefer}}\n"
    )
    placed = beside(text, queue, settings)

    assert placed.roles[0].queue == ""


def test_the_jobs_of_a_cron_job_are_in_the_default_queue() -> None:
    inner = UNLABELLED.split("spec:", 1)[1].replace("\n", "\n    ")
    text = (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly, namespace: ml}\nspec:\n  schedule: '@daily'\n"
        f"  concurrencyPolicy: Forbid\n  jobTemplate:\n    spec:{inner.rstrip()}\n"
    )
    placed = beside(text, a_queue("spot", "regular", name="default"), a_config("aks"))

    assert placed.roles[0].queue.startswith("default: ")
    assert "does not read the queue's name here" not in messages(placed)


def test_an_object_of_a_queue_with_another_shape_is_refused_at_its_line() -> None:
    broken = a_queue("spot").replace("flavors: [{name: spot}]", "flavors: spot")

    with pytest.raises(ManifestError, match=r"queue\.yaml:4: spec\.resourceGroups\[0\]\.flavors: expected a list"):
        beside(a_job(), broken, a_config("aks"))


def test_lint_knows_the_default_queue_of_the_same_file() -> None:
    text = job(ON_SPOT).replace("  name: train\n", "  name: train\n  namespace: ml\n")
    queues = {name: f"{text}---\n{a_queue('spot', name='default', namespace=name)}" for name in ("ml", "other", "null")}

    for name in ("other", "null"):
        assert [one.rule for one in found_in(queues[name], AKS_POOLS)] == ["preference-ignored"]
    assert found_in(queues["ml"], AKS_POOLS) == []
