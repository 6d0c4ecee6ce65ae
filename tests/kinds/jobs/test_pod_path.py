"""Objects of any kind are placed at the paths that the user names."""

from __future__ import annotations

import pytest

from spotwright.config import Config, parse
from spotwright.errors import InputError
from spotwright.kinds.unknown import find_pod_specs, read_pod_path
from spotwright.manifests.files import PlacedFile, place_text, unplace_text
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
