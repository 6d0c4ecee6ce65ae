"""Whoever names a task, a node or a pod, or ends a process, writes on no terminal: every view shows marks instead."""

from __future__ import annotations

import logging
import re
import sys
import time
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests.events import an_event
from tests.page.hostile_texts import HOSTILE, WITHOUT_MARKS
from tests.views.builders import Story, a_plan, a_task

from spotwright.cli import say
from spotwright.views.account import account
from spotwright.views.account_report import report_text
from spotwright.views.live_table import LiveState, Picture
from spotwright.views.notebook import run_html
from spotwright.views.run_json import run_view, summary
from spotwright.views.run_progress import PlainProgress
from spotwright.views.run_text import runs_text, show_text, summary_text
from spotwright.visible_logs import VisibleFormatter
from spotwright.visible_text import coloured, visible

_GROUPS = [HOSTILE[begin : begin + 20] for begin in range(0, len(HOSTILE), 20)]
_JOINER = "\u200d"


def drives_nothing(text: str, *, but: str = "\n") -> bool:
    """Whether all characters are seen, or are spaces, or join emojis."""
    return all(
        letter.isprintable() or letter in but or letter == _JOINER or unicodedata.category(letter) == "Zs"
        for letter in set(text)
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_becomes_one_line_that_drives_nothing(text: str) -> None:
    shown = visible(text)
    assert drives_nothing(shown, but="")
    assert visible(shown) == shown
    assert drives_nothing(visible(text, block=True), but="\n\t")
    shown.encode()


@pytest.mark.parametrize("text", WITHOUT_MARKS, ids=range(len(WITHOUT_MARKS)))
def test_what_is_seen_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_every_character_that_is_not_seen_has_a_mark() -> None:
    categories = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    hidden = [letter for letter in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(letter) in categories]
    assert len(hidden) > 900_000
    assert visible("a".join(hidden)) == "a".join(f"<U+{ord(letter):04X}>" for letter in hidden)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u202egnp.exe", "<U+202E>gnp.exe"),
        ("a\tb\nc", "a<U+0009>b<U+000A>c"),
        ("e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301\u0301\u0301<U+0301>"),
        ("x\ufe0fy", "x<U+FE0F>y"),
        ("\u2714\ufe0f\ufe0f", "\u2714\ufe0f<U+FE0F>"),
        ("\u26a0\ufe0f 1\ufe0f\u20e3 \U0001f469\u200d\U0001f4bb", "\u26a0\ufe0f 1\ufe0f\u20e3 \U0001f469\u200d\U0001f4bb"),
        ("na\u00efve caf\u00e9 \u65e5\u672c\u8a9e\u3000\u0e0a\u0e31\u0e49\u0e19 \u0928\u092e\u0938\u094d\u0924\u0947", None),
        ("10\u00a0000 \u2501\u2501\u2588\u2591 \u2713", None),
    ],
)  # fmt: skip
def test_marks(text: str, shown: str | None) -> None:
    assert visible(text) == (text if shown is None else shown)


def test_a_block_of_text_keeps_its_lines() -> None:
    assert visible("a\tb\r\nc\x1b", block=True) == "a\tb<U+000D>\nc<U+001B>"


@pytest.mark.parametrize(
    "letter", ["\x00", "\u0301", "\u202e", "\x1b[", "\x1b]", "\x9d", "\ufe0f", "\u200d", "\u2500", "e\u0301"]
)
def test_the_time_grows_with_the_length_alone(letter: str) -> None:
    text = letter * (300_000 // len(letter))
    began = time.process_time()
    visible(text, block=True)
    coloured(text)
    assert time.process_time() - began < 3.0


def a_run(texts: list[str], *observers: object) -> Story:
    """A run with these texts in the place of everything that others choose: tasks that fail with them and tasks that wait."""
    tasks = [a_task(f"task-{number}") for number in range(len(texts))]
    named = [replace(task, display_name=text) for task, text in zip(tasks, texts, strict=True)]
    after = a_task("after", *(task.name for task in tasks))
    plan = a_plan(*named, after, policy={"retries": 0})
    meta = {"arguments": {"text": " ".join(texts)}, "pipeline": texts[0]}
    story = Story(plan, observers, **meta)  # type: ignore[arg-type]
    for number, text in enumerate(texts):
        node = {"node": f"node {number} {text}", "pool": "cpu-spot"}
        story.tell(an_event("node", story.at, data={**node, "state": "booting"}))
        story.tell(an_event("node", story.at, data={**node, "state": "ready"}))
        story.fact("bound", f"task-{number}", 1, **node)
    for number, text in enumerate(texts[: len(texts) // 2]):
        how = (
            {"start_error": text}
            if number % 2
            else {"phase": "Failed", "reason": text, "message": text, "exit_code": 1}
        )
        story.ends(f"task-{number}", {"last_line": text}, **how)
    return story


@pytest.mark.parametrize("texts", _GROUPS, ids=range(len(_GROUPS)))
def test_no_view_of_a_run_writes_on_the_terminal(texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    lines, live = StringIO(), LiveState()
    state = a_run(texts, PlainProgress(lines), live.update).state
    drawn = StringIO()
    console = Console(file=drawn, width=100, height=60, color_system=None, legacy_windows=False)
    for line in Picture(live, state.started_at + 5.0, console).lines():
        console.print(line)
    view = run_view(state, "a-run")
    for text in (
        show_text(view),
        summary_text(state, "a-run", state.started_at),
        runs_text([summary(state, "a-run")]),
        report_text(account(state), "a-run"),
    ):
        say(text)
    printed = capsys.readouterr().out
    assert "task-1" in printed
    for shown in (printed, lines.getvalue(), drawn.getvalue(), run_html(view, account(state)).replace("\xa0", " ")):
        assert shown
        assert drives_nothing(shown, but="\n\t"), [letter for letter in set(shown) if not drives_nothing(letter)]


def test_a_text_with_lines_makes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StringIO()
    forged = "Run daily succeeded after 1s"
    state = a_run(
        [f"{end}{forged}" for end in ("\n", "\r\n", "\r", "\x0b", "\x85", "\u2028")] * 2, PlainProgress(lines)
    ).state
    view = run_view(state, "a-run")
    for text in (show_text(view), summary_text(state, "a-run"), runs_text([summary(state, "a-run")])):
        say(text)
    printed = f"{capsys.readouterr().out}\n{lines.getvalue()}"
    assert forged in printed.replace("\n", " ")
    assert not [line for line in printed.splitlines() if line.startswith(forged)]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)


def test_a_notebook_has_the_elements_of_an_ordinary_run() -> None:
    parser = _Tags()
    for texts in _GROUPS:
        state = a_run(texts).state
        parser.feed(run_html(run_view(state, "a-run"), account(state)))
    assert parser.seen <= {"div", "span", "b", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "pre"}


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m\n\x1b[0m"),
        (" 10%|#\r100%|##\n", " 10%|#\r100%|##\n"),
        ("10%\x1b[2K\r\x1b[Kdone\x1b[3K\x1b[1A\n", "10%\x1b[2K\r\x1b[Kdone\n"),
        ("1/2\b\b\b2/2\n", "1/2\b\b\b2/2\n"),
        ("\x1b[2J\x1b[H\x1b]0;title\x07\x1bctext", "text"),
        ("\x1b]52;c;without an end", "52;c;without an end"),
        ("a\x07\u202eb\x9b2Jc", "a<U+0007><U+202E>bc"),
        ("\x1b[?1m\x1b[>4;2m\x1b[1 mtext", "text"),
    ],
)
def test_a_log_keeps_its_colours_on_a_terminal_and_drives_nothing_else(log: str, shown: str) -> None:
    assert coloured(log) == shown


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_logs_on_a_terminal(text: str) -> None:
    shown = coloured(text)
    assert "\x1b" not in re.sub(r"\x1b\[([0-9;:]*m|[012]?K)", "", shown)
    assert drives_nothing(shown.replace("\x1b", ""), but="\n\t\r\b")


def test_commands_print_with_one_function() -> None:
    """Text to people goes through one function, and the content of files through another one beside it."""
    files = Path(say.__code__.co_filename).parent.glob("*.py")
    found = {file.name: file.read_text().count("click.echo(") for file in files}
    assert {name: count for name, count in found.items() if count} == {
        "__init__.py": 1,
    }


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_line_of_a_log_that_names_it_is_one_line_that_drives_nothing(text: str) -> None:
    record = logging.LogRecord("spotwright", logging.WARNING, __file__, 1, "Job %s: placed", (text,), None)
    written = VisibleFormatter("%(levelname)s %(message)s").format(record)
    assert drives_nothing(written, but="\n\t")
    assert all(line.startswith("    ") for line in written.split("\n")[1:])
