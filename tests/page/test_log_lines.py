"""Lines of a log for the page: any part of it, its colours, and no sequences that drive a terminal or hide text."""

from __future__ import annotations

import random
import re
import time
import unicodedata
from collections.abc import Callable

import pytest
from tests.page.hostile_texts import HOSTILE, WITHOUT_MARKS

from spotwright.page.log_lines import LONGEST_LINE, MOST_HITS, LogLines, LogsInOrder, Part, shown_parts

Log = bytearray


def reading(log: bytes | bytearray) -> Callable[[int, int], bytes]:
    return lambda offset, at_most: bytes(log[offset : offset + at_most])


def texts(lines: LogLines | LogsInOrder, first: int = 0, count: int = 2000) -> list[str]:
    return ["".join(text for text, _ in line.parts) for line in lines.page(first, count)]


def shown(text: str) -> list[tuple[str, str]]:
    return shown_parts(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\n", ["one", ""]),
        (b"\n\n\nfour", ["", "", "", "four"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"caf\xc3\xa9 \xff\n", ["caf\N{LATIN SMALL LETTER E WITH ACUTE} \N{REPLACEMENT CHARACTER}"]),
    ],
)
def test_lines_of_short_logs(log: bytes, expected: list[str]) -> None:
    lines = LogLines(reading(log))
    assert lines.count() == len(expected)
    assert texts(lines) == expected


@pytest.mark.parametrize("longest", [3, 90, 70_000, 3_000_000])
def test_every_part_of_a_log_is_that_of_the_whole(longest: int) -> None:
    chance = random.Random(longest)  # noqa: S311
    parts = [b"x" * chance.randrange(longest) for _ in range(max(9, min(5000, 8_000_000 // longest)))]
    log = b"\n".join(parts)
    lines = LogLines(reading(log))
    assert lines.count() == len(parts) - (not parts[-1])
    for _ in range(30):
        first = chance.randrange(len(parts))
        found = lines.page(first, chance.randrange(1, 50))
        assert found or first == len(parts) - 1
        for line, part in zip(found, parts[first:], strict=False):
            assert line.cut == (len(part) if len(part) > LONGEST_LINE else None)
            assert "".join(text for text, _ in line.parts) == part[:LONGEST_LINE].decode()


def test_pages_one_after_the_other_are_the_whole_log() -> None:
    log = b"".join(b"%d %s\n" % (number, b"y" * (number * 37 % 9000)) for number in range(3000))
    lines = LogLines(reading(log))
    seen: list[int] = []
    while len(seen) < lines.count():
        page = lines.page(len(seen), 5000)
        assert 0 < len(page) <= 2000
        seen += [line.number for line in page]
    assert seen == list(range(3000))


def test_a_log_that_grows_in_the_middle_of_lines_and_characters() -> None:
    whole = ("line \N{SNOWMAN}\n" * 40_000).encode()
    log = Log()
    lines = LogLines(reading(log))
    chance = random.Random(7)  # noqa: S311
    while len(log) < len(whole):
        log += whole[len(log) : len(log) + chance.randrange(1, 40_000)]
        assert lines.count() == log.count(b"\n") + (not log.endswith(b"\n"))
        assert texts(lines, lines.count() - 1)[0].startswith(("line", "lin", "li", "l"))
    assert texts(lines, 39_998) == ["line \N{SNOWMAN}"] * 2


def test_a_page_of_long_lines_is_shorter_and_never_empty() -> None:
    lines = LogLines(reading((b"z" * 20_000_000 + b"\n") * 3 + b"end"))
    assert lines.count() == 4
    assert [(line.number, line.cut) for line in lines.page(1, 2000)] == [(1, 20_000_000), (2, 20_000_000), (3, None)]


def test_a_log_that_is_deleted_while_it_is_looked_at() -> None:
    log = Log(b"a line\n" * 100_000)
    lines = LogLines(reading(log))
    assert lines.count() == 100_000
    del log[1000:]
    assert lines.page(50_000, 10) == []
    log.clear()
    assert lines.page(0, 10) == []
    assert lines.find("line", 0) == ([], None)
    assert list(lines.raw()) == []


def test_few_reads_find_any_line() -> None:
    log = b"a line of ordinary length, as programs write them\n" * 200_000
    asked: list[int] = []

    def read(offset: int, at_most: int) -> bytes:
        data = log[offset : offset + at_most]
        asked.append(len(data))
        return data

    lines = LogLines(read)
    lines.count()
    asked.clear()
    assert lines.page(123_456, 100)[0].number == 123_456
    assert len(asked) <= 3
    assert sum(asked) < 150_000


def test_a_long_line_is_cut_between_characters() -> None:
    for shift in range(4):
        parts = LogLines(reading(b"a" * shift + "\N{SLIGHTLY SMILING FACE}".encode() * 5000)).page(0, 1)
        assert "\N{REPLACEMENT CHARACTER}" not in parts[0].parts[0][0]
        assert len(parts[0].parts[0][0].encode()) > LONGEST_LINE - 4


# What a line shows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m plain", [("red", "fg-1"), (" plain", "")]),
        ("\x1b[1;4;32;41mall\x1b[22;24mless\x1b[mno", [("all", "bold underline fg-2 bg-1"), ("less", "fg-2 bg-1"), ("no", "")]),
        ("\x1b[97;100mbright\x1b[39mg\x1b[49mn", [("bright", "fg-15 bg-8"), ("g", "bg-8"), ("n", "")]),
        ("\x1b[38;5;196ma\x1b[38;2;0;0;250mb\x1b[48:2::255:255:255mc", [("a", "fg-9"), ("b", "fg-4"), ("c", "fg-4 bg-15")]),
        ("\x1b[38;5;999ma\x1b[38;9mb\x1b[38mc\x1b[38;5md", [("abcd", "")]),
        ("\x1b[2;3;9mdim\x1b[23;29mless", [("dim", "dim italic strike"), ("less", "dim")]),
        ("\x1b[8mnothing is hidden\x1b[7mnor reversed", [("nothing is hiddennor reversed", "")]),
        ("\x1b[38;5;1;1mbold and red", [("bold and red", "bold fg-1")]),
        ("\x1b]8;;https://example.com\x1b\\a link\x1b]8;;\x07!", [("a link!", "")]),
        ("\x1b]0;a title\x07text", [("text", "")]),
        ("\x1b]0;without an end", [("0;without an end", "")]),
        ("\x1bP+q544e\x1b\\\x1b_G\x1b\\\x1b(B\x1b7\x1bc\x1b[2Jtext\x1b[?25l", [("text", "")]),
        ("\x9b31mred\x9d0;title\x9c", [("red", "fg-1")]),
        ("lone \x1b", [("lone <U+001B>", "")]),
        ("a\tb\x00\x07\u202ec", [("a\tb<U+0000><U+0007><U+202E>c", "")]),
    ],
)  # fmt: skip
def test_colours_become_names_and_other_escapes_are_dropped(text: str, expected: list[tuple[str, str]]) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\r  0%|    | 0/9\r100%|####| 9/9", "100%|####| 9/9"),
        ("downloading 10%\rdone", "doneloading 10%"),
        ("downloading 10%\r\x1b[Kdone", "done"),
        ("downloading 10%\x1b[2K\rdone", "done"),
        ("downloading 10%\x1b[2Kdone", "               done"),
        ("abcdef\x1b[1K!", "      !"),
        ("1/9\b\b\b2/9\b\b\b3/9", "3/9"),
        ("\b\b\bx", "x"),
        ("text\r", "text"),
        ("first\r\rsecond\r", "second"),
    ],
)
def test_progress_bars_show_their_last_state(text: str, expected: str) -> None:
    assert "".join(part for part, _ in shown(text)) == expected


def test_the_colours_of_a_progress_bar_are_those_of_its_last_state() -> None:
    assert shown("\x1b[31m10%\x1b[0m\r\x1b[32m100%\x1b[0m done") == [("100%", "fg-2"), (" done", "")]


def test_a_long_progress_bar_shows_its_last_state() -> None:
    log = b"".join(b"\r%3d%%|bar| %d/90000" % (number // 900, number) for number in range(90_001)) + b"\nnext\n"
    bar, following = LogLines(reading(log)).page(0, 9)
    assert bar.parts == [("100%|bar| 90000/90000", "")]
    assert bar.cut == len(log) - len("\nnext\n")
    assert following.parts == [("next", "")]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_in_a_log(text: str) -> None:
    log = f"before\n{text}\nafter".encode("utf-8", "surrogatepass")
    lines = LogLines(reading(log))
    page = lines.page(0, 9)
    assert page[0].parts == [("before", "")]
    assert page[-1].parts == [("after", "")]
    assert len(page) == log.count(b"\n") + 1
    for line in page:
        for part, style in line.parts:
            assert all(
                letter.isprintable() or letter == "\t" or unicodedata.category(letter) == "Zs" or letter == "\u200d"
                for letter in part
            )
            assert re.fullmatch(r"((bold|dim|italic|underline|strike|[fb]g-\d+) ?)*", style)
            assert len(part) <= LONGEST_LINE * len("<U+10FFFF>")


@pytest.mark.parametrize("text", WITHOUT_MARKS, ids=range(len(WITHOUT_MARKS)))
def test_visible_characters_stay_as_they_are(text: str) -> None:
    (line,) = LogLines(reading(text.encode())).page(0, 1)
    ((part, style),) = line.parts
    assert text.startswith(part)
    assert style == ""


def test_the_time_for_hostile_lines_grows_with_their_length_alone() -> None:
    for text in ("\x1b[", "\x1b]", "\x1b[1;", "\x9d", "\r", "\b", "\x1b[K", "a\r", "\x1b[38;5;", "\x00", "\x1b[31ma"):
        data = (text * LONGEST_LINE)[:LONGEST_LINE].encode("utf-8")[:LONGEST_LINE]
        began = time.process_time()
        shown_parts(data)
        assert time.process_time() - began < 0.5, repr(text)


# Search


def test_a_search_finds_lines_whatever_the_case() -> None:
    lines = LogLines(reading(b"start\nan Error\nERROR and error\nfine\nerr\nor\n\x1b[31mer\x1b[0mror\n"))
    assert lines.find("error", 0) == ([1, 2, 6], None)
    assert lines.find("ERROR", 2) == ([2, 6], None)
    assert lines.find("error", 99) == ([], None)
    assert lines.find("", 0) == ([], None)
    assert lines.find("31m", 0) == ([], None)


def test_a_search_for_letters_beyond_ascii() -> None:
    lines = LogLines(
        reading("stra\N{LATIN SMALL LETTER SHARP S}e\nCAF\N{LATIN CAPITAL LETTER E WITH ACUTE}\n\xff".encode())
    )
    assert lines.find("caf\N{LATIN SMALL LETTER E WITH ACUTE}", 0) == ([1], None)
    assert lines.find("\ud800", 0) == ([], None)


def test_a_search_over_pieces_and_long_lines() -> None:
    filler = b"-" * 999_990
    log = filler + b"needle\n" + filler * 7 + b"needle" + filler * 3 + b"NEEDLE\nend needle"
    assert LogLines(reading(log)).find("needle", 0) == ([0, 1, 2], None)


def test_a_search_stops_after_many_hits_and_goes_on() -> None:
    lines = LogLines(reading(b"hit\nmiss\n" * 3000))
    found: list[int] = []
    more: int | None = 0
    while more is not None:
        hits, more = lines.find("hit", more)
        assert len(hits) <= MOST_HITS
        found += hits
    assert found == list(range(0, 6000, 2))


def test_a_search_without_time_tells_where_it_goes_on_and_gets_to_the_end() -> None:
    lines = LogLines(reading(b"a line that is searched\n" * 300_000 + b"needle\n"))
    found: list[int] = []
    more: int | None = 0
    rounds = 0
    while more is not None:
        hits, more = lines.find("needle", more, seconds=0.0)
        found, rounds = found + hits, rounds + 1
    assert found == [300_000]
    assert rounds > 3


# Several logs


def in_order(*logs: bytes) -> LogsInOrder:
    return LogsInOrder([Part(f"==> task attempt {n} <==", LogLines(reading(log))) for n, log in enumerate(logs, 1)])


def test_several_logs_have_headings() -> None:
    lines = in_order(b"a\nb\n", b"", b"c")
    expected = ["==> task attempt 1 <==", "a", "b", "==> task attempt 2 <==", "==> task attempt 3 <==", "c"]
    assert texts(lines) == expected
    assert [line.number for line in lines.page(0, 99)] == list(range(6))
    for first in range(7):
        for count in range(1, 7):
            assert texts(lines, first, count) == expected[first : first + count]
    assert b"".join(lines.raw()).decode().splitlines() == expected


def test_a_search_over_several_logs() -> None:
    lines = in_order(b"needle\nb\n", b"", b"c\nneedle")
    assert lines.find("needle", 0) == ([1, 6], None)
    assert lines.find("needle", 2) == ([6], None)
    assert lines.find("attempt 3", 1) == ([4], None)
    found: list[int] = []
    more: int | None = 0
    while more is not None:
        hits, more = lines.find("e", more, most=1)
        found += hits
    assert found == [0, 1, 3, 4, 6]
