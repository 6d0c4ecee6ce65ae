"""Markets of a forecast: the same seed gives the same, and a spell ends when its state changes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.forecast.builders import HOUR, supply

from spotwright.errors import InputError
from spotwright.forecast.markets import Source, supply_of
from spotwright.model.pools import Trace

TRACE = Trace(300.0, tuple([1] * 20 + [0] * 10) * 40)


def test_a_look_says_whether_spot_is_up_and_until_when_also_across_the_end() -> None:
    market = supply("##..#", tick=600.0)
    pools, windows = np.zeros(5, int), np.zeros(5, int)
    up, ends = market.look(pools, windows, np.array([0.0, 700.0, 1200.0, 2500.0, 3100.0]))
    assert up.tolist() == [True, True, False, True, True]
    assert ends.tolist() == [1200.0, 1200.0, 2400.0, 4200.0, 4200.0]  # after its end it begins again


def test_a_state_that_never_changes_has_no_end() -> None:
    assert np.isinf(supply("....").look(np.zeros(1, int), np.zeros(1, int), np.zeros(1))[1][0])


@pytest.mark.parametrize("source", [Source(), Source(rate=0.1), Source({"zone": TRACE})])
def test_the_same_seed_gives_the_same_markets(source: Source) -> None:
    first, again, other = (supply_of(source, ["a", "b"], 8 * HOUR, 50, seed) for seed in (1, 1, 2))
    assert (first.up == again.up).all()
    assert (first.shift == again.shift).all()
    assert (first.up != other.up).any()
    assert (first.up[0] != first.up[1]).any()  # pools come and go independently


def test_markets_have_the_rate_that_was_asked_for() -> None:
    found = supply_of(Source(rate=0.2), ["a"], 8 * HOUR, 400, 1)
    assert found.losses_an_hour(0) == pytest.approx(0.2, rel=0.1)


def test_a_pool_with_a_recording_of_its_own_has_that_one() -> None:
    found = supply_of(Source({}, {"b": Trace(300.0, (0,))}, None), ["a", "b"], HOUR, 20, 1)
    assert found.availability(1) == 0.0
    assert found.availability(0) > 0.2


def test_a_short_recording_begins_again_and_overlapping_windows_are_told() -> None:
    notes = " ".join(supply_of(Source({"zone": Trace(60.0, (1, 0, 1))}), ["a"], 8 * HOUR, 100, 1).notes)
    assert "zone of 3m00s is shorter" in notes
    assert "100 of them are worth about 1 that do not" in notes


def test_a_rate_that_no_market_has_is_refused() -> None:
    with pytest.raises(InputError, match="rate: expected 0 to"):
        supply_of(Source(rate=1000.0), ["a"], HOUR, 10, 1)
