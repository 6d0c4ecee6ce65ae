"""Markets from recordings and from the model."""

from __future__ import annotations

import numpy as np
import pytest
from tests.market.builders import hours, market
from tests.market.lifetimes import Bathtub, drawn_lives

from spotwright.deadlines.hazards import SHIPPED
from spotwright.errors import InputError
from spotwright.market import (
    MarketModel,
    Windows,
    ceiling,
    drawn,
    hazards_of,
    looks,
    part,
    pools_of,
    windows_of,
)
from spotwright.model.pools import Trace


def losses_an_hour(windows: Windows) -> float:
    up = windows.up
    return float((up[:, :-1] & ~up[:, 1:]).sum() / (up[:, :-1].sum() * windows.tick / 3600.0))


# Recordings


def test_a_recording_with_another_gap_is_looked_at_once_a_tick() -> None:
    assert looks(Trace(195.0, (1, 0, 0, 0, 2, 1, 1)), 600.0).tolist() == [True, False]


def test_a_recording_with_a_longer_gap_holds_its_value() -> None:
    assert looks(Trace(1200.0, (1, 0)), 600.0).tolist() == [True, True, False, False]


def test_more_nodes_are_had_less_often() -> None:
    assert looks(Trace(600.0, (1, 4, 2)), nodes=2).tolist() == [False, True, True]


def test_windows_have_the_names_of_their_recordings() -> None:
    windows = windows_of({"a": Trace(600.0, (1,) * 20), "b": Trace(600.0, (0,) * 30)}, hours(2), each=3)
    assert windows.sources == ("a",) * 3 + ("b",) * 3
    assert windows.up[0, :, :3].all()
    assert not windows.up[0, :, 3:].any()


def test_pools_keep_what_happened_at_the_same_time_together() -> None:
    first = tuple(int(value) for value in np.random.default_rng(1).integers(0, 2, 60))
    windows = pools_of({"a": Trace(600.0, first), "b": Trace(600.0, first)}, hours(4), each=5, seed=3)
    assert (windows.up[0] == windows.up[1]).all()


def test_a_window_longer_than_its_recording_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="zone-a: a window of 12 ticks does not fit"):
        windows_of({"zone-a": Trace(600.0, (1,) * 5)}, hours(2))


def test_an_empty_part_of_a_recording_is_refused() -> None:
    with pytest.raises(InputError, match="is empty"):
        part(Trace(600.0, (1, 1)), 0.6, 0.6)


def test_the_same_seed_draws_the_same_windows() -> None:
    traces = {"a": Trace(600.0, tuple(index % 3 for index in range(99)))}
    one, other = (windows_of(traces, hours(2), seed=5).up for _ in range(2))
    assert (one == other).all()


def test_hazards_are_counted_after_the_first_change() -> None:
    table = hazards_of([Trace(600.0, (1, 1, 0, 0, 1, 0))])
    assert (table.down.seen[:2], table.down.ended[:2]) == ((1.0, 1.0), (0.0, 1.0))
    assert (table.up.seen[0], table.up.ended[0]) == (1.0, 1.0)


def test_a_market_without_any_spot_is_a_market() -> None:
    assert windows_of({"a": Trace(600.0, (0,) * 20)}, hours(2)).availability() == 0.0


# The model


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 1.0, 6.0])
def test_a_drawn_market_loses_spot_as_often_as_asked(rate: float) -> None:
    windows = drawn(MarketModel(rate=rate), hours(48), 2000, seed=1)
    assert losses_an_hour(windows) == pytest.approx(rate, rel=0.1)


def test_a_rate_of_zero_never_loses_spot() -> None:
    assert drawn(MarketModel(rate=0.0), hours(48), 20, seed=1).up.all()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_a_drawn_market_has_spot_for_the_share_of_time_that_was_asked_for(share: float) -> None:
    windows = drawn(MarketModel(availability=share), hours(48), 3000, seed=2)
    assert windows.availability() == pytest.approx(share, abs=0.03)


def test_a_rate_beyond_one_loss_a_tick_is_refused() -> None:
    with pytest.raises(InputError, match="rate: expected 0 to 6 losses"):
        drawn(MarketModel(rate=7.0), hours(48), 2, seed=1)


def test_drawn_windows_begin_in_the_middle_of_spells() -> None:
    windows = drawn(MarketModel(), hours(48), 4000, seed=3)
    assert windows.up[0, 0].mean() == pytest.approx(windows.up[0, -1].mean(), abs=0.05)


def test_the_same_seed_draws_the_same_market() -> None:
    one, other = (drawn(MarketModel(rate=0.2), hours(9), 30, seed=7).up for _ in range(2))
    assert (one == other).all()


def test_pools_that_go_together_are_down_together_more_often() -> None:
    apart = drawn(MarketModel(pools=2), hours(48), 1000, seed=4).up
    together = drawn(MarketModel(pools=2, together=0.9), hours(48), 1000, seed=4).up
    assert (~together).all(axis=0).mean() > (~apart).all(axis=0).mean() + 0.05


def test_hazards_of_a_drawn_market_are_those_that_it_was_drawn_from() -> None:
    windows = drawn(MarketModel(), hours(96), 300, seed=5)
    found = hazards_of([Trace(600.0, tuple(map(int, windows.up[0, :, index]))) for index in range(300)])
    for index in range(6):
        assert found.up.chance(index) == pytest.approx(SHIPPED.up.chance(index), abs=0.05)


def test_spot_is_gone_while_its_price_is_above_the_ceiling() -> None:
    windows = market("####")._replace(prices=np.array([[[1.0], [2.0], [1.2], [0.9]]]))
    assert ceiling(windows, 1.2).up[0, :, 0].tolist() == [True, False, True, True]


# Machines that live a day


def test_no_machine_of_a_bathtub_outlives_its_limit() -> None:
    tub = Bathtub()
    assert tub.gone(0.0) == pytest.approx(0.0, abs=1e-6)
    assert tub.gone(tub.limit) == 1.0


def test_a_bathtub_takes_young_and_old_machines_more_often_than_those_between() -> None:
    tub = Bathtub()
    young, middle, old = (tub.chance(hours(age), 3600.0) for age in (0.0, 12.0, 23.0))
    assert young > 10 * middle
    assert old > 10 * middle


def test_drawn_lives_end_within_the_limit() -> None:
    up = drawn_lives(hours(60), 40, seed=1).up[0]
    longest = max(len(run) for column in up.T for run in "".join("#" if x else "." for x in column).split("."))
    assert 0 < longest <= 24 * 6
