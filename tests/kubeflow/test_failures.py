"""Refused logins, wrong or unreachable servers, deleted runs: each with one clear message."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.kubeflow.conftest import Folder
from tests.kubeflow.flows import Flow
from tests.kubeflow.stand_in import StandIn, Step

from spotwright.cli import kfp
from spotwright.kubeflow.following import Pauses


def error_of(folder: Folder, *words: str) -> str:
    done = folder.run(*words)
    assert done.code == 2
    [line] = [line for line in done.err.splitlines() if line.startswith("spotwright: ")]
    assert folder("runs").out.startswith("no runs yet: ")
    return line


def test_a_login_that_is_missing_says_how_to_log_in(folder: Folder, server: StandIn) -> None:
    server.token = "t0ken"
    message = error_of(folder)
    assert "does not accept the login (401" in message
    assert "--token-file, --cookies-file or --client-id" in message


def test_a_token_comes_from_a_file(folder: Folder, server: StandIn, tmp_path: Path) -> None:
    server.token = "t0ken"
    (tmp_path / "token").write_text("t0ken\n")
    assert folder.run("--token-file", str(tmp_path / "token")).code == 0


def test_a_token_and_cookies_come_from_the_environment(
    folder: Folder, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token, server.cookies = "t0ken", "authservice_session=abc"
    monkeypatch.setenv("SPOTWRIGHT_KFP_TOKEN", "t0ken")
    monkeypatch.setenv("SPOTWRIGHT_KFP_COOKIES", "authservice_session=abc")
    assert folder.run().code == 0


def test_no_secret_is_kept_or_shown(folder: Folder, server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    server.token = "t0ken-of-anna"
    monkeypatch.setenv("SPOTWRIGHT_KFP_TOKEN", server.token)
    done = folder.run()
    kept = b"".join(path.read_bytes() for path in (folder.path / ".spotwright").rglob("*") if path.is_file())
    assert server.token not in done.out + done.err
    assert server.token.encode() not in kept


def test_a_page_that_asks_for_a_login_is_not_taken_for_kfp(folder: Folder, server: StandIn) -> None:
    server.is_login_page = True
    assert "answers with an HTML page instead of the API of Kubeflow Pipelines" in error_of(folder)


def test_a_server_without_v2beta1_is_too_old(folder: Folder, server: StandIn) -> None:
    server.serves_v2 = False
    message = error_of(folder)
    assert "does not serve the API v2beta1" in message
    assert "name the address of KFP 2.0 or later" in message


def test_an_address_where_nothing_answers_is_named_at_once(folder: Folder) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    message = error_of(folder, "--host", url)
    assert message.startswith(f"spotwright: {url}: does not answer")
    assert "refused" in message


def test_a_server_for_several_teams_asks_for_the_namespace(folder: Folder, server: StandIn) -> None:
    server.multi_user = True
    assert "name yours with -n" in error_of(folder)
    assert folder.run("-n", "team-a").code == 0
    [experiment] = server.experiments.values()
    [pipeline] = server.pipelines.values()
    assert experiment["namespace"] == pipeline["namespace"] == "team-a"


def test_a_server_that_is_away_for_a_while_is_asked_again(folder: Folder, server: StandIn) -> None:
    server.steps = [Step("RUNNING", Flow()), *server.steps]
    requests_before_the_run_is_followed = 8
    server.failures = [None] * requests_before_the_run_is_followed + [503, 0, 0, 0, 0, 500]
    done = folder.run()
    assert done.code == 0
    assert "retrying for" in done.out
    assert "the server answers again after" in done.out


def test_a_server_that_stays_away_leaves_the_run_to_be_followed_again(
    folder: Folder, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kfp, "Pauses", lambda: Pauses(0.0, 0.0, 0.0, 0.1))
    server.steps = [Step("RUNNING", Flow())]
    server.failures = [None] * 8 + [503] * 2000
    done = folder.run()
    assert done.code == 1
    assert "cannot answer now (503: the database is away)" in done.err
    assert "spotwright resume first" in done.err
    server.failures, server.steps = [], []
    [run_id] = server.runs
    server.play(run_id, [Step("SUCCEEDED", Flow().end())])
    assert folder("resume", "first").code == 0


def test_a_run_that_is_deleted_under_way_has_failed(folder: Folder, server: StandIn) -> None:
    server.steps = [Step("RUNNING", Flow()), Step("deleted")]
    done = folder.run()
    assert done.code == 1
    assert "its run was deleted on the KFP server" in done.out.splitlines()[-1]


def test_a_token_that_expires_is_read_again(
    folder: Folder, server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    server.token = "old"

    def renew() -> None:
        server.token = "new"
        file.write_text("new")

    server.steps.insert(1, Step("RUNNING", Flow(), renew))
    assert folder.run("--token-file", str(file)).code == 0


def test_a_run_whose_first_pod_cannot_be_made_tells_why(folder: Folder, server: StandIn) -> None:
    why = 'pods "digits-1" is forbidden: serviceaccount "nosuch" not found'
    flow = Flow("digits-b", retried=False)
    flow.nodes["digits-b.root-driver"] |= {"phase": "Error", "message": why}
    server.steps = [Step("FAILED", flow)]
    done = folder.run()
    assert done.code == 1
    assert f"the run has failed: {why}" in done.out
