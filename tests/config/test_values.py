"""The values of a right file reach the model: pools, policies and their sources."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from tests.config.design_example import DESIGN

from spotwright import config
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.config import Config
from spotwright.model.policy import Layer, Spot, resolve
from spotwright.model.pools import Capacity, Drain, Pool, Simulate
from spotwright.model.scheduling_terms import Taint


@pytest.fixture(scope="module")
def design() -> Config:
    return config.parse(DESIGN, "spotwright.yaml")


def pool_of(lines: str) -> Pool:
    return config.parse(f"version: 1\npools:\n  a: {{capacity: spot, {lines}}}\n").pools["a"]


def test_every_field_of_a_pool_reaches_the_model(design: Config) -> None:
    assert design.pools["gpu-spot"] == Pool(
        name="gpu-spot",
        capacity=Capacity.SPOT,
        provider="aks",
        machine="Standard_NC6s_v3",
        zones=("1",),
        node={"cpu": 6000, "memory": 112 * 2**30, "nvidia.com/gpu": 1},
        min_nodes=1,
        max_nodes=4,
        labels={"gpu": "true"},
        taints=(Taint("sku", "gpu", "NoSchedule"), Taint("slow", "", "NoExecute")),
        price=Fraction(97, 100),
        max_price=Fraction(6, 5),
        notice=45.0,
        max_lifetime=86400.0,
        simulate=Simulate(boot=3.0, interrupt_every=20.0, expected_duration=60.0, drain=Drain.AT_NOTICE),
    )


def test_pools_keep_the_order_of_the_file(design: Config) -> None:
    assert list(design.pools) == ["gpu-spot", "gpu"]


def test_a_pool_takes_its_node_from_a_pool_of_the_same_machine(design: Config) -> None:
    assert design.pools["gpu"].node == design.pools["gpu-spot"].node


def test_a_node_without_a_description_stays_unknown() -> None:
    assert pool_of("machine: x").node is None


def test_pools_without_a_machine_do_not_share_nodes() -> None:
    parsed = config.parse("version: 1\npools:\n  a: {capacity: spot, node: {cpu: 1}}\n  b: {capacity: spot}\n")
    assert parsed.pools["b"].node is None


@pytest.mark.parametrize("provider", list(PROVIDERS))
def test_the_default_notice_is_the_providers(provider: str) -> None:
    assert pool_of(f"provider: {provider}").notice == PROVIDERS[provider].notice


def test_a_pool_may_be_taken_without_a_notice() -> None:
    assert pool_of("notice: 0s").notice == 0.0


def test_by_default_nodes_are_never_taken() -> None:
    simulate = pool_of("").simulate
    assert (simulate.interrupt_every, simulate.trace) == (None, None)


def test_the_defaults_of_a_pool_are_the_models() -> None:
    assert pool_of("") == Pool(name="a", capacity=Capacity.SPOT)


def test_the_currency_is_read(design: Config) -> None:
    assert design.currency == "EUR"


def test_a_version_without_quotes_keeps_its_last_zero(design: Config) -> None:
    assert design.target == {"kubernetes": "1.30", "kfp": "2.17", "autoscaler": "cluster-autoscaler"}


@pytest.mark.parametrize(("text", "amount"), [("0.1", 100), ("500m", 500), ("2", 2000), ("1e1", 10_000)])
def test_cpu_is_exact(text: str, amount: int) -> None:
    assert pool_of(f"node: {{cpu: {text}}}").node == {"cpu": amount}


def test_the_stored_text_reads_as_the_same_configuration(design: Config) -> None:
    assert config.parse(design.text, design.path) == design


def test_the_default_layer_names_its_line(design: Config) -> None:
    assert design.policy_default == Layer(
        "spotwright.yaml:22",
        {
            "spot": Spot.PREFER,
            "ladder": ("gpu-spot", "gpu"),
            "interruptions.max": 12,
            "interruptions.backoff": 1.0,
        },
    )


def test_patterns_keep_the_order_of_the_file_and_name_their_lines(design: Config) -> None:
    assert [(pattern, layer.source) for pattern, layer in design.policy_tasks] == [
        ("**/train*", "spotwright.yaml:27"),
        ("deploy", "spotwright.yaml:28"),
        ("train-big", "spotwright.yaml:29"),
    ]


def test_a_task_gets_the_default_and_its_patterns_as_two_groups(design: Config) -> None:
    default, tasks = design.layers_for("loop/train-3")
    assert [layer.source for layer in default] == ["spotwright.yaml:22"]
    assert [layer.source for layer in tasks] == ["spotwright.yaml:27"]


def test_the_later_line_wins_key_by_key(design: Config) -> None:
    default, tasks = design.layers_for("train-big")
    policy = resolve([*default, *tasks])
    assert (policy.timeout, policy.fall_back_after) == (7200.0, 3)


def test_a_fallback_for_all_does_not_forbid_never_for_one() -> None:
    text = DESIGN.replace("    spot: prefer\n", "    spot: prefer\n    fall_back_after: 2\n")
    assert resolve([layer for part in config.parse(text).layers_for("deploy") for layer in part]).spot is Spot.NEVER


def test_pools_without_a_policy_add_no_placement() -> None:
    default, tasks = config.parse("version: 1\npools: {a: {capacity: spot}}\n").layers_for("train")
    assert resolve([*default, *tasks]).spot is None


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("deadline: 8h", "deadline", 28800.0),
        ('deadline: "8h best-effort"', "deadline", 28800.0),
        ("pending_timeout: 90", "pending_timeout", 90.0),
        ("interruptions: {factor: 1.5}", "interruptions.factor", 1.5),
        ("image_pull_secrets: [acr]", "image_pull_secrets", ("acr",)),
        ("checkpoint: pvc://ckpt", "checkpoint", "pvc://ckpt"),
    ],
)
def test_policy_values_are_those_of_the_model(line: str, field: str, value: Any) -> None:
    layer = config.parse(
        f"version: 1\npools: {{a: {{capacity: spot}}}}\npolicy:\n  default: {{{line}}}\n"
    ).policy_default
    assert layer is not None
    assert getattr(layer.values[field], "after", layer.values[field]) == value


def test_a_deadline_may_be_a_time_without_quotes() -> None:
    text = "version: 1\npolicy: {default: {spot: prefer, deadline: 2026-11-21T08:00:00+01:00}}\n"
    layer = config.parse(text).policy_default
    assert layer is not None
    assert layer.values["deadline"].at == 1795244400.0


def test_an_anchored_value_may_be_used_again() -> None:
    text = "version: 1\npools:\n  a: {capacity: spot, labels: &shared {team: ml}}\n  b: {capacity: on-demand, labels: *shared}\n"
    assert config.parse(text).pools["b"].labels == {"team": "ml"}


def test_a_merge_key_gives_the_missing_keys_of_a_mapping() -> None:
    text = (
        "version: 1\npools:\n  a: &a {capacity: spot, max_nodes: 3, price: 1/h}\n  b: {<<: *a, capacity: on-demand}\n"
    )
    pool = config.parse(text).pools["b"]
    assert (pool.capacity, pool.max_nodes, pool.price) == (Capacity.ON_DEMAND, 3, Fraction(1))


def test_windows_line_ends_are_read() -> None:
    assert config.parse(DESIGN.replace("\n", "\r\n")).pools == config.parse(DESIGN).pools


def test_a_byte_order_mark_is_ignored() -> None:
    assert config.parse("\ufeff" + DESIGN).pools == config.parse(DESIGN).pools


@pytest.mark.parametrize(
    "package",
    ["embedded", "image", "0.1.0", "1.2.0rc1", "https://h/spotwright-0.1.0-py3-none-any.whl", "/opt/spotwright.pyz"],
)
def test_the_package_of_the_target_is_a_word_a_version_a_url_or_a_path(package: str) -> None:
    assert config.parse(f"version: 1\ntarget: {{package: {package}}}\n").target == {"package": package}
