"""The plan of a run as a file: the compiled pipeline, the configuration and what the command line changed in it.

A run never reads the user's files again while it runs or is looked at: everything it was made of lies in its own folder,
one file per version. A resume with mended code writes the next version beside the earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.engine.plan import Plan
from spotwright.errors import InputError, StateError
from spotwright.model.policy import Layer
from spotwright.model.policy_values import PolicyValueError, parse_policy
from spotwright.model.pools import Pool
from spotwright.model.traces import Trace
from spotwright.pipelines.compiled import Compiled, read_json
from spotwright.pipelines.graph import build
from spotwright.records.folders import RunFolder, write_atomically

__all__ = ["StoredPlan", "can_be_taken", "load_plans", "save_plan"]


@dataclass(frozen=True)
class StoredPlan:
    """One version of a run's plan. ``traces`` are the recordings of its pools, so that they are part of the run."""

    compiled: Compiled
    config: Config
    taken_every: float | None
    traces: Mapping[str, Trace]
    policy: Mapping[str, Any] = field(
        default_factory=dict
    )  # what the command line said, in the shape of policy.default

    @cached_property
    def plan(self) -> Plan:
        """The plan for the engine, with ``--taken-every`` applied to every spot pool; made once, as large graphs take long.

        Raises :class:`InputError` for a pipeline or a policy that cannot run.
        """
        pools = {name: _overridden(pool, self.taken_every) for name, pool in self.config.pools.items()}
        return Plan(build(self.compiled), replace(self.config, pools=pools), self._flags())

    def _flags(self) -> Layer | None:
        try:
            return parse_policy(self.policy, "--policy") if self.policy else None
        except PolicyValueError as error:
            raise InputError(f"--policy {error}") from error


def _overridden(pool: Pool, taken_every: float | None) -> Pool:
    if taken_every is None or not pool.is_spot:
        return pool
    return replace(pool, simulate=replace(pool.simulate, taken_every=taken_every, trace=None))


def can_be_taken(pools: Mapping[str, Pool]) -> bool:
    """Whether any node of these pools can be taken away in a local run."""
    return any(
        pool.simulate.taken_every is not None or pool.simulate.trace is not None or pool.lifetime is not None
        for pool in pools.values()
    )


def traces_of(config: Config, taken_every: float | None) -> dict[str, Trace]:
    """Read the recorded traces that the configuration names; none where ``--taken-every`` overrides them."""
    if taken_every is not None:
        return {}
    return {
        name: configuration.load_trace(pool.simulate.trace)
        for name, pool in config.pools.items()
        if pool.simulate.trace is not None
    }


def save_plan(folder: RunFolder, version: int, stored: StoredPlan) -> None:
    """Write one version of the plan. Raises :class:`StateError` where it cannot be written."""
    document: dict[str, Any] = {
        "compiled": stored.compiled.to_data(),
        "config": {"text": stored.config.text, "path": stored.config.path},
        "taken_every": stored.taken_every,
        "policy": dict(stored.policy),
        "traces": {name: [trace.gap, list(trace.counts)] for name, trace in stored.traces.items()},
    }
    try:
        write_atomically(folder.plan(version), document)
    except OSError as error:
        raise StateError(
            f"{folder.path}: cannot be written ({error.strerror}); free some space or use --state"
        ) from error


def load_plans(folder: RunFolder) -> list[StoredPlan]:
    """Read every version of a run's plan, oldest first. Raises :class:`StateError` where one cannot be read."""
    plans = []
    for path in folder.plans():
        try:
            document = read_json(path.read_text(encoding="utf-8"))
            compiled = Compiled.from_data(document["compiled"])
            text, name = document["config"]["text"], document["config"]["path"]
            traces = {pool: Trace(gap, tuple(counts)) for pool, (gap, counts) in document["traces"].items()}
        except (OSError, ValueError, KeyError) as error:
            raise StateError(
                f"{path}: cannot be read ({error}); the run cannot be shown or resumed without it"
            ) from error
        config = configuration.parse(text, name, traces_exist=False)
        plans.append(StoredPlan(compiled, config, document["taken_every"], traces, document["policy"]))
    if not plans:
        raise StateError(f"{folder.path}: has no plan; the run was never started")
    return plans
