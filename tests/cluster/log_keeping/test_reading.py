"""An answer of the log endpoint continues the previous lines exactly, wherever it was cut and however lines look."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster.log_keeping.container_log import BILLION, START, Line, answer

from spotwright.cluster import log_position
from spotwright.cluster.log_follower import Reading
from spotwright.cluster.log_position import Position

TEXTS = st.one_of(
    st.just(b"the same\n"),
    st.binary(max_size=30).map(lambda text: text.replace(b"\n", b"") + b"\n"),
    st.integers(50, 200).map(lambda length: b"z" * length + b"\n"),
)
SOON = st.one_of(st.just(0), st.integers(1, BILLION), st.integers(1, 5 * BILLION))
LATE = st.one_of(st.just(0), st.integers(0, BILLION // 2))  # behind the line before: two threads stamp the lines
CUTS = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 500)), max_size=6)
LONG = 48  # bytes of a line that comes in pieces, here


@st.composite
def logs(draw: st.DrawFn, steps: st.SearchStrategy[int] = SOON, late: st.SearchStrategy[int] = LATE) -> list[Line]:
    stamp, lines = START, []
    for _ in range(draw(st.integers(1, 20))):
        stamp += draw(steps)
        lines.append(Line(stamp - draw(late), draw(TEXTS)))
    return lines


def read(data: bytes, position: Position, size: int, *, ends: bool = False) -> tuple[bytes, Position]:
    """Read an answer in chunks of this size."""
    reading, kept = Reading(position, {}), b""
    with patch.object(log_position, "_LONG", LONG):
        for start in range(0, len(data), size):
            text, position = reading.feed(data[start : start + size])
            kept += text
    if ends:
        text, position = reading.flush(is_over=True)
        kept += text
    return kept, Position.from_json(position.to_json())


@settings(deadline=None, max_examples=40)
@given(logs(), CUTS)
def test_streams_that_are_cut_anywhere_give_every_byte_once(lines: list[Line], cuts: list[tuple[float, int]]) -> None:
    kept, position = b"", Position()
    for share, size in cuts:
        data = answer(lines, position.since_time)
        text, position = read(data[: int(share * len(data))], position, size)
        kept += text
    text, _ = read(answer(lines, position.since_time), position, 65_536, ends=True)
    assert kept + text == b"".join(line.text for line in lines)


@settings(deadline=None, max_examples=40)
@given(logs(st.integers(1, 3 * BILLION), st.just(0)), st.floats(0, 1), st.floats(0, 1))
def test_a_rotated_file_is_continued_or_the_gap_is_named(lines: list[Line], share: float, rotated: float) -> None:
    data = answer(lines, "")
    kept, position = read(data[: int(share * len(data))], Position(), 65_536)
    begins = int(rotated * (len(lines) - 1))
    text, _ = read(answer(lines, position.since_time, file_begins=begins), position, 65_536, ends=True)
    whole = b"".join(line.text for line in lines)
    if b"lines are missing here" in text:
        ours = next(line for line in text.splitlines(keepends=True) if line.startswith(b"[spotwright: "))
        before, after = (kept + text).split(ours)
        assert whole.startswith(before.removesuffix(b"\n"))
        assert whole.endswith(after)
        assert len(before) + len(after) < len(whole) + 1
    elif position.last:
        assert kept + text == whole


def test_a_gap_is_named_with_its_times_and_its_length() -> None:
    lines = [Line(START, b"one\n"), Line(START + 5 * BILLION, b"two\n"), Line(START + 6 * BILLION, b"three\n")]
    _, position = read(answer(lines[:1], ""), Position(), 100)
    text, _ = read(answer(lines, position.since_time, file_begins=2), position, 100)
    assert text == (
        b"[spotwright: lines are missing here, between 2026-05-28T20:26:40.000Z and 2026-05-28T20:26:46.000Z (6s): "
        b"the kubelet rotated its log]\nthree\n"
    )


def test_a_file_that_was_begun_anew_behind_the_last_line_is_named() -> None:
    lines = [Line(START, b"one\n"), Line(START + BILLION, b"two\n")]
    _, position = read(answer(lines[:1], ""), Position(), 100)
    text, position = read(answer(lines, position.since_time, file_begins=2), position, 100, ends=True)
    assert text == (
        b"[spotwright: lines may be missing here, after 2026-05-28T20:26:40.000Z: the kubelet rotated its log]\n"
    )
    assert read(answer(lines, position.since_time, file_begins=2), position, 100, ends=True)[0] == b"", "once"


def test_a_container_that_writes_nothing_more_or_runs_on_has_no_gap() -> None:
    _, position = read(answer([Line(START, b"one\n")], ""), Position(), 100)
    assert read(answer([Line(START, b"one\n")], position.since_time), position, 100, ends=True)[0] == b""
    assert Reading(position, {}).flush()[0] == b""
    assert Reading(Position(), {}).flush(is_over=True)[0] == b""


def test_a_clock_that_is_set_back_costs_no_line() -> None:
    lines = [Line(START, b"one\n"), Line(START + BILLION, b"two\n"), Line(START - 3600 * BILLION, b"three\n")]
    kept, position = read(answer(lines, ""), Position(), 100)
    later = [*lines, Line(START - 3599 * BILLION, b"four\n")]
    text, _ = read(answer(later, position.since_time), position, 100)
    assert kept + text == b"one\ntwo\nthree\nfour\n"


def test_words_of_the_kubelet_are_no_part_of_the_log() -> None:
    reading = Reading(Position(), {})
    assert reading.feed(b"unable to retrieve container logs for containerd://7f\n")[0] == b""
    assert reading.words == "unable to retrieve container logs for containerd://7f"


def test_times_with_a_zone_and_fewer_digits_are_read() -> None:
    text, position = read(b"2026-05-28T22:26:40.5+02:00 a\n2026-05-28T20:26:41Z b\n", Position(), 10)
    assert text == b"a\nb\n"
    assert position.tail == [START + BILLION // 2, START + BILLION]


def test_a_secret_is_hidden_also_where_a_long_line_is_cut_inside_it() -> None:
    line = Line(START, b"a" * 65_500 + b"hunter2-hunter2" + b"b" * 65_500 + b"hunter2-hunter2\n")
    for size in (65_536, 65_540, 65_545, 200_000):
        data, reading, kept = answer([line], ""), Reading(Position(), {"token": "hunter2-hunter2"}), b""
        for start in range(0, len(data), size):
            kept += reading.feed(data[start : start + size])[0]
        assert kept == b"a" * 65_500 + b"***" + b"b" * 65_500 + b"***\n"
