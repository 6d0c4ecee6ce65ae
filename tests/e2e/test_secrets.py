"""Secrets: a value behind ``@env:`` or ``@file:`` reaches the code, but no record and no output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Of, Param, Step, step
from tests.e2e.inside import PLAYGROUND, attempt, hold, note, raise_file, until
from tests.e2e.project import Done, Project, eventually
from tests.sampling import every

SECRET = "s3cr3t-Ärger'\"\\-of-the-house"
FORMS = [SECRET, json.dumps(SECRET)[1:-1], json.dumps(SECRET, ensure_ascii=False)[1:-1], repr(SECRET)[1:-1]]


def uses(token: str) -> int:
    """Compare the argument with the true value without leaving that value where the test looks."""
    note("used", length=len(token), is_true=token == (PLAYGROUND.parent / "token").read_text())
    return len(token)


def prints(token: str) -> int:
    sys.stdout.write(f"plain {token}\nas json {json.dumps({'token': token})}\nas repr {[token]!r}\n")
    sys.stderr.write(f"to the error output {token}\n")
    sys.stdout.flush()
    os.write(1, token.encode()[:5])
    os.write(1, token.encode()[5:])
    return 1


def passes_on(token: str) -> str:
    return f"Bearer {token}"


def keeps(token: str) -> dict[str, Any]:
    return {"nested": [token, {token: token}], "length": len(token)}


def is_given(header: str) -> int:
    token = header.removeprefix("Bearer ")
    note("used", length=len(token), is_true=token == (PLAYGROUND.parent / "token").read_text())
    return 1


def fails_with(token: str) -> int:
    raise ValueError(f"cannot log in with {token}")


def ends_late(token: str) -> str:
    """Wait while the engine is killed."""
    raise_file("waiting")
    until("go on")
    return token


def holds_at_first(token: str) -> str:
    if attempt() == 1:
        raise_file("waiting")
        hold()
    return token


def secret(project: Project) -> Project:
    (project.folder / "token").write_text(SECRET)
    project.extra["TOKEN"] = SECRET
    return project


def assert_hidden(project: Project, *done: Done) -> None:
    """The value is in none of the state folder's files, and in no output."""
    shown = [text.encode() for each in done for text in (each.out, each.err)]
    kept = {path: path.read_bytes() for path in project.state.rglob("*") if path.is_file()}
    for form in FORMS:
        assert not any(form.encode() in text for text in shown), form
        assert [path for path, content in kept.items() if form.encode() in content] == [], form


def run(project: Project, steps: Mapping[str, Step], *arguments: str) -> Done:
    given = arguments or ("--arg", "token=@env:TOKEN")
    return project.run(project.pipeline(steps, {"token": "str"}), *given)


@pytest.mark.parametrize("reference", every(2, ["@env:TOKEN", "@file:token"]))
def test_the_code_gets_the_secret_and_records_the_reference(project: Project, reference: str) -> None:
    done = run(secret(project), {"it": step(uses, {"token": Param("token")})}, "--arg", f"token={reference}")
    assert done.code == 0
    [used] = project.ledger("used")
    assert used["is_true"]
    assert project.show()["arguments"] == {"token": reference}
    assert_hidden(project, done, project.here("show", "r"), project.here("show", "r", "--json"))


def test_a_secret_is_masked_in_the_output_of_a_component(project: Project) -> None:
    done = run(secret(project), {"it": step(prints, {"token": Param("token")})})
    assert done.code == 0
    logs = project.here("logs", "r", "it", "1")
    assert "plain ***\n" in logs.out
    assert "to the error output ***\n" in logs.out
    assert_hidden(project, done, logs, project.here("logs", "r", "--json"))


@pytest.mark.parametrize("component", every(2, [passes_on, keeps]))
def test_a_returned_secret_is_stored_as_its_reference(project: Project, component: object) -> None:
    assert callable(component)
    done = run(secret(project), {"it": step(component, {"token": Param("token")})})
    assert done.code == 0
    shown = project.here("show", "r", "--json")
    assert "@env:TOKEN" in json.dumps(shown.json()["outputs"])
    assert_hidden(project, done, shown, project.here("report", "r", "--json"))


def test_a_downstream_task_gets_the_secret_inside_a_longer_text(project: Project) -> None:
    steps = {"one": step(passes_on, {"token": Param("token")}), "two": step(is_given, {"header": Of("one")})}
    done = run(secret(project), steps)
    assert done.code == 0
    assert [line["is_true"] for line in project.ledger("used")] == [True]
    assert_hidden(project, done)


def test_a_traceback_does_not_show_the_secret(project: Project) -> None:
    done = run(secret(project), {"it": step(fails_with, {"token": Param("token")})})
    assert done.code == 1
    logs = project.here("logs", "r", "it")
    assert "ValueError: cannot log in with ***" in logs.out
    assert_hidden(project, done, logs, project.here("show", "r"), project.here("report", "r"))


def test_a_secret_is_read_again_when_a_run_is_resumed(project: Project) -> None:
    steps = {
        "one": step(holds_at_first, {"token": Param("token")}),
        "two": step(is_given, {"header": Of("one")}),
    }
    started = secret(project).start(
        "run", str(project.pipeline(steps, {"token": "str"})), "--name", "r", "--arg", "token=@file:token"
    )
    eventually((project.playground / "waiting").exists)
    killed = started.kill()
    done = project.spotwright("resume", "r")
    assert done.code == 0
    assert [line["is_true"] for line in project.ledger("used")] == [True]
    assert_hidden(project, killed, done)


@pytest.mark.parametrize("command", every(2, ["resume", "cancel"]))
def test_a_result_from_the_time_without_an_engine_brings_no_secret_into_the_journal(
    project: Project, command: str
) -> None:
    started = secret(project).start(
        "run", str(project.pipeline({"it": step(ends_late, {"token": Param("token")})}, {"token": "str"})),
        "--name", "r", "--arg", "token=@env:TOKEN",
    )  # fmt: skip
    eventually((project.playground / "waiting").exists)
    killed = started.kill()
    project.raise_file("go on")
    eventually((project.attempt("it") / "exit.jsonl").exists)
    if command == "cancel":
        del project.extra["TOKEN"]  # whoever cancels need not know it
    done = project.spotwright(command, "r", "--json")
    assert done.code == 0
    assert_hidden(project, killed, done)


def test_a_missing_variable_of_a_secret_at_a_resume_is_named(project: Project) -> None:
    assert run(secret(project), {"it": step(fails_with, {"token": Param("token")})}).code == 1
    del project.extra["TOKEN"]
    done = project.spotwright("resume", "r")
    assert done.code == 2
    assert done.error_lines == ["spotwright: @env:TOKEN: environment variable TOKEN is not set; set it first"]


def test_a_plain_argument_with_the_value_of_a_secret_is_hidden_too(project: Project) -> None:
    pipeline = project.pipeline(
        {"it": step(is_given, {"header": Param("header")}), "beside": step(uses, {"token": Param("token")})},
        {"token": "str", "header": "str"},
    )
    done = secret(project).run(pipeline, "--arg", "token=@env:TOKEN", "--arg", f"header=Bearer {SECRET}")
    assert done.code == 0
    assert [line["is_true"] for line in project.ledger("used")] == [True, True]
    assert_hidden(project, done)
    assert project.spotwright("resume", "r").code == 0


def test_a_doubled_at_sign_is_not_a_reference(project: Project) -> None:
    steps = {"it": step(passes_on, {"token": Param("token")})}
    assert run(project, steps, "--arg", "token=@@env:TOKEN").code == 0
    assert project.show()["outputs"]["it.Output"]["value"] == "Bearer @env:TOKEN"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("@env:NOT_SET", "@env:NOT_SET: environment variable NOT_SET is not set; set it first"),
        ("@file:not-there", "@file:not-there: cannot be read: No such file or directory"),
        ("@file:binary", "@file:binary: is not UTF-8 text"),
        ("@file:.", "@file:.: cannot be read: Is a directory"),
    ],
)
def test_a_reference_to_nothing_is_refused(project: Project, argument: str, message: str) -> None:
    (project.folder / "binary").write_bytes(b"\xff\xfe\x00")
    done = run(project, {"it": step(uses, {"token": Param("token")})}, "--arg", f"token={argument}")
    assert (done.code, done.error_lines, done.out) == (2, [f"spotwright: {message}"], "")
    assert not project.state.exists()


def test_a_secret_of_the_wrong_type_is_refused_without_showing_it(project: Project) -> None:
    pipeline = project.pipeline({"it": step(counts, {"number": Param("number")})}, {"number": "int"})
    done = secret(project).run(pipeline, "--arg", "number=@env:TOKEN")
    assert (done.code, done.error_lines) == (2, ["spotwright: @env:TOKEN: its value is not a whole number"])


def counts(number: int) -> int:
    return number


def test_no_secret_is_in_the_environment_or_command_line_of_a_process(project: Project) -> None:
    (project.folder / "token").write_text(SECRET)
    started = project.start(
        "run", str(project.pipeline({"it": step(holds_at_first, {"token": Param("token")})}, {"token": "str"})),
        "--name", "r", "--arg", "token=@file:token",
    )  # fmt: skip
    eventually((project.playground / "waiting").exists)
    data = b""
    for pid in project.processes():
        data += Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    assert SECRET.encode() not in data
    started.kill()
    assert project.spotwright("cancel", "r").code == 0


def leaves_a_pipe(token: str) -> int:
    os.mkfifo(Path.cwd().parent / "out" / "executor_output.json")
    note("made", length=len(token))
    os._exit(0)


def test_a_pipe_in_place_of_an_output_does_not_block_the_hiding_of_secrets(project: Project) -> None:
    assert run(secret(project), {"it": step(leaves_a_pipe, {"token": Param("token")})}).code == 1
    assert project.causes("it") == ["failed"]
