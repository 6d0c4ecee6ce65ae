"""Failures beside the API server: a failing login, a key that a power loss left empty, outdated answers."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest
from lightkube.core.exceptions import ConfigError
from tests.cluster.watching.small_api_server import serving

from spotwright.cluster.api_client import Api, LoginFailed
from spotwright.cluster.attempt_lookup import Lookups
from spotwright.cluster.certificates import Authority
from spotwright.cluster.kubernetes_login import ForwardRefused, PortForward
from spotwright.cluster.mirror import ChangeKind, Mirror, Resource
from spotwright.errors import StateError

PODS = "/api/v1/pods"


class Login(httpx2.Auth):
    """A login by a command, which fails as often as is said."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Fail, or send the request as it is."""
        self.failures -= 1
        if self.failures >= 0:
            raise ConfigError("Exec aws returned 255: no network")
        yield request


def test_a_login_that_fails_is_no_end_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_seconds: float) -> None:
        return None

    async def scenario() -> str:
        async with serving() as server:
            server.objects[PODS] = {}
            async with httpx2.AsyncClient(base_url=server.url, auth=Login(2)) as client:
                mirror = Mirror(Api(client), Resource("/api/v1", "pods"))
                with monkeypatch.context() as patch:
                    patch.setattr("spotwright.cluster.mirror.asyncio.sleep", at_once)
                    return (await anext(mirror.changes())).kind

    assert asyncio.run(scenario()) == ChangeKind.SYNCED


def test_a_login_that_fails_is_asked_for_once_and_named() -> None:
    async def scenario() -> int:
        login = Login(9)
        async with httpx2.AsyncClient(base_url="http://127.0.0.1:1", auth=login) as client:
            with pytest.raises(LoginFailed, match=f"{PODS}: cannot log in: Exec aws returned 255: no network"):
                await Api(client).get(PODS)
        return login.failures

    assert asyncio.run(scenario()) == 8


def test_a_port_forward_whose_login_fails_is_refused_and_waits_for_nothing() -> None:
    async def scenario() -> None:
        async with httpx2.AsyncClient(base_url="http://127.0.0.1:1", auth=Login(9)) as client, asyncio.timeout(20):
            with pytest.raises(ForwardRefused, match="does not connect to it"):
                await PortForward(client, "spotwright", "controller", 9444).open()

    asyncio.run(scenario())


@pytest.mark.parametrize("left", [b"", b"no key"])
def test_a_damaged_key_of_the_authority_is_named_with_the_fix(tmp_path: Path, left: bytes) -> None:
    authority = Authority(tmp_path)
    authority.renew()
    (tmp_path / "authority.key").write_bytes(left)
    with pytest.raises(StateError, match=r"authority\.key: not a key; remove it, and the controller makes a new one"):
        authority.issue(["spotwright.spotwright.svc"])
    (tmp_path / "authority.key").unlink()
    authority.renew()
    assert authority.issue(["spotwright.spotwright.svc"])


def test_objects_that_were_looked_up_stay_in_memory_for_seconds_alone() -> None:
    async def scenario() -> int:
        clock = 0.0
        async with serving() as server, httpx2.AsyncClient(base_url=server.url) as client:
            lookups = Lookups(Api(client), lambda: clock)
            for number in range(20):
                clock = float(number)
                server.put("/apis/argoproj.io/v1alpha1/namespaces/a/workflowtemplates", f"t{number}")
                found = await lookups.find_object("argoproj.io/v1alpha1", "WorkflowTemplate", f"t{number}", "a")
                assert found is not None
            return len(lookups._answers)

    assert asyncio.run(scenario()) <= 4
