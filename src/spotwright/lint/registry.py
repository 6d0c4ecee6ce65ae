"""Every rule, in the order of the reference page."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.config import Config
from spotwright.errors import ConfigError
from spotwright.lint.allowances import ALLOW_RULES
from spotwright.lint.python_rules import kfp1, pipeline_calls, plain_python, training_sdk
from spotwright.lint.rule import Rule
from spotwright.lint.rules import (
    argo,
    fields,
    kfp,
    placement,
    pools,
    retries,
    stateful,
    storage,
    timing,
    training,
)

__all__ = ["ALL_IDS", "GROUPS", "RULES", "refuse_unknown"]

GROUPS: Mapping[str, tuple[Rule, ...]] = {
    "Where pods run": placement.RULES,
    "What must not be lost": stateful.RULES,
    "Volumes and checkpoints": storage.RULES,
    "Retries": retries.RULES,
    "The end of a pod, and moves": timing.RULES,
    "Pools of the configuration": pools.RULES,
    "Training jobs and experiments": training.RULES,
    "Argo workflows": argo.RULES,
    "Compiled pipelines": kfp.RULES,
    "Fields that are dropped, and what could not be checked": fields.RULES,
    "Pipelines in Python": (*kfp1.RULES, *pipeline_calls.RULES, *plain_python.RULES),
    "The training SDK": training_sdk.RULES,
}
"""The rules by the headings of the reference page."""

RULES: tuple[Rule, ...] = tuple(rule for group in GROUPS.values() for rule in group)


def refuse_unknown(config: Config) -> None:
    """Refuse a configuration that switches off a rule which does not exist. Raises :class:`ConfigError`."""
    for name in config.lint_off:
        if name not in {rule.id for rule in RULES}:
            raise ConfigError(
                f"{config.path}: lint.off: no rule has the name {name}; spotwright lint --rules lists them"
            )


ALL_IDS = frozenset({rule.id for rule in RULES} | ALLOW_RULES.keys())
"""The names that a comment or the configuration may use."""
