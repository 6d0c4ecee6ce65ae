"""The node of one rank is taken, then another's, then all; a launcher that is killed alone leaves orphans, which are named."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.project import Project, eventually
from tests.rehearsal.waiting_ranks import WAITS, waiting_ranks

from spotwright.local.supervisor.kernel import FileCall
from spotwright.notices import from_environment
from spotwright.rehearsal.attempt_trace import FileOperation
from spotwright.rehearsal.injection_points import SAVES, FileActivity, InjectionKind, draw_points, summarize_activity
from spotwright.rehearsal.ranks import TakenRanks, launcher_of, notice_pattern, rank_processes, write_notices

LAUNCHER = Path(__file__).with_name("launch_ranks.py")


@pytest.fixture
def main_process() -> Iterator[int]:
    """A process that waits for a launcher of two ranks, as the main process of an attempt does."""
    with waiting_ranks(sys.executable, str(LAUNCHER), "2", "-c", WAITS) as process:
        yield process


def test_the_process_of_each_rank_is_found_and_the_launcher_that_started_them(main_process: int) -> None:
    ranks = rank_processes(main_process)
    launcher = launcher_of(ranks, main_process)

    assert list(ranks) == [0, 1]
    assert launcher is not None
    assert b"launch_ranks.py" in Path(f"/proc/{launcher}/cmdline").read_bytes()
    assert launcher_of(ranks, launcher) is None


def test_the_node_of_one_rank_goes_and_its_launcher_sees_that(main_process: int) -> None:
    taken = TakenRanks(main_process, [1], of_launcher=False)
    other = rank_processes(main_process)[0]
    taken.kill()

    eventually(lambda: not Path(f"/proc/{other}").exists())  # ended by the launcher, as a rank without its peer
    assert taken.missing == ""


def test_a_rank_that_no_process_has_cannot_be_taken(main_process: int) -> None:
    assert TakenRanks(main_process, [2], of_launcher=False).missing == "no process has RANK=2 in its environment"


def test_ranks_that_outlive_their_launcher_are_named_and_ended(main_process: int) -> None:
    ranks = rank_processes(main_process)
    taken = TakenRanks(main_process, (), of_launcher=True)
    taken.kill()
    time.sleep(0.2)

    orphans = taken.end_orphans()

    assert list(orphans) == [0, 1]
    assert all("python" in command for command in orphans.values())
    eventually(lambda: not any(Path(f"/proc/{each}").exists() and _runs(each) for each in ranks.values()))


def _runs(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_the_notice_of_one_rank_reaches_that_rank_alone(tmp_path: Path) -> None:
    write_notices(str(tmp_path), [1], time.time(), time.time() + 60, "rehearsed")
    sources = [
        from_environment({"SPOTWRIGHT_NOTICE_FILE": notice_pattern(str(tmp_path)), "RANK": rank}) for rank in ("0", "1")
    ]
    found = [source.wait(0) if source is not None else None for source in sources]

    assert found[0] is None
    assert found[1] is not None


A_SAVE = [FileOperation(call, SAVES, "s", 0.1) for call in (FileCall.OPEN, FileCall.WRITE)]


def test_one_rank_then_another_then_all_are_taken_with_and_without_notice() -> None:
    points = draw_points(1, "t", summarize_activity(A_SAVE), 1, ranks=4)
    taken = [
        (each.ranks, each.notice) for point in points if point.kind is InjectionKind.RANK for each in point.injections
    ]
    (one, another) = dict.fromkeys(ranks for ranks, _ in taken if len(ranks) == 1)

    assert {(ranks, notice) for ranks in (one, another, (0, 1, 2, 3)) for notice in (False, True)} < set(taken)
    assert len({point.name for point in points}) == len(points)
    assert any(each.of_launcher for point in points for each in point.injections)


def test_without_ranks_the_points_are_as_before() -> None:
    points = draw_points(1, "t", FileActivity(), 3)

    assert all(point.kind is not InjectionKind.RANK for point in points)
    assert draw_points(1, "t", FileActivity(), 3, ranks=2)[: len(points)] == points


TRAINING = """
import json, os, pathlib, time
folder, rank = pathlib.Path(os.environ["SPOTWRIGHT_CHECKPOINT"]), os.environ["RANK"]
saved = folder / "state.json"
step = json.loads(saved.read_text())["step"] if saved.exists() else 0
while step < 24:
    time.sleep(0.05)
    step += 1
    if rank == "0" and step % 2 == 0:
        (folder / "state.new").write_text(json.dumps({"step": step}))
        (folder / "state.new").rename(saved)
if rank == "0":
    pathlib.Path("model.json").write_text(str(step))
while not pathlib.Path("model.json").exists():  # the ranks end together, as those of a training do
    time.sleep(0.01)
"""
AT_ITS_NOTICE = """
import json, os, pathlib, signal, sys, time
folder, rank = pathlib.Path(os.environ["SPOTWRIGHT_CHECKPOINT"]), os.environ["RANK"]
def told(*_):
    path = pathlib.Path(os.environ["SPOTWRIGHT_NOTICE_FILE"].replace("{rank}", rank))
    with (folder / "told").open("a") as file:
        file.write(f"{rank} {path.exists()}\\n")
    sys.exit(143)
signal.signal(signal.SIGTERM, told)
begun = folder / f"begun-{rank}"
if begun.exists():
    if rank == "0":
        pathlib.Path("model.json").write_text("1")
        pathlib.Path("told.txt").write_text((folder / "told").read_text() if (folder / "told").exists() else "")
    sys.exit()
begun.write_text("1")
while not all((folder / f"begun-{each}").exists() for each in "01"):
    time.sleep(0.01)
while rank == "1" and not (folder / "over").exists():
    time.sleep(0.01)
if rank == "0":
    for step in range(40):
        pathlib.Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(step / 40))
        time.sleep(0.1)
    (folder / "over").write_text("1")
    pathlib.Path("model.json").write_text("1")
    pathlib.Path("told.txt").write_text("")
"""
"""Both ranks hear SIGTERM before the first reports its progress, and the second goes on until the first is done."""


def of_ranks(project: Project, code: str, *options: str, ranks: int = 2) -> dict[str, Any]:
    project.write("train.py", code)
    shutil.copy(LAUNCHER, project.folder)
    done = project.spotwright(
        "rehearse", "--seed", "5", "--interruptions", "1", "--ranks", str(ranks), "--json", *options, "--",
        sys.executable, "launch_ranks.py", "2", "train.py",
    )  # fmt: skip
    (step,) = json.loads(done.out)["steps"]
    return {**step, "code": done.code}


@pytest.mark.slow
def test_a_training_of_two_ranks_resumes_when_a_rank_another_or_both_lose_their_nodes(project: Project) -> None:
    step = of_ranks(project, TRAINING, "--must-resume", "--output", "model.json")
    taken = [each for point in step["points"] if point["kind"] == "rank" for each in point["interruptions"]]

    assert (step["code"], step["verdict"]) == (0, "safe and resumes")
    assert {tuple(each["ranks"]) for each in taken} == {(0,), (1,), (0, 1), ()}
    attempts = [
        len(point["attempts"]) for point in step["points"] if point["kind"] == "rank" and point["interruptions"]
    ]
    assert set(attempts) == {2}


@pytest.mark.long
@pytest.mark.slow
def test_a_launcher_that_is_killed_alone_leaves_ranks_that_are_named(project: Project) -> None:
    step = of_ranks(project, TRAINING, "--output", "model.json")

    (orphans,) = step["orphans"]
    assert list(orphans) == ["0", "1"]
    assert all(command.endswith("train.py") for command in orphans.values())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.long
def test_the_other_ranks_hear_of_the_loss_from_their_launcher_and_see_no_notice(project: Project) -> None:
    step = of_ranks(project, AT_ITS_NOTICE, "--output", "told.txt", "--notice", "3s")
    points = {point["name"]: point for point in step["points"]}

    for rank, other in (("0", "1"), ("1", "0")):
        (difference,) = [each for each in points[f"rank {rank}, with notice"]["differences"] if "told.txt" in each]
        run = points[f"rank {rank}, with notice"]["run"]
        (told,) = project.folder.glob(f".spotwright/rehearsals/*/runs/{run}/tasks/command/attempt-2/work/told.txt")
        assert set(told.read_text().splitlines()) == {f"{rank} True", f"{other} False"}, difference


def test_a_step_with_other_ranks_than_were_said_is_refused(project: Project) -> None:
    project.write("train.py", "import time; time.sleep(1)")
    shutil.copy(LAUNCHER, project.folder)
    done = project.spotwright("rehearse", "--ranks", "3", "--", sys.executable, "launch_ranks.py", "2", "train.py")

    assert done.code == 2
    assert "--ranks 3: expected processes with RANK=0 to RANK=2 in their environment" in done.err
    assert "the ranks of this step were 0, 1" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ranks", "0", "--", "true"), "--ranks 0: expected a number from 2 to 1000"),
        (("--ranks", "1", "--", "true"), "--ranks 1: expected a number from 2 to 1000"),
        (("--ranks", "2", "step.yaml"), "--ranks: is for commands"),
    ],
)
def test_ranks_of_what_has_none_are_refused(words: tuple[str, ...], message: str, project: Project) -> None:
    done = project.here("rehearse", *words)

    assert done.code == 2
    assert message in done.err


@pytest.mark.long
@pytest.mark.slow
def test_a_launcher_finds_the_address_of_its_own_host(project: Project) -> None:
    project.write(
        "train.py", "import socket\nprint(socket.gethostname(), socket.gethostbyname(socket.gethostname()))\n"
    )
    project.spotwright("rehearse", "--interruptions", "1", "--", sys.executable, "train.py")
    (log,) = project.folder.glob(".spotwright/rehearsals/*/runs/undisturbed/tasks/command/attempt-1/log.txt")

    assert log.read_text().split() == ["command-1", "127.0.0.1"]
