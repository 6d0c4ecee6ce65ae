"""An artifact with a custom path reaches the next task from there, as KFP's launcher brings it."""

from __future__ import annotations

# ruff: noqa: S108 (each attempt has its own /tmp)
import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Of, document, step
from tests.e2e.containers.container_engine import ContainerEngine
from tests.e2e.project import Project

from spotwright.local.supervisor import custom_paths


def makes_a_file(made: dsl.Output[dsl.Dataset]) -> None:  # type: ignore[name-defined]  # noqa: F821
    made.set_path("/tmp/out_dataset")
    Path(made.path).write_text("Hello, World!")


def makes_a_folder(made: dsl.Output[dsl.Dataset]) -> None:  # type: ignore[name-defined]  # noqa: F821
    made.custom_path = "/tmp/model/best"
    Path("/tmp/model/best/shards").mkdir(parents=True)
    Path("/tmp/model/best/shards/0").write_text("Hello, ")
    Path("/tmp/model/blob").write_text("World!")
    Path("/tmp/model/best/shards/1").symlink_to("/tmp/model/blob")


def makes_it_at_its_end(made: dsl.Output[dsl.Dataset]) -> None:  # type: ignore[name-defined]  # noqa: F821
    import atexit

    made.custom_path = "/tmp/late"
    atexit.register(lambda: Path("/tmp/late").write_text("Hello, World!"))


def makes_it_beside_its_usual_path(made: dsl.Output[dsl.Dataset]) -> None:  # type: ignore[name-defined]  # noqa: F821
    Path(made.path).write_text("a draft")
    made.custom_path = "beside"
    Path("beside").write_text("Hello, World!")


def makes_nothing(made: dsl.Output[dsl.Dataset]) -> None:  # type: ignore[name-defined]  # noqa: F821
    made.custom_path = "/tmp/out_dataset"


def reads(made: dsl.Input[dsl.Dataset]) -> str:  # type: ignore[name-defined]  # noqa: F821
    place = Path(made.path)
    if not place.exists():
        return "nothing"
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    return "".join(path.read_text() for path in files)


def read_by_the_next(project: Project, maker: Any, **settings: Any) -> str:
    done = project.run(project.pipeline({"w": step(maker, **settings), "r": step(reads, {"made": Of("w", "made")})}))
    assert done.code == 0, done.err + done.out
    return str(project.show()["tasks"]["r"]["outputs"]["parameters"]["Output"])


@pytest.mark.parametrize(
    "maker",
    [makes_a_file, makes_a_folder, makes_it_at_its_end, makes_it_beside_its_usual_path],
    ids=lambda one: one.__name__,
)
def test_the_next_task_reads_what_lies_at_the_custom_path(project: Project, maker: Any) -> None:
    assert read_by_the_next(project, maker) == "Hello, World!"


def test_a_custom_path_without_a_file_is_told_once_and_accepted_as_on_kfp(project: Project) -> None:
    assert read_by_the_next(project, makes_nothing) == "nothing"
    line = "spotwright: made: no file at its custom path /tmp/out_dataset; no artifact to pass on"
    assert (project.attempt("w") / "log.txt").read_text().count(line) == 1


def names_a_path(made: dsl.Output[dsl.Dataset]) -> None:  # type: ignore[name-defined]  # noqa: F821
    made.custom_path = f"{os.environ.get('BELOW', '')}{os.environ['NAMED']}"
    os.mkfifo("pipe")
    Path("beside").mkdir()
    Path("beside/again").symlink_to(Path.cwd())


def test_a_file_of_this_machine_that_the_attempt_does_not_see_is_not_taken(project: Project) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="spotwright-test-") as other:
        other.write(b"of another user")
        other.flush()
        assert (
            read_by_the_next(project, names_a_path, env={"BELOW": "/tmp/", "NAMED": Path(other.name).name}) == "nothing"
        )


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("pipe", "pipe is neither a file nor a folder"),
        ("/dev/zero", "/dev/zero is neither a file nor a folder"),
        ("/", "it holds the outputs themselves"),
        ("..", "it holds the outputs themselves"),
        ("beside", "again is a link to a folder"),
    ],
)
def test_what_cannot_be_taken_fails_the_attempt_as_a_failed_upload_does(project: Project, path: str, why: str) -> None:
    done = project.run(project.pipeline({"w": step(names_a_path, env={"NAMED": path})}))

    assert done.code == 1
    [line] = [line for line in (project.attempt("w") / "log.txt").read_text().splitlines() if "custom path" in line]
    assert line.startswith(f"spotwright: made: its custom path {path} cannot be copied: ")
    assert why in line
    assert not (project.attempt("w") / "out" / "artifacts" / "made.custom").exists()


WRITES = """
printf '{"artifacts": {"made": {"artifacts": [{"name": "made", "custom_path": "%s"}]}}}' "$1" > "$0"
mkdir "$(dirname "$1")"; [ -z "$2" ] || printf "$2" > "$1"
"""


def a_command(path: str, text: str) -> str:
    """A pipeline whose first task is a command that writes a file, and names its path."""
    ir = json.loads(document({"w": step(makes_nothing), "r": step(reads, {"made": Of("w", "made")})}))
    args = ["{{$.outputs.output_file}}", path, text]
    ir["deploymentSpec"]["executors"]["exec-w"]["container"] |= {"command": ["sh", "-c", WRITES], "args": args}
    return json.dumps(ir)


@pytest.mark.parametrize(("text", "read"), [("Hello, World!", "Hello, World!"), ("", "nothing")])
def test_a_command_of_this_machine_hands_on_what_only_it_saw(project: Project, text: str, read: str) -> None:
    done = project.run(project.write("p.yaml", a_command("/tmp/own/model", text)), "--containers", "host")

    assert done.code == 0, done.err + done.out
    assert project.show()["tasks"]["r"]["outputs"]["parameters"]["Output"] == read
    assert not Path("/tmp/own").exists()


@pytest.mark.parametrize(("text", "read"), [("Hello, World!", "Hello, World!"), ("", "nothing")])
def test_a_container_hands_on_what_lies_in_its_own_file_system(project: Project, text: str, read: str) -> None:
    own = project.folder / "only-in-the-container"
    with contextlib.closing(ContainerEngine(project.folder / "e")) as engine:
        project.extra["PATH"] = f"{engine.bin}:{os.environ['PATH']}"
        done = project.run(project.write("p.yaml", a_command(f"{own}/model", text)))
        assert done.code == 0, done.err + done.out
        [copied] = engine.copies
    assert copied[0].endswith(f":{own}/model")
    assert project.show()["tasks"]["r"]["outputs"]["parameters"]["Output"] == read


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../../elsewhere"])
def test_no_name_of_an_artifact_leads_out_of_the_outputs(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    output = {"artifacts": {name: {"artifacts": [{"custom_path": "/etc/hostname"}]}}}
    (tmp_path / "out" / "executor_output.json").write_text(json.dumps(output))

    assert custom_paths.take_here(str(tmp_path)) == 0
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "executor_output.json"]
