"""Wrong options and names: one or two lines with the place and the fix, exit code 2, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from tests.e2e.building import Param, step
from tests.e2e.project import Done, Project, a_project

from spotwright.cli import _REMOVED, cli


def repeats(text: str) -> str:
    return text


def prepared(project: Project) -> str:
    steps = {"it": step(repeats, {"text": Param("text")})}
    return str(project.pipeline(steps, {"text": ("str", "x")}))


def refused(done: Done, *parts: str) -> None:
    assert done.code == 2, done
    assert done.out == ""
    assert 1 <= len(done.error_lines) <= 2, done.err
    assert "Traceback" not in done.err
    for part in parts:
        assert part in done.err, (part, done.err)


@pytest.fixture(scope="module")
def with_a_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose run ``r`` has succeeded; the tests that share it only ask for what is not there."""
    with a_project(tmp_path_factory.mktemp("with-a-run")) as made:
        assert made.spotwright("run", prepared(made), "--name", "r").code == 0
        yield made


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--time-scale", "0"], ["--time-scale 0", "expected a number above 0", "for example 60"]),
        (["--time-scale", "-1"], ["--time-scale -1"]),
        (["--time-scale", "nan"], ["--time-scale nan"]),
        (["--time-scale", "inf"], ["--time-scale inf"]),
        (["--time-scale", "fast"], ["--time-scale", "'fast'"]),
        (["--seed", "x"], ["--seed", "'x'"]),
        (["--seed", "-1"], ["--seed -1", "from 0"]),
        (["--seed", str(2**70)], ["--seed"]),
        (["--arg", "text"], ["--arg", "'text'", "NAME=VALUE"]),
        (["--arg", "=1"], ["--arg", "NAME=VALUE"]),
        (["--arg", "text=1", "--arg", "text=2"], ["--arg", "'text' is given twice"]),
        (["--interrupt-every", "0s"], ["--interrupt-every", "above 0"]),
        (["--interrupt-every", "soon"], ["--interrupt-every", "soon"]),
        (["--cache", "perhaps"], ["--cache", "perhaps", "auto"]),
        (["--name", "../x"], ["'../x' cannot be the name of a run"]),
        (["--name", "/x"], ["'/x' cannot be the name of a run"]),
        (["--name", ""], ["name"]),
        (["--name", "last"], ["'last' cannot be the name of a run"]),
        (["--name", ".."], ["'..' cannot be the name of a run"]),
        (["--name", "a\nb"], ["cannot be the name of a run"]),
        (["--name", "x" * 300], ["cannot be the name of a run"]),
        (["--config", "missing.yaml"], ["missing.yaml"]),
        (["--config", "."], [": "]),
        (["--policy", "spot"], ["--policy", "spot"]),
        (["--policy", "spot=sometimes"], ["--policy", "spot", "require, prefer or never"]),
        (["--no-such-option"], ["--no-such-option"]),
    ],
)
def test_an_option_that_is_wrong(project: Project, options: list[str], parts: list[str]) -> None:
    refused(project.here("run", prepared(project), *options), *parts)
    assert not project.state.exists() or list((project.state / "runs").iterdir()) == []
    assert [path.name for path in project.folder.parent.iterdir() if path.name == "x"] == []


def test_a_name_that_is_taken(project: Project) -> None:
    pipeline = prepared(project)
    assert project.spotwright("run", pipeline, "--name", "mine").code == 0
    refused(project.here("run", pipeline, "--name", "mine"), "run mine exists already; choose another name")
    assert project.show("mine")["status"] == "succeeded"


def test_a_configuration_with_an_unknown_key(project: Project) -> None:
    config = project.config("pools:\n  spot: {capacity: spot, maxnodes: 3}\n")
    refused(
        project.spotwright("run", prepared(project)),
        f"spotwright: {config}:3: pools.spot.maxnodes:",
        "did you mean 'max_nodes'?",
    )


def test_everything_that_is_wrong_in_a_configuration_is_said_at_once(project: Project) -> None:
    project.config("pools:\n  spot: {capacity: spot, nodes: 3}\npolicy:\n  default: {spot: maybe}\n")
    done = project.spotwright("run", prepared(project))
    assert (done.code, len(done.error_lines)) == (2, 2)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_pattern_that_matches_no_task(project: Project, command: str) -> None:
    config = project.config("pools: {spot: {capacity: spot}}\npolicy:\n  tasks: {'*ti*': {spot: require}}\n")
    message = f"{config.name}:4: policy.tasks '*ti*' matches no task; the tasks are it"
    refused(project.here(command, prepared(project)), message)


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (["show", "nothing"], ["no run 'nothing' in /", "/.spotwright: the newest are r", "--state"]),
        (["logs", "r", "nothing"], ["run r has no task 'nothing'; the tasks are it"]),
        (["logs", "r", "it", "7"], ["task it of run r has 1 attempt, not an attempt 7"]),
        (["logs", "r", "it", "seven"], ["'seven'"]),
        (["logs", "r", "--follow", "nothing"], ["run r has no task 'nothing'; the tasks are it"]),
        (["report", ""], ["run"]),
        (["resume", "../r"], ["no run '../r'"]),
        (["cancel", "nothing"], ["no run 'nothing'"]),
        (["cancel", "r"], ["run r has ended already: it succeeded"]),
        (["show"], ["RUN"]),
        (["nonsense"], ["unknown command 'nonsense'"]),
        (["rnu", "x.py"], ["unknown command 'rnu': did you mean 'run'?"]),
        (["reherse"], ["did you mean 'rehearse'?"]),
        (["pin", "r"], ["unknown command 'pin': a run is kept by prune --keep RUN"]),
        (["run"], ["expected either a pipeline, or a command after --"]),
    ],
)
def test_a_run_task_or_attempt_that_is_not_there(with_a_run: Project, command: list[str], parts: list[str]) -> None:
    refused(with_a_run.here(*command), *parts)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("controller --state folder", "--state: runs are recorded in the Kubernetes API"),
        ("controller recorder --state folder", "--state: runs are recorded in the Kubernetes API"),
        ("controller --no-watch", "--no-watch: start spotwright controller webhook alone"),
        ("controller --check team-a", "--check: use spotwright controller check NAMESPACE"),
        ("controller --listen 127.0.0.1:1", "--listen: put it behind spotwright controller webhook"),
        ("controller --logs s3://a", "--logs: put it behind spotwright controller recorder"),
        ("pools command --kueue", "--kueue: use spotwright pools command --as kueue"),
        ("run --no-cache x.py", "--no-cache: use spotwright run --cache off"),
    ],
)
def test_an_option_that_is_gone_names_what_takes_its_place(project: Project, command: str, message: str) -> None:
    refused(project.here(*command.split()), f"unknown option {message}")


def test_no_word_that_is_gone_is_there() -> None:
    for words in _REMOVED:
        command: click.Command | None = cli
        context = click.Context(cli)
        for word in words.split():
            if isinstance(command, click.Group) and not word.startswith("-"):
                command = command.get_command(context, word)
        options = {name for each in command.params for name in each.opts} if command is not None else set()
        assert words.split()[-1] not in options
        assert (command is None) is (len(words.split()) == 1), words


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("webhook", ["--webhook-service or --webhook-url"]),
        ("webhook --print-rbac", ["unknown option --print-rbac: the chart has the rights"]),
        ("webhook --logs s3://a", ["No such option '--logs'"]),
        ("recorder --listen 127.0.0.1:1", ["No such option '--listen'"]),
        ("recorder --namespaces Team_A", ["'Team_A' is not the name of a namespace", "team-a,team-b"]),
        ("recorder --home Team_A", ["'Team_A' is not the name of a namespace", "team-a"]),
        ("check Team_A", ["'Team_A' is not the name of a namespace"]),
        ("check", ["Missing argument 'NAMESPACE'"]),
        ("webhook --refusal-image _", ["'_' is not the name of an image", "busybox:1"]),
        ("webhook --argo-executor-image _", ["'_' is not the name of an image"]),
        ("webhook --refusal-user nobody", ["'nobody' is not the number of a user", "65532"]),
        ("webhook --refusal-user -1", ["'-1' is not the number of a user"]),
        ("webhook --make-claims big", ["'big' is not a quantity"]),
        ("webhook --webhook-url https://a --claim-class fast", ["--claim-class", "--make-claims"]),
        ("recorder --namespace-log-limit 5GB", ["'5GB' is not a quantity"]),
        ("recorder --logs nope://a", ["--logs", "'nope://a' is not an object store address", "s3://BUCKET/FOLDER"]),
        (
            "recorder --logs s3://a:b@c/d",
            ["--logs", "s3://c/d: the address has a user", "credentials come from the environment"],
        ),
        ("webhook --no-registration", ["--no-registration", "give --certificate"]),
    ],
)
def test_an_option_of_the_controller_that_is_wrong(project: Project, command: str, parts: list[str]) -> None:
    refused(project.here("controller", *command.split()), *parts)


@pytest.mark.parametrize("process", ["webhook", "recorder", "check"])
def test_a_name_that_no_object_can_have(project: Project, process: str) -> None:
    refused(project.here("controller", process, "--name", "a b"), "'a b' cannot be the name of an object")


def test_a_beginning_that_several_runs_share(project: Project) -> None:
    pipeline = prepared(project)
    for name in ("night-1", "night-2"):
        assert project.spotwright("run", pipeline, "--name", name).code == 0
    refused(project.here("show", "night"), "'night' is the beginning of several runs: night-1, night-2")
    assert project.spotwright("show", "night-2").code == 0


@pytest.mark.parametrize("command", [["show", "x"], ["runs"], ["resume", "x"], ["logs", "x"]])
def test_a_folder_without_runs(project: Project, command: list[str]) -> None:
    done = project.spotwright(*command)
    assert "Traceback" not in done.err
    assert done.code == (0 if command == ["runs"] else 2)
    assert not project.state.exists()


NOT_TEXT = b"gr\xfc\xdf"


@pytest.mark.parametrize(
    "command",
    [
        [b"run", b"tested.yaml", b"--arg", b"text=" + NOT_TEXT],
        [b"run", b"tested.yaml", b"--arg", NOT_TEXT + b"=1"],
        [b"run", b"tested.yaml", b"--name", NOT_TEXT],
        [b"run", NOT_TEXT + b".yaml"],
        [b"run", b"tested.yaml", b"--config", NOT_TEXT + b".yaml"],
        [b"run", b"tested.yaml", b"--arg", b"text=@file:" + NOT_TEXT],
        [b"run", b"tested.yaml", b"--policy", b"spot=" + NOT_TEXT],
        [b"show", NOT_TEXT],
        [b"logs", b"r", NOT_TEXT],
        [NOT_TEXT],
    ],
)
def test_arguments_that_are_no_text(with_a_run: Project, command: list[bytes]) -> None:
    called = subprocess.run(
        [sys.executable.encode(), b"-m", b"spotwright", *command],
        cwd=with_a_run.folder,
        env=with_a_run.env,
        capture_output=True,
        check=False,
    )
    refused(Done(called.returncode, called.stdout.decode(errors="replace"), called.stderr.decode(errors="replace")))


def test_a_text_beyond_ascii_is_given_as_it_is_whatever_the_language_of_the_shell(project: Project) -> None:
    project.extra |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = project.spotwright("run", prepared(project), "--name", "r", "--arg", "text=größer →")
    assert done.code == 0, done
    assert project.show()["outputs"]["it.Output"]["value"] == "größer →"
