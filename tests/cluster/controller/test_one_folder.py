"""Replicas share one state folder: one that has another folder than the holder of the Lease says so and ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from spotwright.cluster.state_folder_guard import FOLDER_ANNOTATION, FolderIdentity, OneFolder
from tests.cluster.controller.controller_process import a_cluster, controller_process, kubeconfig
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster.api_client import Api, EventWriter
from spotwright.errors import InputError
from spotwright.records.state_folder import StateFolder

LEASES = "/apis/coordination.k8s.io/v1/namespaces/spotwright/leases"
EVENTS = "/api/v1/namespaces/spotwright/events"
MINE = FolderIdentity("mine", "machine-1", "/state")
OTHER = FolderIdentity("other", "machine-1", "/state")
POLICY = "{default: {spot: prefer}}"


class Compared:
    """A replica with the folder :data:`MINE` that compares; the test moves its clock."""

    def __init__(self, server: SmallApiServer, client: httpx2.AsyncClient, *, watches: bool) -> None:
        self.server, self.clock = server, 100.0
        server.objects[EVENTS] = {}
        api = Api(client)
        lease = ("spotwright", "spotwright")
        self.check = OneFolder(api, EventWriter(api), lease, MINE, watches=watches, clock=lambda: self.clock)

    def hold(self, holder: str, folder: FolderIdentity | None, renewed: int = 0) -> None:
        annotations = {} if folder is None else {FOLDER_ANNOTATION: folder.text}
        spec = {"holderIdentity": holder, "renewTime": str(renewed)}
        self.server.put(LEASES, "spotwright", spec=spec, metadata={"annotations": annotations})

    async def is_agreed(self) -> bool:
        await self.check.look()
        return self.check.is_agreed


def compare(scenario: Any, *, watches: bool = True) -> None:
    async def within() -> None:
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            await scenario(Compared(server, client, watches=watches))

    asyncio.run(within())


@pytest.mark.parametrize("folder", [MINE, MINE._replace(path="/elsewhere"), None])
def test_the_folder_of_the_holder_may_be_used(folder: FolderIdentity | None) -> None:
    async def scenario(compared: Compared) -> None:
        for number in range(3):
            compared.hold("a", folder, number)
            assert await compared.is_agreed()

    compare(scenario)


@pytest.mark.parametrize("watches", [True, False])
@pytest.mark.parametrize(
    ("folder", "words"),
    [
        (OTHER, "has another state folder: /state (folder other, machine machine-)"),
        (MINE._replace(machine="2"), "uses the same state folder on another machine: /state (folder mine, machine 2)"),
    ],
)
def test_a_replica_with_another_folder_than_a_holder_that_lives_ends_and_names_both(
    folder: FolderIdentity, words: str, watches: bool
) -> None:
    async def scenario(compared: Compared) -> None:
        compared.hold("one_7_ab", folder)
        assert not await compared.is_agreed()  # whether it lives is not known yet
        compared.hold("one_7_ab", folder, 1)
        with pytest.raises(InputError) as raised:
            await compared.check.look()
        text = str(raised.value)
        assert f"replica one_7_ab holds lease spotwright/spotwright and {words}; here it is {MINE}" in text
        assert "replicas: 1, strategy Recreate" in text
        [event] = compared.server.objects[EVENTS].values()
        assert (event["reason"], event["type"], event["message"]) == ("TwoStateFolders", "Warning", text)

    compare(scenario, watches=watches)


@pytest.mark.parametrize("watches", [True, False])
def test_the_folder_of_a_holder_that_died_binds_nobody(watches: bool) -> None:
    async def scenario(compared: Compared) -> None:
        compared.hold("one", OTHER)
        for seconds, is_agreed in ((0, False), (14, False), (2, True)):
            compared.clock += seconds
            assert await compared.is_agreed() == is_agreed
        compared.hold("mine", MINE)
        assert await compared.is_agreed()

    compare(scenario, watches=watches)


def test_a_replica_that_takes_the_lease_waits_for_it_and_another_answers_without() -> None:
    async def scenario(compared: Compared) -> None:
        assert await compared.is_agreed() != compared.check._watches
        compared.hold("", OTHER)
        assert await compared.is_agreed() != compared.check._watches
        compared.hold("mine", MINE)
        assert await compared.is_agreed()

    compare(scenario, watches=True)
    compare(scenario, watches=False)


def test_a_replica_whose_place_a_living_one_with_another_folder_has_taken_ends() -> None:
    async def scenario(compared: Compared) -> None:
        compared.hold("mine", MINE)
        assert await compared.is_agreed()
        compared.hold("one", OTHER)
        assert await compared.is_agreed()
        compared.hold("one", OTHER, 1)
        with pytest.raises(InputError, match="another state folder"):
            await compared.check.look()

    compare(scenario)


def test_a_folder_keeps_the_identity_that_it_got_first(tmp_path: Path) -> None:
    one, two = (StateFolder.open(tmp_path / name) for name in ("one", "two"))
    first = FolderIdentity.of(one)
    assert first.is_shared_with(FolderIdentity.of(one))
    assert not first.is_shared_with(FolderIdentity.of(two))
    assert FolderIdentity.from_text(first.text) == first
    for text in ("", "no JSON", "[]", '{"uid": "a"}'):
        assert FolderIdentity.from_text(text) is None


def second_process(folder: Path, server: SmallApiServer, *options: str) -> subprocess.CompletedProcess[str]:
    """A second replica, which ends by itself."""
    command = [sys.executable, "-m", "spotwright", "controller", "--state", str(folder)]
    command += ["--kubeconfig", str(kubeconfig(folder.parent, server)), "--webhook-url", "https://127.0.0.1:1"]
    command += ["--listen", "127.0.0.1:0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--no-watch",)])
def test_of_two_processes_with_a_folder_each_the_second_ends_with_the_fix(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        async with serving() as server:
            a_cluster(server, POLICY)
            server.objects[EVENTS] = {}
            async with controller_process(tmp_path, server) as first:
                asked = len(server.asked)
                ended = await asyncio.to_thread(second_process, tmp_path / "second" / "state", server, *options)
                assert first.process.poll() is None
                assert str(first.process.pid) in server.objects[LEASES]["spotwright"]["spec"]["holderIdentity"]
                written = [line for line in server.asked[asked:] if "mutatingwebhook" in line]
            assert (ended.returncode, written) == (2, [])
            for words in (
                f"{tmp_path / 'state'} (folder ",
                f"here it is {tmp_path / 'second' / 'state'}",
                "replicas: 1",
            ):
                assert words in ended.stderr
            assert "Traceback" not in ended.stderr
            assert [event["reason"] for event in server.objects[EVENTS].values()] == ["TwoStateFolders"]

    (tmp_path / "second").mkdir()
    asyncio.run(scenario())
