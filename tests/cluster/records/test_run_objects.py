"""A run assembled from its objects equals the recorded one, in whatever order they are read and whoever wrote them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.cluster.run_objects import Home, RunRows, StoredRow, object_name, packed, rows_of, unpacked
from spotwright.engine.events import EngineStarted, NoteAdded
from spotwright.errors import StateError


def commit(last: int, epoch: int, count: int, *, begins: bool = False) -> list[StoredRow]:
    """Rows that are recorded together."""
    kinds = [EngineStarted.kind if begins and number == 0 else NoteAdded.kind for number in range(count)]
    return [
        StoredRow(
            last + 1 + number, last + 1, last + count, epoch, 1.5, kind, 0, "", f'{{"text":"{epoch}.{last}.{number}"}}'
        )
        for number, kind in enumerate(kinds)
    ]


class Epoch(NamedTuple):
    """Sizes of what one process records; the part of three more rows that it writes before it ends, which nobody is told of; and
    sizes of what it still writes after the next process has begun."""

    sizes: Sequence[int]
    part: Collection[int]
    late: Sequence[int]


EPOCHS = st.lists(
    st.builds(
        Epoch,
        st.lists(st.integers(1, 4), max_size=5),
        st.sampled_from([(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 2)]),
        st.lists(st.integers(1, 3), max_size=2),
    ),
    min_size=1,
    max_size=5,
)


@given(EPOCHS, st.randoms(use_true_random=False))
def test_what_was_acknowledged_is_read_in_order_and_nothing_else(epochs: Sequence[Epoch], random: Random) -> None:
    recorded: list[StoredRow] = []
    others: list[StoredRow] = []
    for number, (sizes, part, late) in enumerate(epochs, 1):
        for size in (1, *sizes):
            recorded += commit(len(recorded), number, size, begins=recorded == [] or recorded[-1].epoch < number)
        last = len(recorded)
        others += [row for place, row in enumerate(commit(last, number, 3)) if place in part]
        for size in late if number < len(epochs) else ():
            others += commit(last, number, size)
            last += size
    written = recorded + others
    random.shuffle(written)
    rows = RunRows()
    for row in written:
        rows.take([StoredRow.from_text(row.to_text())])
    assert rows.after(0) == recorded
    assert rows.lost() == []


def test_a_reader_that_has_read_what_does_not_count_begins_anew() -> None:
    rows = RunRows()
    rows.take(commit(0, 1, 2, begins=True))
    rows.take(commit(2, 1, 1))
    assert [row.seq for row in rows.after(0)] == [1, 2, 3]
    assert rows.restarts == 0
    rows.take(commit(2, 2, 1, begins=True))  # it has not seen the last one
    assert rows.restarts == 1
    assert [(row.seq, row.epoch) for row in rows.after(0)] == [(1, 1), (2, 1), (3, 2)]


def test_what_somebody_deleted_is_known_to_be_lost_and_the_rest_is_read() -> None:
    rows = RunRows()
    rows.take(commit(0, 1, 1, begins=True))
    rows.take(commit(4, 1, 2))
    assert rows.after(0) == commit(0, 1, 1, begins=True)
    assert rows.lost() == [2, 3, 4]
    rows.take((), rows.lost())
    assert [row.seq for row in rows.after(0)] == [1, 5, 6]


@pytest.mark.parametrize("task", ["", "train", "a b", 'two\nlines "quoted"', "Züge/1[2]"])
def test_a_row_is_read_as_it_was_written_whatever_its_task_is_called(task: str) -> None:
    row = StoredRow(7, 6, 8, 2, 1.25, "NoteAdded", 3, task, '{"text":"a\\nb"}')
    assert StoredRow.from_text(row.to_text()) == row


def test_a_journal_that_somebody_has_changed_is_named() -> None:
    found = {"kind": "SpotAttempt", "metadata": {"name": "x.train.1", "namespace": "team-a"}, "journal": ["1 2 three"]}
    with pytest.raises(StateError, match=r"SpotAttempt x\.train\.1 in namespace team-a: its journal cannot be read"):
        list(rows_of(found))


@pytest.mark.parametrize(
    ("home", "page", "begins"),
    [
        (Home(), 1, "team-a.train-0a1b"),
        (Home(), 2, "team-a.train-0a1b.run.2"),
        (Home("Fit/Model"), 1, "team-a.train-0a1b.fit-model-"),
        (Home("../.."), 1, "team-a.train-0a1b."),
        (Home("fit", 3), 2, "team-a.train-0a1b.fit-"),
    ],
)
def test_names_of_objects_are_dns_names(home: Home, page: int, begins: str) -> None:
    name = object_name("team-a.train-0a1b", home, page)
    assert name.startswith(begins)
    assert all(
        part.strip("-") == part and part.replace("-", "").isalnum() and part == part.lower() for part in name.split(".")
    )


def test_tasks_that_look_alike_have_objects_of_their_own() -> None:
    assert len({object_name("run", Home(task, 1)) for task in ("a/b", "a-b", "A-B", "a b", "ä")}) == 5


def test_a_plan_is_packed_and_one_that_would_fill_the_memory_is_refused() -> None:
    assert unpacked(packed("config: ü")) == "config: ü"
    with pytest.raises(ValueError, match="larger than"):
        unpacked(packed("0" * 5_000_000))
    with pytest.raises(ValueError, match="not in spotwright's packed format"):
        unpacked("AAAA")
