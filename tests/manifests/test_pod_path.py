"""Kinds that are not known, placed where the user says their pods are."""

from __future__ import annotations

import pytest

from spotwright.config import Config, parse
from spotwright.errors import InputError
from spotwright.manifests.context import Options
from spotwright.manifests.documents import parse as parse_yaml
from spotwright.manifests.files import place_text, unplace_text
from spotwright.manifests.kinds.unknown import read_pod_path

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


@pytest.fixture
def config() -> Config:
    return parse("""\
version: 1
pools:
  spotpool: {capacity: spot, provider: aks}
  agentpool: {capacity: on-demand, provider: aks}
policy: {default: {spot: require}}
""")


def test_a_kind_that_is_not_known_passes_through_and_is_said(config: Config) -> None:
    placed = place_text(WORKLOAD, "r2.yaml", config)
    assert placed.text == WORKLOAD
    assert "passes through untouched" in placed.findings[0].text


def test_its_pods_are_placed_where_the_user_says_they_are(config: Config) -> None:
    path = read_pod_path("spec.arms[0].template.spec")
    placed = place_text(WORKLOAD, "r2.yaml", config, options=Options(pod_paths=(path,)))
    spec = parse_yaml(placed.text, "r2.yaml")[0].get(path)
    assert [t["key"] for t in spec["tolerations"]] == ["kubernetes.azure.com/scalesetpriority"]
    assert unplace_text(placed.text, "r2.yaml").text == WORKLOAD


def test_what_the_kind_does_after_an_interruption_is_said_not_to_be_known(config: Config) -> None:
    options = Options(pod_paths=(read_pod_path("spec.arms[0].template.spec"),))
    placed = place_text(WORKLOAD, "r2.yaml", config, options=options)
    assert placed.roles[0].after_interruption == "what Robot does when a pod is lost is not known here"


@pytest.mark.parametrize("text", ["", "spec..template", "spec.tasks[x]", "[", "spec."])
def test_a_path_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected the path of a pod spec"):
        read_pod_path(text)
