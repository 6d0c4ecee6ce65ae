"""``spotwright node-agent`` as it is started on a node."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.notices.servers import Callback, Server, answer, wait_until

from spotwright.local.imds_server import AzureGroup, AzureMetadataServer
from spotwright.notices import NoticeWatch, from_environment
from spotwright.notices.agent import Address
from spotwright.notices.notice import SourceError
from spotwright.notices.sources import PORT
from spotwright.placing.environment import NOTICE_PORT

pytestmark = pytest.mark.usefixtures("patient_clients")

SPOTWRIGHT = [sys.executable, "-m", "spotwright"]


class Agent:
    """A node agent in its own process."""

    def __init__(self, tmp_path: Path, *options: str) -> None:
        self.errors = tmp_path / "agent.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*SPOTWRIGHT, "node-agent", "--listen", "127.0.0.1:0", *options], stderr=errors
            )
        wait_until("the agent listens", lambda: "listening at" in self.log() or self.process.poll() is not None)
        found = re.search(r"listening at (http://\S+);", self.log())
        self.url = found.group(1) if found else ""

    def log(self) -> str:
        return self.errors.read_text()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def make(*options: str) -> Agent:
        agents.append(Agent(tmp_path, *options))
        return agents[-1]

    yield make
    for agent in agents:
        agent.process.kill()
        agent.process.wait()


def run(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        [*SPOTWRIGHT, "node-agent", *options], capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stderr


def azure(node: AzureMetadataServer) -> Callable[[str], bytes]:
    """Serve a simulated node's metadata to a process."""

    def reply(text: str) -> bytes:
        from spotwright.notices.http_server import Request, parse_request

        request = parse_request(bytearray(text.encode()))
        assert isinstance(request, Request)
        response = node.handle(request)
        return answer(response.body, response.status, dict(response.headers))

    return reply


def test_a_notice_on_the_node_reaches_an_attempt_and_is_withdrawn(start: Callable[..., Agent]) -> None:
    group = AzureGroup()
    node = AzureMetadataServer("aks-gpu-vmss_1", group, approved=lambda _: None)
    callback = Callback()
    with Server(azure(node)) as metadata:
        agent = start("--provider", "aks", "--metadata-url", metadata.url)
        source = from_environment({"SPOTWRIGHT_NOTICE_URL": agent.url})
        assert source is not None
        watch = NoticeWatch(source, callback)
        watch.start()
        wait_until("an answer", lambda: watch.answered)
        node.notice(time.time() + 3600)
        wait_until("the notice", lambda: callback.notices)
        node.withdraw()
        wait_until("its withdrawal", lambda: len(callback.notices) == 2)
        wait_until("what it says of that", lambda: "the notice was withdrawn" in agent.log())
        watch.stop()
        assert agent.stop() == 0
    first, second = callback.notices
    assert first is not None
    assert (first.kind, first.source, first.certain) == ("interruption", "azure", True)
    assert second is None
    assert "interruption: Azure takes this machine (Preempt)" in agent.log()


@pytest.mark.slow
def test_an_early_approval_comes_when_the_attempt_has_gone(start: Callable[..., Agent]) -> None:
    approved: list[str] = []
    node = AzureMetadataServer("aks-gpu-vmss_1", AzureGroup(), approved=approved.append)
    with Server(azure(node)) as metadata:
        agent = start("--provider", "azure", "--metadata-url", metadata.url, "--approve")
        code = (
            "import os, sys; from spotwright.notices import NoticeWatch, from_environment\n"
            "watch = NoticeWatch(from_environment(os.environ), lambda _: None); watch.start(); sys.stdin.read()"
        )
        env = {**os.environ, "SPOTWRIGHT_NOTICE_URL": agent.url}
        attempt = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=env)
        try:
            wait_until("the attempt asks", lambda: any("GET /metadata/sch" in text for text in metadata.requests))
            node.notice(time.time() + 3600)
            wait_until("the notice", lambda: "interruption" in agent.log())
            wait_until("two more looks", lambda: len(metadata.requests) > 6)
            assert approved == []
        finally:
            assert attempt.stdin is not None
            attempt.stdin.close()
            attempt.wait(120)
        wait_until("the approval", lambda: approved == ["aks-gpu-vmss_1"])
        assert agent.stop() == 0


def test_without_approve_nothing_is_ever_posted(start: Callable[..., Agent]) -> None:
    node = AzureMetadataServer("aks-gpu-vmss_1", AzureGroup(), approved=lambda _: None)
    with Server(azure(node)) as metadata:
        agent = start("--provider", "azure", "--metadata-url", metadata.url)
        node.notice(time.time() + 3600)
        wait_until("the notice", lambda: "interruption" in agent.log())
        agent.stop()
        assert not any(text.startswith("POST") for text in metadata.requests)


def test_a_metadata_server_that_fails_is_logged_and_asked_again(start: Callable[..., Agent]) -> None:
    with Server(lambda _: answer("", 500)) as metadata:
        agent = start("--provider", "gcp", "--metadata-url", metadata.url)
        wait_until("the problem", lambda: "gcp: " in agent.log())
        google = {"Metadata-Flavor": "Google"}
        metadata.reply = lambda text: answer("NONE" if "maintenance" in text else "TRUE", 200, google)
        wait_until("the notice", lambda: "interruption: Google is preempting this machine" in agent.log())


def test_a_file_is_a_source_like_any_other(start: Callable[..., Agent], tmp_path: Path) -> None:
    agent = start("--provider", "local", "--file", str(tmp_path / "notice.json"))
    source = from_environment({"SPOTWRIGHT_NOTICE_URL": agent.url})
    assert source is not None

    def has_none() -> bool:
        with suppress(SourceError):  # the agent has not looked at the file yet
            return source.wait(0) is None
        return False

    wait_until("the file has been looked at", has_none)
    (tmp_path / "notice.json").write_text(json.dumps({"goes_at": time.time() + 9, "why": "drill"}))
    notice = source.wait(120)
    assert notice is not None
    assert notice.reason == "drill"


def test_a_node_of_kubernetes_is_read_from_a_file(start: Callable[..., Agent], tmp_path: Path) -> None:
    node: dict[str, Any] = {"kind": "Node", "spec": {"taints": [{"key": "karpenter.sh/disrupted"}]}}
    (tmp_path / "node.json").write_text(json.dumps(node))
    agent = start("--provider", "kubernetes", "--file", str(tmp_path / "node.json"))
    wait_until("the notice", lambda: "disruption: this node is being removed" in agent.log())


def test_a_port_in_use_is_one_message() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, stderr = run("--provider", "aws", "--listen", address)
    assert code == 2
    assert stderr.startswith(f"spotwright: {address} is in use: ")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--provider", "local"], "name with --file"),
        (["--provider", "kubernetes"], "name with --file"),
        (["--provider", "aws", "--file", "x"], "--file is only for"),
        (["--provider", "aws", "--approve"], "takes no approvals"),
        (["--provider", "azure", "--leases", "x"], "give both or none"),
        (["--provider", "gcp", "--provider-id", "x"], "only for azure"),
        (["--provider", "azure", "--provider-id", "aws:///i-1"], "not a provider ID"),
        (["--provider", "azure", "--notice", "30s"], "only for gcp"),
        (["--provider", "local", "--file", "x", "--metadata-url", "http://h"], "--metadata-url is only for"),
        (["--provider", "aws", "--metadata-url", "nowhere"], "is not a server address"),
        (["--provider", "aws", "--listen", "8788"], "expected HOST:PORT"),
        (["--provider", "aws", "--listen", "::x::1:8788"], "expected HOST:PORT"),
        (["--provider", "aws", "--listen", "203.0.113.1:8788"], "cannot listen there"),
        (["--provider", "oracle"], "oracle"),
        ([], "--provider"),
    ],
)
def test_options_that_do_not_fit_together_are_wrong_usage(options: list[str], message: str) -> None:
    code, stderr = run(*options)
    assert code == 2
    assert message in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8788", Address("127.0.0.1", 8788)),
        (":8788", Address("0.0.0.0", 8788)),  # noqa: S104
        ("[::]:8788", Address("::", 8788)),
        ("fd00::7:8788", Address("fd00::7", 8788)),
        ("localhost:0", Address("localhost", 0)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: Address) -> None:
    assert Address.read(text) == address


def test_it_listens_on_loopback_at_the_port_that_manifests_name() -> None:
    assert PORT == NOTICE_PORT
    _, response = run("--help")
    done = subprocess.run([*SPOTWRIGHT, "node-agent", "--help"], capture_output=True, text=True, check=True)
    assert f"127.0.0.1:{NOTICE_PORT}" in done.stdout
    assert not response


def test_json_answers_hold_no_more_than_the_notice(start: Callable[..., Agent]) -> None:
    """Neither the machine's name nor the event's ID leave the node."""
    node = AzureMetadataServer("aks-secretname-vmss_1", AzureGroup(), approved=lambda _: None)
    node.notice(time.time() + 3600)
    with Server(azure(node)) as metadata:
        agent = start("--provider", "azure", "--metadata-url", metadata.url)
        wait_until("the notice", lambda: "interruption" in agent.log())
        with socket.create_connection(("127.0.0.1", int(agent.url.split(":")[2].split("/")[0])), 120) as client:
            client.sendall(b"GET /notice HTTP/1.1\r\n\r\n")
            response = b"".join(iter(lambda: client.recv(4096), b"")).decode()
    assert "secretname" not in response
    assert node._group.events["aks-secretname-vmss_1"]["EventId"] not in response
