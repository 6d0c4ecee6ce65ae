"""Trials side by side: results in order, a bound on how many, an error or a refusal of one."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spotwright.errors import StateError
from spotwright.rehearsal.side_by_side import room_for, run_side_by_side


def after(seconds: float, value: int) -> tuple[int, float, float]:
    began = time.monotonic()
    time.sleep(seconds)
    return value, began, time.monotonic()


def start_all(_: int) -> bool:
    return True


@pytest.mark.parametrize("room", [1, 2, 8])
def test_results_come_in_the_order_of_the_trials(room: int) -> None:
    trials = [partial(after, (3 - number) * 0.03, number) for number in range(4)]

    results = list(run_side_by_side(trials, room, start_all))

    assert [result[0] for result in results if result] == [0, 1, 2, 3]


def test_as_many_trials_as_there_is_room_for_run_at_the_same_time_and_no_more() -> None:
    pair = multiprocessing.get_context("fork").Barrier(2, timeout=600)

    def meets_another() -> tuple[float, float]:
        began = time.monotonic()
        pair.wait()
        time.sleep(0.01)
        return began, time.monotonic()

    spans = [span for span in run_side_by_side([meets_another] * 6, 2, start_all) if span]

    at_once = [sum(began <= moment < ended for began, ended in spans) for moment, _ in spans]
    assert len(spans) == 6
    assert max(at_once) == 2


@pytest.mark.parametrize("room", [1, 2])
def test_a_trial_that_may_not_start_has_no_result(room: int) -> None:
    results = list(run_side_by_side([partial(after, 0.0, number) for number in range(3)], room, lambda n: n != 1))

    assert [result and result[0] for result in results] == [0, None, 2]


def fails() -> int:
    raise ValueError("broken")


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["terminal", "background job"])
def test_a_trial_that_raises_ends_the_others_and_leaves_no_process(
    capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest, handler: Any
) -> None:
    before = signal.signal(signal.SIGINT, handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    trials: list[Callable[[], object]] = [fails, partial(time.sleep, 600.0)]

    with pytest.raises(StateError, match="without a result"):
        list(run_side_by_side(trials, 2, start_all))

    assert "ValueError: broken" in capfd.readouterr().err
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


class InterruptedOutput(io.StringIO):
    """Standard output of a process that gets a second Ctrl-C while it writes its last lines."""

    def flush(self) -> None:
        raise KeyboardInterrupt


def ends_with_a_second_interrupt() -> int:
    sys.stdout = InterruptedOutput()
    raise KeyboardInterrupt


def test_a_second_ctrl_c_ends_a_trial_too(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="without a result"):
        list(run_side_by_side([ends_with_a_second_interrupt] * 2, 2, start_all))
    (tmp_path / str(os.getpid())).touch()
    assert len(list(tmp_path.iterdir())) == 1, "a trial has gone on with the code of its parent"


def test_a_step_that_needs_all_cores_runs_alone() -> None:
    cores = len(os.sched_getaffinity(0))

    assert room_for(10.0, 10.0 * cores, 1) == 1
    assert room_for(10.0, 9.9, 1) == cores, "a step of one thread takes one core"
    assert room_for(20.0, 0.5, 1) >= 16, "a step that waits has room for all of its trials"
    assert room_for(10.0, 0.1, 1) >= 2 * cores
    assert room_for(0.1, 0.01, 1) == cores
    assert room_for(10.0, 0.1, 1 << 60) == 1, "the memory of one trial is all that there is"
