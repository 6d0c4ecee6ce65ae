"""Decides one moment of a job: the learned policy from its table, and the formulas that it is compared with.

Each policy names what it would like to do; :func:`decide` then applies the exact safety rule, which is the same for all of them:
an action that would leave the job unable to finish on on-demand is replaced by on-demand. So no policy is ever late where the
deadline was possible at the start, and they differ in cost alone.

``uniform-progress`` is the policy of "Can't Be Late" (Wu et al., NSDI 2024): it keeps progress in step with time, takes spot
whenever it is up, and leaves on-demand for spot only when its progress is ahead of where it must be two overheads from now.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from spotwright.deadlines.hazards import BUCKETS, SHIPPED, HazardTable, bucket
from spotwright.deadlines.jobs import Action, Job, Moment, may
from spotwright.deadlines.solver import PolicyTable, solve
from spotwright.errors import InputError

__all__ = ["FORMULAS", "Eager", "Greedy", "Learned", "OnDemandOnly", "Policy", "UniformProgress", "decide", "named"]


class Policy(Protocol):
    """What a job would like to do. ``name`` is the name that users give."""

    @property
    def name(self) -> str:
        """The name that users give."""

    def wish(self, job: Job, moment: Moment) -> Action:
        """The action that the policy prefers, before the safety rule. SPOT only where spot is up."""


def decide(policy: Policy, job: Job, moment: Moment, tick: float) -> Action:
    """The action of a policy for the next ``tick`` seconds: its wish where that is safe, otherwise on-demand."""
    wish = policy.wish(job, moment)
    return wish if wish is Action.ON_DEMAND or may(job, moment, wish, tick) else Action.ON_DEMAND


class OnDemandOnly(NamedTuple):
    """On-demand from the start."""

    name: str = "on-demand"

    def wish(self, job: Job, moment: Moment) -> Action:
        """On-demand, always."""
        del job, moment
        return Action.ON_DEMAND


class Greedy(NamedTuple):
    """Spot whenever it is up, and waiting otherwise."""

    name: str = "greedy"

    def wish(self, job: Job, moment: Moment) -> Action:
        """Spot or wait."""
        del job
        return Action.SPOT if moment.up else Action.WAIT


class Eager(NamedTuple):
    """Spot whenever it is up, and on-demand otherwise."""

    name: str = "eager"

    def wish(self, job: Job, moment: Moment) -> Action:
        """Spot or on-demand."""
        del job
        return Action.SPOT if moment.up else Action.ON_DEMAND


class UniformProgress(NamedTuple):
    """Progress in step with time. ``ahead`` is its hysteresis in overheads: 2 in the paper, 0 without."""

    name: str = "uniform-progress"
    ahead: float = 2.0

    def wish(self, job: Job, moment: Moment) -> Action:
        """Spot when it is up, unless on-demand should be kept; without spot on-demand when behind, and waiting otherwise."""
        elapsed = job.deadline - moment.remaining
        done = job.work - moment.left
        if moment.up:
            due = job.work * (elapsed + self.ahead * job.overhead) / job.deadline
            keeps = moment.mode is Action.ON_DEMAND and done < due and self.ahead > 0
            return Action.ON_DEMAND if keeps else Action.SPOT
        if moment.mode is Action.ON_DEMAND:
            due = job.work * (elapsed + self.ahead * job.overhead) / job.deadline
            return Action.ON_DEMAND if done < due else Action.WAIT
        return Action.ON_DEMAND if done < job.work * elapsed / job.deadline else Action.WAIT


FORMULAS: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        OnDemandOnly(),
        Greedy(),
        Eager(),
        UniformProgress(),
        UniformProgress("uniform-progress-0", 0.0),
    )
}
"""The policies that need no table, by name."""


class Learned(NamedTuple):
    """The solved policy of one job."""

    table: PolicyTable
    name: str = "learned"

    def wish(self, job: Job, moment: Moment) -> Action:
        """What the table says for the time and the work that are left, both rounded to the safe side."""
        grid = self.table.grid
        index = grid.ticks - math.floor(moment.remaining / grid.tick + 1e-9)
        if not 0 <= index < grid.ticks:
            return Action.ON_DEMAND
        lost = math.ceil(moment.left / grid.unit - 1e-9) - grid.work + index * grid.per_tick
        if lost > grid.slack:
            return Action.ON_DEMAND
        stage = 0
        if moment.starting > 0 and moment.mode is not Action.WAIT:
            gone = round((job.overhead - moment.starting) / grid.tick)
            stage = min(max(1, gone), grid.stages)
        observation = bucket(moment.age) + (0 if moment.up else BUCKETS)
        if moment.mode is Action.SPOT and not moment.up:
            return Action.WAIT
        return Action(int(self.table.actions[index, observation, grid.mode(moment.mode, stage), max(0, lost)]))


def named(name: str, job: Job, hazards: HazardTable = SHIPPED, tick: float = 600.0) -> Policy:
    """The policy of this name for a job: one of :data:`FORMULAS`, or ``learned``, which is solved for the job.

    Raises :class:`InputError` for other names.
    """
    if name == "learned":
        return Learned(solve(job, hazards, tick))
    if name not in FORMULAS:
        raise InputError(f"policy {name!r} is not known; the policies are {', '.join([*FORMULAS, 'learned'])}")
    return FORMULAS[name]
