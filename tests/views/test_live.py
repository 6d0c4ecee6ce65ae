"""The live display: bounded, cheap, and gone when the run has ended."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from rich.console import Console
from tests.views.builders import CPU, START, Story, a_plan, a_task, tutorial, tutorial_plan

from spotwright.engine.events import Event
from spotwright.engine.state import RunState
from spotwright.views.live_table import LiveProgress, LiveState, Picture
from spotwright.views.run_progress import PlainProgress, make_progress


def drawn(content: LiveState, now: float, width: int = 100, height: int = 30) -> list[str]:
    """The lines of the display as a terminal of this size shows them."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None, legacy_windows=False)
    for line in Picture(content, now, console).lines():
        console.print(line)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.fixture
def content() -> LiveState:
    return LiveState()


def test_a_running_task_is_shown_with_its_node_its_progress_and_its_age(content: LiveState) -> None:
    story = (
        Story(tutorial_plan(), [content.update])
        .boots("cpu-spot-1")
        .binds("download", "cpu-spot-1")
        .reports("download", 0.4)
    )
    assert drawn(content, story.at + 7.2) == [
        " iris-x7k2p  9s  0 of 3 tasks done, 1 running",
        " ● download  attempt 1 on cpu-spot-1   40% ━━━━━━━━────────────  7s",
        " · merge     waits for download",
        " · train     waits for merge",
    ]


def test_an_interruption_is_shown_with_its_reason_and_the_backoff_counts_down(content: LiveState) -> None:
    story = (
        Story(tutorial_plan(), [content.update])
        .boots("cpu-spot-1")
        .binds("download", "cpu-spot-1")
        .taken("cpu-spot-1", "download")
    )
    assert drawn(content, story.at + 0.3) == [
        " iris-x7k2p  2s  0 of 3 tasks done, 0 running, 1 interruption",
        " ↻ download  waits before attempt 2  1s left",
        " · merge     waits for download",
        " · train     waits for merge",
        "   +2s download: attempt 1 on cpu-spot-1 was interrupted: its node is gone, without a notice that",
        "      was seen",
        "   +2s download: interruption 1 of 10: again on cpu-spot after 1s",
    ]


def test_a_task_without_a_node_shows_the_pools_it_waits_for(content: LiveState) -> None:
    story = Story(tutorial_plan(), [content.update]).node("cpu-spot-1", "booting")
    assert drawn(content, story.at + 1)[1] == " ○ download  waits for a node of cpu-spot (1 node booting)  1s"


def test_a_node_that_is_ready_boots_no_more(content: LiveState) -> None:
    story = Story(a_plan(a_task("a"), a_task("b")), [content.update]).boots("cpu-spot-1").binds("a", "cpu-spot-1")
    assert drawn(content, story.at)[2] == " ○ b  waits for a node of cpu-spot  2s"


def test_a_noticed_attempt_counts_down_to_the_end_of_its_node(content: LiveState) -> None:
    story = Story(tutorial_plan(), [content.update]).boots("cpu-spot-1").binds("download", "cpu-spot-1")
    story.fact("notice", node="cpu-spot-1", goes_at=story.at + 30, attempts=[["download", 1]], why="taken")
    assert drawn(content, story.at + 12)[1] == " ● download  attempt 1 on cpu-spot-1, to be reclaimed  18s left"


class Joining:
    """An observer that misses the first batches and joins then."""

    def __init__(self, missed: int) -> None:
        self.content, self._missed = LiveState(), missed

    def __call__(self, state: RunState, events: Sequence[Event]) -> None:
        self._missed -= 1
        if self._missed == 0:
            self.content.join(state)
        elif self._missed < 0:
            self.content.update(state, events)


def test_a_display_that_joins_a_run_equals_one_from_the_start() -> None:
    batches: list[int] = []
    tutorial([lambda _, events: batches.append(len(events))])
    for missed in range(1, len(batches) + 1):
        content, joining = LiveState(), Joining(missed)
        story = tutorial([content.update, joining])
        content.troubles.clear()
        joining.content.troubles.clear()
        assert drawn(joining.content, story.at) == drawn(content, story.at), f"joined after {missed} batches"


def test_a_display_that_joins_shows_booting_nodes_and_counts_interruptions() -> None:
    tasks = [a_task("a"), a_task("b"), a_task("c", "a")]
    content = LiveState()
    story = Story(a_plan(*tasks), [content.update]).boots("cpu-spot-1").binds("a", "cpu-spot-1")
    story.taken("cpu-spot-1", "a").after(1).node("cpu-spot-2", "booting")
    joined = LiveState()
    joined.join(story.state)
    content.troubles.clear()
    assert drawn(joined, story.at) == drawn(content, story.at)
    assert "1 interruption" in drawn(joined, story.at)[0]
    assert "(1 node booting)" in "".join(drawn(joined, story.at))


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(content: LiveState, width: int) -> None:
    tasks = [a_task(f"a-task-with-quite-a-long-name-that-says-all-{index}") for index in range(5)]
    story = Story(a_plan(*tasks), [content.update]).boots("cpu-spot-1")
    for task in tasks[:3]:
        story.binds(task.name, "cpu-spot-1")
    story.taken("cpu-spot-1", tasks[0].name)
    lines = drawn(content, story.at, width)
    assert max(map(len, lines)) <= width
    assert "attempt 1 on cpu-spot-1" in " ".join(lines)
    assert "without a notice" in " ".join(" ".join(lines).split())


def test_thousands_of_tasks_take_no_more_lines_than_twenty(content: LiveState) -> None:
    tasks = [a_task(f"task-{index}", requests={"cpu": CPU}) for index in range(3_000)]
    story = Story(a_plan(*tasks), [content.update]).boots("cpu-spot-1")
    for task in tasks[:300]:
        story.binds(task.name, "cpu-spot-1")
    for task in tasks[:30]:
        story.ends(task.name, signal=9, node_gone=True, spot=True)
    lines = drawn(content, story.at)
    assert len(lines) <= 20
    assert lines[0] == " iris-x7k2p  2s  0 of 3,000 tasks done, 270 running, 30 interruptions"
    assert "2,988 more under way" in lines[13]
    assert len(drawn(content, story.at, height=12)) <= 12


def test_many_tasks_that_wait_for_others_are_only_counted(content: LiveState) -> None:
    chain = [a_task("task-0"), *(a_task(f"task-{index}", f"task-{index - 1}") for index in range(1, 100))]
    Story(a_plan(*chain), [content.update])
    assert drawn(content, START)[-1] == "   99 wait for others"


def test_a_batch_costs_as_much_with_thousands_of_tasks_as_with_a_hundred() -> None:
    def steps(count: int) -> int:
        """How many lines of Python one batch takes."""
        content = LiveState()
        story = Story(a_plan(*(a_task(f"task-{index}") for index in range(count))), [content.update]).boots(
            "cpu-spot-1"
        )
        story.observers, taken = [], len(story.events)
        story.binds("task-0", "cpu-spot-1").reports("task-0", 0.5)
        return counted(lambda: content.update(story.state, story.events[taken:]))

    assert steps(3_000) <= steps(100) + 5


def counted(work: Callable[[], None]) -> int:
    lines = 0

    def trace(_frame: object, event: str, _arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    gc.collect()
    gc.disable()  # what other tests left behind is finalized by lines of Python too
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines


def test_stopping_is_shown(content: LiveState) -> None:
    story = (
        Story(tutorial_plan(), [content.update])
        .boots("cpu-spot-1")
        .binds("download", "cpu-spot-1")
        .fact("stop", why="Ctrl-C")
    )
    lines = drawn(content, story.at)
    assert lines[1] == " ● download  attempt 1 on cpu-spot-1, stopping  0s"
    assert lines[-1] == " Ctrl-C"


def test_a_display_of_a_resumed_run_counts_the_tasks_done_before(content: LiveState) -> None:
    story = Story(tutorial_plan()).boots("cpu-spot-1").binds("download", "cpu-spot-1").ends("download")
    story.binds("merge", "cpu-spot-1").ends("merge", exit_code=1)
    story.observers = [content.update]
    story.fact("reset", version=1, again=[])
    assert drawn(content, story.at)[0] == " iris-x7k2p  0s  1 of 3 tasks done, 0 running"


def test_a_terminal_without_unicode_gets_plain_marks(content: LiveState) -> None:
    story = (
        Story(tutorial_plan(), [content.update])
        .boots("cpu-spot-1")
        .binds("download", "cpu-spot-1")
        .reports("download", 0.5)
    )
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=100)
    text = "\n".join(line.plain for line in Picture(content, story.at, console).lines())
    assert text.encode("ascii")
    assert "##########----------" in text


# When it draws


@pytest.mark.parametrize(("age", "pause"), [(0.25, 0.75), (59.5, 0.5), (90.0, 30.0), (3605.0, 55.0)])
def test_it_draws_again_when_a_figure_changes_and_not_before(content: LiveState, age: float, pause: float) -> None:
    story = Story(a_plan(a_task("train")), [content.update])
    content.started_at = START
    story.node("cpu-spot-1", "booting").fact("node", node="cpu-spot-1", pool="cpu-spot", state="ready").binds(
        "train", "cpu-spot-1"
    )
    picture = Picture(content, START + age, Console(file=io.StringIO(), width=100))
    list(picture.lines())
    assert picture.changes_in == pytest.approx(pause)


class Terminal:
    """A pseudo-terminal of 100 columns; ``seen`` is everything that was written to it."""

    def __init__(self) -> None:
        master, slave = os.openpty()
        self._master = master
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.seen = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            self.seen += data

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 120
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, self.seen
            time.sleep(0.01)

    def close(self) -> None:
        self.stream.close()
        self._reader.join(120)
        os.close(self._master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "30")
    monkeypatch.delenv("NO_COLOR", raising=False)
    opened = Terminal()
    yield opened
    opened.close()


def test_a_terminal_shows_the_run_and_is_left_as_it_was(terminal: Terminal) -> None:
    with LiveProgress(terminal.stream, lambda: START + 5) as progress:
        Story(tutorial_plan(), [progress]).boots("cpu-spot-1").binds("download", "cpu-spot-1")
        terminal.wait_for("attempt 1 on cpu-spot-1")
        assert b"\x1b[?25l" in terminal.seen  # the cursor is hidden
    terminal.wait_for("\x1b[?25h")  # and shown again
    assert not [thread for thread in threading.enumerate() if thread.name == "spotwright-progress"]


def test_an_error_of_the_engine_leaves_the_terminal_clean_too(terminal: Terminal) -> None:
    def fails() -> None:
        with LiveProgress(terminal.stream, lambda: START) as progress:
            Story(tutorial_plan(), [progress])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    terminal.wait_for("\x1b[?25h")


def test_no_color_is_honoured(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with LiveProgress(terminal.stream, lambda: START + 5) as progress:
        Story(tutorial_plan(), [progress]).boots("cpu-spot-1").binds("download", "cpu-spot-1")
        terminal.wait_for("attempt 1 on cpu-spot-1")
    assert b"\x1b[32m" not in terminal.seen


class Counting(LiveProgress):
    """Counts how often it draws."""

    drawn = 0

    def tick(self) -> float | None:
        self.drawn += 1
        return super().tick()


def test_many_events_are_drawn_a_few_times_only(terminal: Terminal) -> None:
    with Counting(terminal.stream, lambda: START) as progress:
        began = time.monotonic()
        for _ in range(20):
            tutorial([progress])
        drawn_so_far = progress.drawn
        took = time.monotonic() - began
    assert drawn_so_far <= took / 0.1 + 2


def test_a_terminal_gets_the_live_display_and_a_dumb_one_plain_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(make_progress(terminal.stream), LiveProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_progress(terminal.stream), PlainProgress)
