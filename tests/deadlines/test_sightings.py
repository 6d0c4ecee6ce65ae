"""What a run sees of a pool becomes counts of spells, and ages for the next decision."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.deadlines.hazards import BUCKETS, NOTHING, SHIPPED, STEP, HazardTable, Sightings, Spells, added


def watched(at: float = 0.0) -> Sightings:
    """A pool that was lost at 0 and is watched: the begin of its spell without spot is known."""
    pool = Sightings()
    pool.watch(at)
    pool.lose(at)
    return pool


def test_a_spell_that_was_seen_to_begin_and_to_end_is_counted_by_its_ages() -> None:
    pool = watched()
    pool.see(1500.0, up=True)
    counts = pool.counts().down
    assert counts.seen[:4] == pytest.approx((1.0, 1.0, 0.5, 0.0))
    assert counts.ended[:4] == (0.0, 0.0, 1.0, 0.0)


def test_a_spell_shorter_than_a_look_counts_as_one_look() -> None:
    pool = watched()
    pool.see(1.0, up=True)
    assert (sum(pool.counts().down.seen), sum(pool.counts().down.ended)) == (1.0, 1.0)


def test_a_spell_that_goes_on_counts_without_an_end() -> None:
    pool = watched()
    pool.see(0.0, up=True)
    pool.leave(7200.0)
    counts = pool.counts().up
    assert (sum(counts.seen), sum(counts.ended)) == (
        1 + 7200.0 / STEP,
        1.0,
    )  # one look and one end are of the loss at 0


def test_the_age_of_a_spell_is_the_time_since_its_begin() -> None:
    pool = watched()
    pool.see(100.0, up=True)
    assert (pool.age(1000.0, up=True), pool.age(1000.0, up=False)) == (900.0, 0.0)


def test_a_spell_whose_begin_nobody_saw_has_the_age_of_such_spells() -> None:
    pool = Sightings()
    pool.watch(0.0)
    pool.see(0.0, up=True)
    assert pool.age(0.0, up=True) == SHIPPED.up.first_age() > 0
    assert Sightings().age(0.0, up=False) == SHIPPED.down.first_age()


def test_time_that_nobody_watched_is_not_counted() -> None:
    pool = watched()
    pool.see(10.0, up=True)
    pool.leave(20.0)
    before = pool.counts()
    pool.see(1e6, up=False)
    assert pool.counts() == before
    assert pool.age(1e6, up=False) == pool.table.down.first_age()


def test_a_pool_that_is_seen_again_soon_is_in_the_same_spell() -> None:
    pool = watched()
    pool.see(0.0, up=True)
    pool.leave(3600.0)
    pool.see(3900.0, up=True)
    assert pool.age(3900.0, up=True) == 3900.0


def test_nodes_that_go_one_after_another_are_one_loss() -> None:
    pool = Sightings()
    pool.watch(0.0)
    for at in (0.0, 60.0, 90.0):
        pool.lose(at)
    assert sum(pool.counts().up.ended) == 1.0


def test_losses_make_the_learned_hazard_larger_and_time_without_any_makes_it_smaller() -> None:
    bad, good = watched(), watched()
    for at in range(40):
        bad.see(at * 700.0, up=True)
        bad.lose(at * 700.0 + 300.0)
    good.see(0.0, up=True)
    good.leave(400_000.0)
    assert bad.table.up.chance(0) > SHIPPED.up.chance(0)
    assert good.table.up.chance(BUCKETS - 1) < SHIPPED.up.chance(BUCKETS - 1)


def test_counts_of_earlier_runs_are_the_start() -> None:
    before = HazardTable(Spells((100.0,) * BUCKETS, (0.0,) * BUCKETS), NOTHING.down)
    assert Sightings(before).table.up.chance(0) < SHIPPED.up.chance(0)
    assert added(before, before).up.seen[0] == 200.0


@given(
    st.lists(st.tuples(st.sampled_from(["see", "gone", "lose", "watch", "leave"]), st.floats(0.0, 5000.0)), max_size=40)
)
def test_counts_never_exceed_the_time_that_passed_and_ends_need_looks(steps: list[tuple[str, float]]) -> None:
    pool, now = Sightings(), 0.0
    for step, gap in steps:
        now += gap
        if step in ("see", "gone"):
            pool.see(now, up=step == "see")
        else:
            getattr(pool, step)(now)
    counts = pool.counts()
    ends = sum(counts.up.ended) + sum(counts.down.ended)
    assert sum(counts.up.seen) + sum(counts.down.seen) <= now / STEP + ends + 1e-6
    assert all(0.0 <= pool.table.up.chance(index) <= 1.0 for index in range(BUCKETS))
    assert pool.age(now, up=True) >= 0.0
