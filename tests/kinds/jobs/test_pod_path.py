"""Objects of any kind are placed at the paths that the user names."""

from __future__ import annotations

import pytest

from spotwright.config import Config, parse
from spotwright.errors import InputError
from spotwright.kinds.unknown import find_pod_specs, read_pod_path
from spotwright.manifests.files import PlacedFile, place_text, place_texts, unplace_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import parse as parse_yaml
from spotwright.placing.documents import show
from spotwright.placing.patch import value_at

WORKLOAD = """\
apiVersion: example.com/v1
kind: Robot
metadata:
  name: r2
spec:
  arms:
  - template:
      spec:
        containers:
        - name: arm  # the left one
          image: arm
"""


POOLS = "{spotpool: {capacity: spot, provider: aks}, agentpool: {capacity: on-demand, provider: aks}}"


@pytest.fixture
def config() -> Config:
    return parse("""\
version: 1
pools:
  spotpool: {capacity: spot, provider: aks}
  agentpool: {capacity: on-demand, provider: aks}
policy: {default: {spot: require}}
""")


def test_an_unknown_kind_stays_unchanged_with_a_warning(config: Config) -> None:
    placed = place_text(WORKLOAD, "r2.yaml", config)
    assert placed.text == WORKLOAD
    assert "stays unchanged" in placed.findings[0].text


def test_its_pods_are_placed_where_the_user_says_they_are(config: Config) -> None:
    path = read_pod_path("spec.arms[0].template.spec")
    placed = place_text(WORKLOAD, "r2.yaml", config, options=PlaceOptions(pod_paths=(path,)))
    spec = parse_yaml(placed.text, "r2.yaml")[0].get(path)
    assert [t["key"] for t in spec["tolerations"]] == ["kubernetes.azure.com/scalesetpriority"]
    assert unplace_text(placed.text, "r2.yaml").text == WORKLOAD


def test_the_effect_of_an_interruption_on_an_unknown_kind_is_reported_as_unknown(config: Config) -> None:
    options = PlaceOptions(pod_paths=(read_pod_path("spec.arms[0].template.spec"),))
    placed = place_text(WORKLOAD, "r2.yaml", config, options=options)
    assert (
        placed.roles[0].after_interruption == "unknown: Spotwright does not know what a Robot does when it loses a pod"
    )


@pytest.mark.parametrize("text", ["", "spec..template", "spec.tasks[x]", "[", "spec.", "spec.tasks[**]"])
def test_a_path_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected the path of a pod spec"):
        read_pod_path(text)


FLEET = """\
apiVersion: example.com/v1
kind: Fleet
metadata: {name: fleet}
spec:
  captain:
    template:
      spec: {containers: [{name: captain, image: captain}]}
  crews:
  - name: Red
    template:
      spec: {containers: [{name: crew, image: crew}]}  # paid by the day
  - template:
      spec: {containers: [{name: crew, image: crew}]}
  - name: without-pods
  boats:
    left: {template: {spec: {containers: [{name: boat, image: boat}]}}}
    right: {template: {spec: {containers: [{name: boat, image: boat}]}}}
"""


def placed_at(config: Config, *paths: str, text: str = FLEET) -> PlacedFile:
    options = PlaceOptions(pod_paths=tuple(read_pod_path(path) for path in paths))
    placed = place_text(text, "fleet.yaml", config, options=options)
    assert place_text(placed.text, "fleet.yaml", config, options=options).text == placed.text
    assert unplace_text(placed.text, "fleet.yaml").text == text
    return placed


def tolerating(placed: PlacedFile) -> list[str]:
    """The paths of the pod specs that tolerate spot nodes."""
    value = parse_yaml(placed.text, "fleet.yaml")[0].get(())
    every = find_pod_specs(value, [read_pod_path(f"spec.{path}") for path in ("captain.template", "crews[*].template")])
    every += find_pod_specs(value, [read_pod_path("spec.boats.*.template.spec")])
    return [show(path) for path in every if value_at(value, (*path, "tolerations"))]


def test_a_wildcard_places_every_item_of_a_list_that_has_pods(config: Config) -> None:
    assert tolerating(placed_at(config, "spec.crews[*].template.spec")) == [
        "spec.crews[0].template.spec",
        "spec.crews[1].template.spec",
    ]


@pytest.mark.parametrize("path", ["spec.boats.*.template.spec", "spec.boats[*].template.spec"])
def test_a_wildcard_places_every_value_of_a_mapping(config: Config, path: str) -> None:
    assert tolerating(placed_at(config, path)) == ["spec.boats.left.template.spec", "spec.boats.right.template.spec"]


@pytest.mark.parametrize("path", ["crews[0].template.spec", "spec.crews[0].template", "crews[0].template"])
def test_a_path_may_begin_below_spec_and_end_at_the_template(config: Config, path: str) -> None:
    assert tolerating(placed_at(config, path)) == ["spec.crews[0].template.spec"]


def test_several_paths_are_roles_with_names_of_their_own(config: Config) -> None:
    placed = placed_at(
        config, "spec.captain.template.spec", "spec.crews[*].template.spec", "spec.boats.*.template.spec"
    )

    assert [role.policy_path for role in placed.roles] == [
        *("fleet/captain", "fleet/red", "fleet/crews-1", "fleet/left", "fleet/right")
    ]


def test_a_policy_of_one_role_applies_to_its_pods_alone() -> None:
    tasks = '{"fleet/captain": {spot: never}}'
    config = parse(f"version: 1\npools: {POOLS}\npolicy: {{default: {{spot: require}}, tasks: {tasks}}}\n")

    assert tolerating(placed_at(config, "captain.template.spec", "crews[*].template.spec")) == [
        "spec.crews[0].template.spec",
        "spec.crews[1].template.spec",
    ]


@pytest.mark.parametrize("kind", ["Notebook", "InferenceService"])
def test_a_kind_that_is_left_unchanged_by_itself_is_placed_at_the_path(config: Config, kind: str) -> None:
    group = {"Notebook": "kubeflow.org/v1", "InferenceService": "serving.kserve.io/v1beta1"}[kind]
    pods = "{template: {spec: {containers: [{name: n}]}}}"
    text = f"apiVersion: {group}\nkind: {kind}\nmetadata: {{name: n}}\nspec: {pods}\n"
    placed = placed_at(config, "spec.template.spec", text=text)

    assert [role.pools for role in placed.roles] == [("spotpool",)]
    assert not any("stays unchanged" in finding.text for finding in placed.findings)


def test_pods_that_a_kind_places_by_itself_are_placed_once_and_others_beside_them(config: Config) -> None:
    text = """\
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  template: {spec: {containers: [{name: main}]}}
  probe: {spec: {containers: [{name: probe}]}}
"""
    placed = placed_at(config, "spec.template.spec", "spec.probe.spec", text=text)

    assert [role.name for role in placed.roles] == ["job", "spec.probe.spec"]


def test_a_path_that_leads_to_no_pods_is_named(config: Config) -> None:
    placed = placed_at(config, "spec.ships[*].template.spec")

    assert placed.text == FLEET
    assert "no pod spec at spec.ships[*].template.spec" in placed.findings[0].text


SPARK_OF_ANOTHER_GROUP = """\
apiVersion: spark.example.com/v1alpha1
kind: SparkApplication
metadata: {name: etl}
spec:
  executor:
    replicas: 3
    podOverrides:
      spec:
        serviceAccountName: etl  # laid over the operator's own pods
"""


def test_a_known_name_in_another_group_is_another_kind(config: Config) -> None:
    placed = place_text(SPARK_OF_ANOTHER_GROUP, "etl.yaml", config)

    assert placed.text == SPARK_OF_ANOTHER_GROUP
    [finding] = placed.findings
    assert "a SparkApplication of sparkoperator.k8s.io/v1beta2 is placed" in finding.text
    assert "of this one, name the path of its pod spec with --pod-path" in finding.text


@pytest.mark.parametrize(
    "path", ["spec.executor.podOverrides", "spec.executor.podOverrides.spec", "executor.podOverrides"]
)
def test_what_an_operator_lays_over_its_pods_is_placed_at_the_path(config: Config, path: str) -> None:
    placed = placed_at(config, path, text=SPARK_OF_ANOTHER_GROUP)
    spec = parse_yaml(placed.text, "etl.yaml")[0].get(("spec", "executor", "podOverrides", "spec"))

    assert [one["key"] for one in spec["tolerations"]] == ["kubernetes.azure.com/scalesetpriority"]
    assert spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    texts = [finding.text for finding in placed.findings]
    assert not any("no API server knows" in text for text in texts)
    assert any("it has no containers, so the requests of its pods are not known" in text for text in texts)


def test_the_version_of_a_kind_of_another_group_is_not_corrected(config: Config) -> None:
    text = SPARK_OF_ANOTHER_GROUP.replace("serviceAccountName: etl", "containers: [{name: spark}]")
    placed = placed_at(config, "spec.executor.podOverrides", text=text)

    assert placed.roles[0].pools == ("spotpool",)
    assert not any("write sparkoperator.k8s.io" in finding.text for finding in placed.findings)


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  template: {spec: {containers: [{name: main}]}}
"""


def test_a_path_that_leads_nowhere_is_named_once_for_all_files(config: Config) -> None:
    options = PlaceOptions(pod_paths=(read_pod_path("spec.tempalte.spec"), read_pod_path("spec.template.spec")))
    files = place_texts([("a.yaml", JOB), ("b.yaml", JOB)], config, options=options)

    warnings = [finding.text for file in files for finding in file.findings if "--pod-path" in finding.text]
    assert warnings == [
        "--pod-path spec.tempalte.spec leads to no pod spec in these files: correct the path, or leave it out"
    ]


def test_a_path_that_an_object_has_named_already_is_not_named_again(config: Config) -> None:
    placed = placed_at(config, "spec.ships[*].template.spec")

    assert len([finding for finding in placed.findings if "--pod-path" in finding.text]) == 1


WITH_CHECKPOINTS = f"version: 1\npools: {POOLS}\npolicy: {{default: {{spot: require, checkpoint: pvc://saves}}}}\n"


def folder_of(placed: PlacedFile, path: str) -> str:
    """The folder for checkpoints in the volume, with what the variable of the run stands for."""
    spec = parse_yaml(placed.text, "fleet.yaml")[0].get(read_pod_path(path))
    [container] = spec["containers"]
    run = next(one for one in container["env"] if one["name"] == "SPOTWRIGHT_RUN")
    [mount] = container["volumeMounts"]
    folder: str = mount["subPathExpr"]
    return folder.replace("$(SPOTWRIGHT_RUN)", run.get("value") or f"<{run['valueFrom']['fieldRef']['fieldPath']}>")


def a_service(kind: str = "Deployment", metadata: str = "name: queue", replicas: int = 1) -> str:
    return (
        f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{{metadata}}}\nspec:\n  replicas: {replicas}\n"
        "  template:\n    spec:\n      containers:\n      - {name: main, image: worker}\n"
    )


def test_the_place_for_checkpoints_of_a_deployment_survives_its_pods() -> None:
    placed = placed_at(parse(WITH_CHECKPOINTS), "spec.template.spec", text=a_service())

    assert folder_of(placed, "spec.template.spec") == "queue/queue"


def test_each_pod_of_a_stateful_set_has_a_place_of_its_own_because_its_name_stays() -> None:
    placed = placed_at(parse(WITH_CHECKPOINTS), "spec.template.spec", text=a_service("StatefulSet", replicas=3))

    assert folder_of(placed, "spec.template.spec") == "<metadata.name>/queue"
    assert not any("share one place" in finding.text for finding in placed.findings)


def test_pods_that_share_a_place_for_checkpoints_are_named() -> None:
    placed = placed_at(parse(WITH_CHECKPOINTS), "spec.template.spec", text=a_service(replicas=3))

    assert any("its pods share one place for checkpoints" in finding.text for finding in placed.findings)


def test_a_place_for_checkpoints_that_is_lost_with_the_pod_is_named() -> None:
    text = a_service(metadata="generateName: queue-")
    placed = placed_at(parse(WITH_CHECKPOINTS), "spec.template.spec", text=text)

    assert any("replace generateName by metadata.name" in finding.text for finding in placed.findings)
