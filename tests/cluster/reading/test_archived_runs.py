"""Archived runs are read as they were recorded, by whom may read records, and deleted by whom may delete these."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.folder_records import FolderRuns
from tests.cluster.reading.archiving import archive, archives, keeping
from tests.cluster.reading.recorded import KFP_NAME, KFP_RUN
from tests.cluster.reading.served import Printed, Served, serving, spotwright

from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.log_client import NotAllowed, find_controller, list_archives, read_archive
from spotwright.errors import UnknownRun
from spotwright.records.state_folder import StateFolder

TRAIN = "team-a.train-job-uid"
COMMANDS = [
    ["show", TRAIN],
    ["show", TRAIN, "--json"],
    ["show", TRAIN, "--follow"],
    ["report", TRAIN],
    ["report", TRAIN, "--json"],
    ["report", TRAIN, "--focus", "json"],
    ["logs", TRAIN],
    ["logs", TRAIN, "train", "2", "--json"],
    ["logs", TRAIN, "--follow"],
    ["logs", TRAIN, "train", "4"],
]
IS_ARCHIVED = f"spotwright: run {TRAIN}: its records are archived\n"


@pytest.fixture(scope="module")
def before_and_after(certificates: Path, recorded: Path) -> Iterator[tuple[Served, dict[str, Printed]]]:
    """A controller whose runs are archived, and the earlier output of commands."""
    with serving(certificates, recorded) as served:
        options, commands = served.options("admin"), [*COMMANDS, ["runs", "--json"]]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPOTWRIGHT_CONTROLLER_CA", str(certificates / "tls.crt"))
            before = {" ".join(command): spotwright(*command, *options) for command in commands}
        archive(served)
        yield served, before


@pytest.fixture
def archived(before_and_after: tuple[Served, dict[str, Printed]]) -> Served:
    return before_and_after[0]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_prints_the_same_as_before(
    before_and_after: tuple[Served, dict[str, Printed]], command: list[str]
) -> None:
    archived, before = before_and_after
    there = spotwright(*command, *archived.options("admin"))
    was = before[" ".join(command)]
    assert there == was._replace(err=IS_ARCHIVED + was.err)
    assert there.out or there.code


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("job/train", TRAIN),
        ("Jobs/train", TRAIN),
        ("team-a.tr", TRAIN),
        (KFP_RUN, "team-a.iris-uid-iris"),
        (KFP_NAME, "team-a.iris-uid-iris"),
        ("workflow/iris", "team-a.iris-uid-iris"),
    ],
)
def test_an_archived_run_has_the_names_that_it_had(archived: Served, name: str, run: str) -> None:
    found = spotwright("show", name, "--json", *archived.options("anna"))
    assert json.loads(found.out)["run"] == run


def test_a_name_that_no_run_has_is_told_as_before(archived: Served) -> None:
    for name in ("job/other", "team-a.other", "x", ""):
        done = spotwright("show", name, *archived.options("anna"))
        assert (done.code, done.err) == (
            2,
            f"spotwright: no run {name!r} in the namespaces that you may read: none exists yet\n",
        )
    several = spotwright("show", "team-a.", *archived.options("anna"))
    assert "'team-a.' is the beginning of several runs: " in several.err


def test_archived_runs_are_listed_when_they_are_asked_for(
    before_and_after: tuple[Served, dict[str, Printed]],
) -> None:
    archived, before = before_and_after
    lines = {each["run"]: each for each in json.loads(before["runs --json"].out)}
    assert json.loads(spotwright("runs", "--json", *archived.options("anna")).out) == []
    mine = json.loads(spotwright("runs", "--archived", "--json", *archived.options("anna")).out)
    assert {each["run"]: each for each in mine} == {name: each for name, each in lines.items() if "team-a." in name}
    theirs = json.loads(spotwright("runs", "--archived", "-n", "team-b", "--json", *archived.options("admin")).out)
    assert [each["pipeline"] for each in theirs] == ["Job team-b/serve"]
    assert "add --cluster" in spotwright("runs", "--archived").err


def test_explain_says_that_a_run_is_archived(archived: Served) -> None:
    archived.kubernetes.objects["/api/v1/namespaces/team-a/pods"] = {"items": []}
    done = spotwright("explain", TRAIN, "--json", *archived.options("admin"))
    (explained,) = json.loads(done.out)["objects"]
    assert (explained["run"], explained["pods"]) == (TRAIN, [])
    assert f"run {TRAIN}: its records are archived" in explained["notes"]


def test_who_may_not_list_records_reads_no_archive(archived: Served) -> None:
    (theirs,) = (each for each in archives(archived.logs) if each.namespace == "team-b")
    for name, namespace in ((theirs.run, ""), ("job/serve", "team-b"), (theirs.run, "team-a")):
        done = spotwright("show", name, *archived.options("anna"), *(["-n", namespace] if namespace else []))
        assert (done.code, done.out) == (2, "")
        assert "archive" not in done.err
    kubernetes = Kubernetes(kubeconfig=archived.options("anna")[2])
    controller = find_controller(kubernetes, archived.url)
    try:
        for ask in (lambda: list_archives(controller, "team-b"), lambda: read_archive(controller, theirs)):
            with pytest.raises(NotAllowed, match="anna may not list records of runs in namespace team-b"):
                ask()
        for key in ("", "../team-a", "team-a/x", theirs.key.replace("/team-b/", "/team-a/"), f"{theirs.key}/x"):
            with pytest.raises(UnknownRun, match="no archive has this name"):
                controller.ask("/v1/archive", {"key": key})
        assert [each.run for each in list_archives(controller, "team-a")]
    finally:
        controller.close()
        kubernetes.close()


def test_records_and_logs_of_an_archived_run_are_two_rights(archived: Served) -> None:
    assert spotwright("show", TRAIN, *archived.options("bert")).code == 0
    logs = spotwright("logs", TRAIN, *archived.options("bert"))
    assert (logs.code, logs.out) == (2, "==> train attempt 1 <==\n")
    assert "bert may not read logs in namespace team-a" in logs.err


def test_a_namespace_that_was_made_again_has_no_archives(archived: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"metadata": {"name": "team-a", "uid": "uid-of-the-second-team-a"}}
    monkeypatch.setitem(archived.kubernetes.objects, "/api/v1/namespaces/team-a", other)
    archived.do(archived.stop())
    archived.do(archived.start())  # it believes for a second what it was told of a namespace
    for command in ("show", "logs"):
        done = spotwright(command, TRAIN, *archived.options("admin"))
        assert (done.code, done.out) == (2, "")
    assert spotwright("runs", "--archived", "--json", *archived.options("admin"), "-n", "team-a").out == "[]\n"


def test_a_controller_that_is_away_hides_that_a_run_is_archived_and_says_so(
    archived: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotwright.cluster.log_client._FIRST_PAUSE", 0.0)
    options = archived.options("anna")
    done = spotwright("show", TRAIN, *options[:-1], "https://127.0.0.1:1")
    assert done.code == 2
    assert "cannot tell whether it is archived: the controller at https://127.0.0.1:1: does not answer" in done.err


def test_prune_deletes_archives_for_who_may_and_their_logs_follow(certificates: Path, recorded: Path) -> None:
    owner = FolderRuns(StateFolder.existing(recorded)).owner
    with serving(certificates, recorded) as served:
        archive(served, owner)
        mine = ["prune", "--cluster", "-n", "team-a", "--yes"]
        refused = spotwright(*mine, *served.options("anna")[1:])
        assert refused.code == 1
        who = "only a member of the group spotwright:repair who also has the right to delete SpotRuns there may"
        assert f"{TRAIN} stays: anna may not delete archives in namespace team-a: {who}\n" in refused.err
        assert len(archives(served.logs)) == 3
        kept = spotwright(*mine, "--keep", "job/train", *served.options("admin")[1:])
        assert (kept.code, kept.err) == (0, "")
        assert re.search(r"team-a\.iris-uid-iris +archived", kept.out)
        assert {each.run for each in archives(served.logs) if each.namespace == "team-a"} == {TRAIN}
        asyncio.run(list_logs(served, owner))
        assert "step 1" in spotwright("logs", TRAIN, "train", "1", *served.options("admin")).out
        assert spotwright(*mine, *served.options("admin")[1:]).code == 0
        assert spotwright("show", TRAIN, *served.options("admin")).code == 2
        asyncio.run(list_logs(served, owner))
        assert not [*Path(served.logs.removeprefix("file://")).glob("team-a/*/*/*/*")]
        assert [each.namespace for each in archives(served.logs)] == ["team-b"]


async def list_logs(served: Served, owner: str) -> None:
    """The keeper of logs lists the store, as it does each hour."""
    async with keeping(served, owner=owner) as parts:
        await parts.store.kept()
