"""The configuration of a namespace is read within a bounded time, whatever its team wrote, and raises nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from spotwright.cluster.configurations import MOST_OF_NAMESPACE, Configurations

HOME = (
    "version: 1\npools:\n  spot-a: {capacity: spot, provider: aks}\n  regular: {capacity: on-demand, provider: aks}\n"
)

GROWING: Mapping[str, Callable[[int], str]] = {
    "a list": lambda count: "- x\n" * count,
    "tasks": lambda count: "policy:\n  tasks:\n" + "".join(f"    t{n}: {{spot: prefer}}\n" for n in range(count)),
    "patterns": lambda count: (
        "policy:\n  tasks:\n" + "".join(f"    '**/{'*a' * 9}{n}': {{spot: prefer}}\n" for n in range(count))
    ),
    "pools": lambda count: "pools:\n" + "".join(f"  p{n}: {{capacity: spot, provider: aks}}\n" for n in range(count)),
    "unknown keys": lambda count: "".join(f"k{n}: 1\n" for n in range(count)),
    "one key again and again": lambda count: "policy: {}\n" * count,
    "depth": lambda count: "a: " + "[" * count,
    "braces": lambda count: "{a: " * count,
    "anchors": lambda count: "a: &a [x,x,x]\n" + "".join(f"b{n}: &b{n} [*a,*a,*a]\n" for n in range(count)),
    "quotes": lambda count: "a: '" + "''" * count + "'\n",
    "numbers": lambda count: "a: " + "9" * count,
    "a duration": lambda count: "policy: {default: {timeout: " + "1h" * count + "}}",
    "a quantity": lambda count: "policy: {default: {work: " + "0." * count + "}}",
    "spaces": lambda count: "a:" + " " * count + "b\n",
    "tabs": lambda count: "\t" * count,
    "comments": lambda count: "# x\n" * count,
    "documents": lambda count: "---\n" * count,
}


def in_force(namespace: str = "team-a", **texts: str) -> Configurations:
    made = Configurations("spotwright")
    made.apply("spotwright", {"data": {"spotwright.yaml": HOME}})
    return made


def seconds(text: str) -> float:
    def once() -> float:
        made = in_force()
        began = time.thread_time()
        made.apply("team-a", {"data": {"spotwright.yaml": text}})
        return time.thread_time() - began

    return min(once() for _ in range(3))


@pytest.fixture(scope="module")
def unit() -> float:
    """The time in which this machine reads a hundred tasks."""
    return seconds(f"version: 1\n{GROWING['tasks'](100)}")


@pytest.mark.parametrize("what", GROWING)
@pytest.mark.parametrize("header", ["", "version: 1\n"])
@pytest.mark.parametrize("count", [1_000, 7_500, 180_000])
def test_a_text_takes_bounded_time(what: str, header: str, count: int, unit: float) -> None:
    text = header + GROWING[what](count)
    for size in (len(text), MOST_OF_NAMESPACE - 1):
        assert seconds(text[:size]) < 40 * unit + 0.02  # a text of the longest length has 1,300 tasks


def test_a_text_that_is_too_long_is_not_in_force_and_says_so() -> None:
    made = in_force()
    good = f"version: 1\n{GROWING['tasks'](10)}"
    made.apply("team-a", {"data": {"spotwright.yaml": good}})
    made.apply("team-a", {"data": {"spotwright.yaml": good + "# x\n" * 10_000}})
    [problem] = made.problems
    assert problem.namespace == "team-a"
    assert "it has 39 KiB, and the limit is 32 KiB" in problem.message
    config = made.of("team-a")
    assert config is not None
    assert len(config.policy_tasks) == 10  # the last good one


@pytest.mark.parametrize(
    "config_map",
    [
        {"data": None},
        {"data": {"spotwright.yaml": 5}},
        {"data": []},
        {"data": "x"},
        {},
        {"data": {"spotwright.yaml": "\ud800"}},
        7,
    ],
)
def test_a_config_map_of_any_shape_raises_nothing(config_map: Any) -> None:
    in_force().apply("team-a", config_map)
