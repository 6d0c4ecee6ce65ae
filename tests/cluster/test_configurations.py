"""ConfigMaps: the policy of a namespace above that of the cluster, and the last good text in force."""

from __future__ import annotations

from typing import Any

from spotwright.cluster.admission.configurations import Configurations

CLUSTER = """\
version: 1
pools:
  spotpool: {capacity: spot, provider: aks}
  agentpool: {capacity: on-demand, provider: aks}
policy:
  default: {spot: prefer, interruptions: {max: 3}}
"""
OWN = """\
version: 1
policy:
  default: {interruptions: {max: 8}}
  tasks:
    train: {ladder: [spotpool]}
"""


def config_map(text: str) -> dict[str, Any]:
    return {"data": {"spotwright.yaml": text}}


def configurations(**texts: str) -> Configurations:
    found = Configurations("spotwright")
    found.apply("spotwright", config_map(CLUSTER))
    for namespace, text in texts.items():
        found.apply(namespace.replace("_", "-"), config_map(text))
    return found


def values(found: Configurations, namespace: str) -> dict[str, Any]:
    config = found.of(namespace)
    assert config is not None
    assert config.policy_default is not None
    return dict(config.policy_default.values)


def test_a_namespace_without_a_config_map_has_the_cluster_s_configuration() -> None:
    assert values(configurations(), "team-a") == {"spot": "prefer", "interruptions.max": 3}


def test_a_namespace_s_policy_is_stronger_and_uses_the_cluster_s_pools() -> None:
    found = configurations(team_a=OWN)
    config = found.of("team-a")
    assert config is not None
    assert values(found, "team-a") == {"spot": "prefer", "interruptions.max": 8}
    assert list(config.pools) == ["spotpool", "agentpool"]
    assert found.problems == []


def test_a_namespace_s_own_pools_are_used_instead_of_the_cluster_s() -> None:
    own = "version: 1\npools: {mine: {capacity: spot, provider: gke}}\n"
    config = configurations(team_a=own).of("team-a")
    assert config is not None
    assert list(config.pools) == ["mine"]


def test_a_wrong_text_leaves_the_last_good_one_in_force_and_names_its_line() -> None:
    found = configurations(team_a=OWN)
    found.apply("team-a", config_map(OWN.replace("max: 8", "max: many")))
    assert values(found, "team-a")["interruptions.max"] == 8
    [problem] = found.problems
    assert problem.namespace == "team-a"
    assert "spotwright.yaml:3: policy.default.interruptions.max" in problem.message


def test_a_text_that_was_never_good_leaves_the_cluster_s_in_force() -> None:
    found = configurations(team_a="{")
    assert values(found, "team-a")["interruptions.max"] == 3
    assert len(found.problems) == 1


def test_a_mended_text_ends_the_problem() -> None:
    found = configurations(team_a="{")
    found.apply("team-a", config_map(OWN))
    assert found.problems == []


def test_a_deleted_config_map_ends_its_policy() -> None:
    found = configurations(team_a=OWN)
    found.apply("team-a", None)
    assert values(found, "team-a")["interruptions.max"] == 3


def test_new_pools_of_the_cluster_reach_every_namespace() -> None:
    found = configurations(team_a=OWN)
    found.apply("spotwright", config_map(CLUSTER.replace("agentpool:", "regular:")))
    config = found.of("team-a")
    assert config is not None
    assert list(config.pools) == ["spotpool", "regular"]


def test_pools_that_a_namespace_s_ladder_misses_are_a_problem_of_the_namespace() -> None:
    found = configurations(team_a=OWN)
    found.apply("spotwright", config_map(CLUSTER.replace("spotpool:", "other:")))
    assert [problem.namespace for problem in found.problems] == ["team-a"]


def test_without_any_config_map_there_is_no_configuration() -> None:
    assert Configurations("spotwright").of("team-a") is None
