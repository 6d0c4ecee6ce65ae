"""Which of the groups that fit is grown: the expanders of the Cluster Autoscaler, as its folders ``expander/*`` have them.

The patterns of ``priority`` are Go's, read here by Python: the same for what these tests write.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import yaml
from tests.cluster.live.autoscaling.fitting import requests_of
from tests.cluster.live.autoscaling.machines import Group
from tests.cluster.live.kube import Object

from spotwright.model.quantities import parse_quantity

__all__ = ["EXPANDER_MAP", "Option", "best"]

EXPANDER_MAP = "cluster-autoscaler-priority-expander"
_CHANCE = random.SystemRandom()


@dataclass(frozen=True)
class Option:
    """A group that could be grown: by how many machines, and for which pods."""

    group: Group
    count: int
    pods: Sequence[Object]


def best(expander: str, options: Sequence[Option], priorities: str | None, warn: Callable[[str, str], None]) -> Option:
    """The option to take. ``priorities`` is the text of the ConfigMap, None without it; ``warn`` takes a reason and a text."""
    left = list(options)
    if expander == "priority":
        left = _by_priority(left, priorities, warn)
    elif expander == "least-waste":
        least = min(map(_waste, left))
        left = [option for option in left if _waste(option) == least]
    return _CHANCE.choice(left)


def _by_priority(options: list[Option], text: str | None, warn: Callable[[str, str], None]) -> list[Option]:
    """The options of the highest priority; all where no pattern matches one of them, or no text can be read."""
    if text is None:
        return options
    try:
        read = yaml.safe_load(text)
        patterns = {int(key): [re.compile(one) for one in value] for key, value in read.items()}
    except (yaml.YAMLError, re.error, AttributeError, TypeError, ValueError) as error:
        warn("PriorityConfigMapInvalid", f"Wrong configuration for priority expander: {error}. Ignoring update.")
        return options
    found: dict[int, list[Option]] = {}
    for option in options:
        name = option.group.name
        matching = [key for key, those in patterns.items() if any(one.search(name) for one in those)]
        for key in matching:
            found.setdefault(key, []).append(option)
        if not matching:
            text = f"Priority expander: node group {name} not found in priority expander configuration."
            warn("PriorityConfigMapNotMatchedGroup", f"{text} The group won't be used.")
    if not found:
        text = "Priority expander: no priorities info found for any of the expansion options."
        warn("PriorityConfigMapNoGroupMatched", f"{text} No options filtered.")
        return options
    return found[max(found)]


def _waste(option: Option) -> Fraction:
    """The unrequested share of the new machines: of processors and memory together."""
    total = Fraction(0)
    for name in ("cpu", "memory"):
        there = parse_quantity(option.group.size[name]) * option.count
        total += (there - sum(requests_of(pod).get(name, Fraction(0)) for pod in option.pods)) / there
    return total
