"""Settings of the test bed: defaults, overrides by the environment, and messages for impossible values."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.errors import TestbedError
from testbed.settings import Settings


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = Settings.from_environment({})
    assert (settings.nodes, settings.cloud, settings.port) == (3, "aks", 16443)
    assert settings.controllers == ("argo", "jobset", "trainer", "kueue")


def test_the_cache_lies_outside_the_tree_where_the_desktop_standard_says() -> None:
    assert Settings.from_environment({"XDG_CACHE_HOME": "/caches"}).cache == Path("/caches/spotwright/testbed")
    assert Settings.from_environment({"TESTBED_CACHE": "/elsewhere"}).cache == Path("/elsewhere")
    assert Settings.from_environment({}).cache == Path.home() / ".cache/spotwright/testbed"


def test_the_environment_overrides_each_setting() -> None:
    settings = Settings.from_environment(
        {"TESTBED_NAME": "mine", "TESTBED_CLOUD": "GKE", "TESTBED_NODES": "5", "TESTBED_CONTROLLERS": "argo, kwok"}
    )
    assert (settings.name, settings.cloud, list(settings.numbers)) == ("mine", "gke", [1, 2, 3, 4, 5])
    assert settings.controllers == ("argo", "kwok")
    assert Settings.from_environment({"TESTBED_CONTROLLERS": "none"}).controllers == ()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NAME", "much-too-long", "up to 9 letters"),
        ("CLOUD", "oracle", "use one of aks, gke, eks"),
        ("NODES", "51", "a whole number from 0 to 50"),
        ("PRETENDED", "500", "add kwok to TESTBED_CONTROLLERS"),
        ("PORT", "many", "a whole number from 1 to 65535"),
        ("CONTROLLERS", "argo,airflow", "there is no airflow"),
        ("CONTROLLERS", "karpenter", "add kwok"),
        ("SHUTDOWN_GRACE_CRITICAL", "40", "cannot exceed it"),
    ],
)
def test_a_setting_that_cannot_be_names_its_variable_and_what_is_possible(name: str, value: str, message: str) -> None:
    with pytest.raises(TestbedError, match=f"TESTBED_{name}.*") as raised:
        Settings.from_environment({f"TESTBED_{name}": value})
    assert message in str(raised.value)


def test_a_control_plane_alone_with_pretended_nodes_waits_longer_for_their_heartbeats() -> None:
    settings = Settings.from_environment(
        {"TESTBED_NODES": "0", "TESTBED_PRETENDED": "500", "TESTBED_CONTROLLERS": "kwok"}
    )
    assert (list(settings.numbers), settings.pretended) == ([], 500)
    assert settings.silence > 50, "KWOK renews the lease of a node every 50 s"
    ordered = Settings.from_environment({"TESTBED_NODES": "0", "TESTBED_CONTROLLERS": "kwok,karpenter"})
    assert ordered.silence > 50, "so it is with the nodes that Karpenter orders"
    assert Settings().silence == 12


def test_the_longest_name_of_an_interface_fits_into_what_the_kernel_allows() -> None:
    assert len(Settings(name="a" * 9).node_namespace(50)) <= 15


def test_another_process_gets_the_same_settings_by_the_environment() -> None:
    given = Settings(name="beside", nodes=2, controllers=(), proxy=True, cache=Path("/cache"), lease=9, cloud="gke")
    assert Settings.from_environment(given.environment()) == given
    listed = Settings(controllers=("argo", "kwok"), cache=Path("/cache"))
    assert Settings.from_environment(listed.environment()) == listed
