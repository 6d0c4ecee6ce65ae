"""The decision for arrays of waiting jobs is the decision for each of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.market.builders import hours

from spotwright.deadlines.job_policies import FORMULAS, decide, named
from spotwright.deadlines.jobs import Action, Job, Moment
from spotwright.simulation.deadline_jobs import Waiting, choices


@pytest.mark.parametrize("name", [*FORMULAS, "learned"])
@pytest.mark.parametrize("overhead", [0.0, 180.0, 1500.0])
def test_every_choice_is_that_of_the_plain_decision(name: str, overhead: float) -> None:
    rng, count, tick = np.random.default_rng(5), 400, 600.0
    job = Job(hours(6), hours(9), overhead, 1.0, 3.0)
    policy = named(name, job, tick=tick)
    remaining = rng.uniform(0.0, job.deadline, count)
    left = np.minimum(job.work, remaining) * rng.uniform(0.3, 1.0, count)
    up, age = rng.uniform(size=count) < 0.5, rng.choice([0.0, 600.0, 601.0, 4000.0, 90_000.0], count)
    whole = np.ones(count)
    jobs = Waiting(job.work * whole, job.deadline * whole, job.overhead * whole, remaining, left, up, age)

    found = choices(policy, jobs, tick)

    moments = [
        Moment(float(remaining[i]), float(left[i]), Action.WAIT, 0.0, bool(up[i]), float(age[i])) for i in range(count)
    ]
    assert found.tolist() == [int(decide(policy, job, moment, tick)) for moment in moments]
