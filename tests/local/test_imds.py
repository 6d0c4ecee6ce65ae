"""The metadata servers of a run: real sources of notices read them, and no process is left after the run."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.building import step
from tests.e2e.inside import alone, attempt, note, progress, raise_file
from tests.e2e.project import Project, a_project, eventually
from tests.engine.builders import a_pool
from tests.events import data_of
from tests.notices.servers import Callback, after, wait_until
from tests.supply.builders import Lab

from spotwright.local.imds_client import MetadataServers, has_metadata_server
from spotwright.local.supervisor.process_identity import marks
from spotwright.model.pools import Pool
from spotwright.notices import NoticeWatch, from_environment
from spotwright.notices.metadata_services import AzureSource
from spotwright.supply.node_fit import NodeGone

pytestmark = pytest.mark.usefixtures("patient_clients")


class Cloud:
    """Metadata servers without a run."""

    def __init__(self, folder: Path, scale: float) -> None:
        self.selector = selectors.DefaultSelector()
        self.metadata = MetadataServers(self.selector, marks("r", folder), scale=scale)

    def serve(self) -> None:
        """Handle events as the engine's loop does."""
        for key, _ in self.selector.select(0.05):
            key.data()

    def boot(self, provider: str, name: str = "spot", number: int = 1) -> str:
        self.metadata.boot(f"{name}-{number}", cloud_pool(provider, name))
        return self.metadata.environment(f"{name}-{number}")["SPOTWRIGHT_NOTICE_URL"]

    def metadata_url(self, node: str = "spot-1") -> str:
        return self.metadata.environment(node)["SPOTWRIGHT_METADATA_URL"]

    def close(self) -> None:
        self.metadata.close()
        self.selector.close()


def cloud_pool(provider: str, name: str = "spot") -> Pool:
    return a_pool(name, provider=provider, notice=30.0)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path, scale=10.0)
    yield made
    made.close()


def watch(url: str, listener: Callback) -> NoticeWatch:
    source = from_environment({"SPOTWRIGHT_NOTICE_URL": url})
    assert source is not None
    made = NoticeWatch(source, listener)
    made.start()
    wait_until("the agent's answer", lambda: made.answered)
    return made


@pytest.mark.parametrize(
    ("provider", "source"), [("aks", "azure"), ("gke", "gcp"), ("eks", "aws"), ("karpenter", "aws")]
)
def test_a_notice_is_read_through_the_clouds_protocol(cloud: Cloud, provider: str, source: str) -> None:
    listener = Callback()
    watching = watch(cloud.boot(provider), listener)
    began = time.time()
    cloud.metadata.notice("spot-1", 3)
    wait_until("the notice", lambda: listener.notices)
    watching.stop()
    notice = listener.notices[0]
    assert notice is not None
    assert (notice.kind, notice.source, notice.certain) == ("interruption", source, True)
    assert notice.ends_at == after(began, 3)


def test_a_notice_reaches_only_its_own_node(cloud: Cloud) -> None:
    first, second = Callback(), Callback()
    watches = [watch(cloud.boot("aks", number=1), first), watch(cloud.boot("aks", number=2), second)]
    cloud.metadata.notice("spot-2", 30)
    wait_until("the notice", lambda: second.notices)
    source = AzureSource(cloud.metadata_url())
    assert source.wait(0) is None
    assert first.notices == []
    for one in watches:
        one.stop()


def test_many_connections_are_served_at_once(cloud: Cloud) -> None:
    url = cloud.boot("gke")
    host, port = url.removeprefix("http://").removesuffix("/notice").split(":")
    watch(url, Callback()).stop()
    source = from_environment({"SPOTWRIGHT_NOTICE_URL": url})
    assert source is not None
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            client = stack.enter_context(socket.create_connection((host, int(port)), 120))
            client.sendall(b"GET /notice?")  # an incomplete request, which keeps its connection
        assert source.wait(0) is None


def test_an_address_accepts_connections_before_its_server_runs(cloud: Cloud) -> None:
    """An attempt may start as soon as its node is ready, while the servers' process is still starting."""
    listener = Callback()
    watch(cloud.boot("gke"), listener).stop()


def test_the_server_of_a_node_that_is_gone_is_closed(cloud: Cloud) -> None:
    listener = Callback()
    watching = watch(cloud.boot("gke"), listener)
    cloud.metadata.gone("spot-1")
    assert cloud.metadata.environment("spot-1") == {}
    wait_until("the end of its agent", lambda: watching.problem)
    watching.stop()


def test_an_approval_at_a_nodes_server_is_reported(cloud: Cloud) -> None:
    cloud.boot("aks")
    cloud.metadata.notice("spot-1", 30)
    source = AzureSource(cloud.metadata_url())
    wait_until("the event", lambda: source.wait(0) is not None)
    assert source.approve()
    found: list[str] = []

    def approved() -> bool:
        cloud.serve()
        found.extend(cloud.metadata.approved())
        return bool(found)

    wait_until("the approval", approved)
    assert found == ["spot-1"]


def test_an_approved_node_goes_early() -> None:
    lab = Lab(a_pool(max_lifetime=100.0, max_nodes=1)).submit("a").until(104)
    lab.supply.approve("spot-1")
    lab.until(105)
    assert lab.seen(NodeGone) == [(105, "spot-1")]


def test_an_approval_without_a_notice_does_nothing() -> None:
    lab = Lab(a_pool(max_lifetime=100.0, max_nodes=1)).submit("a").until(50)
    lab.supply.approve("spot-1")
    lab.supply.approve("unknown")
    assert lab.until(60).seen(NodeGone) == []


@pytest.mark.parametrize("pool", [a_pool(), a_pool(spot=False, provider="aks")])
def test_nodes_without_a_cloud_start_no_server(tmp_path: Path, pool: Pool) -> None:
    assert not has_metadata_server(pool)
    cloud = Cloud(tmp_path, 1.0)
    cloud.metadata.boot("spot-1", pool)
    cloud.metadata.notice("spot-1", 30)
    cloud.metadata.gone("spot-1")
    assert cloud.metadata.environment("spot-1") == {}
    assert cloud.metadata._process is None
    cloud.close()


def test_killed_servers_are_replaced_for_the_next_node(cloud: Cloud) -> None:
    cloud.boot("gke")
    process = cloud.metadata._process
    assert process is not None
    process.send_signal(signal.SIGKILL)

    def replaced() -> bool:
        cloud.serve()
        return cloud.metadata._process is None

    wait_until("their end", replaced)
    cloud.metadata.notice("spot-1", 3)
    listener = Callback()
    watching = watch(cloud.boot("gke", number=2), listener)
    cloud.metadata.notice("spot-2", 3)
    wait_until("the notice", lambda: listener.notices)
    watching.stop()


def test_closing_leaves_no_process(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, 1.0)
    cloud.boot("aks")
    process = cloud.metadata._process
    assert process is not None
    cloud.close()
    assert process.returncode is not None


CLOUDS = """
pools:
  spot:
    {{capacity: spot, provider: {provider}, node: {{cpu: 8}}, notice: 10m, simulate: {{boot: 0s{takes}}}}}
  od: {{capacity: on-demand, node: {{cpu: 8}}, simulate: {{boot: 0s}}}}
policy:
  default: {{spot: prefer, ladder: [spot, od], fall_back_after: 1, grace_period: 1s, interruptions: {{backoff: 1ms}}}}
"""
"""Pools of a cloud with spot nodes, and on-demand as the fallback."""


def asks_until_noticed() -> int:
    """The first attempt works until the node agent announces the interruption, and exits before SIGTERM."""
    import contextlib
    import json
    import os
    import time
    import urllib.request

    with alone():
        url = os.environ["SPOTWRIGHT_NOTICE_URL"]
        note("asks", url=url)
        if attempt() > 1:
            return 1
        raise_file("asking")
        done = 0.0
        while True:
            notice = None
            with contextlib.suppress(OSError), urllib.request.urlopen(url) as answer:  # noqa: S310  # http
                notice = json.load(answer)["notice"]
            if notice is not None:
                note("noticed", notice=notice, left=notice["ends_at"] - time.time())
                raise SystemExit(75)
            progress(done := min(done + 0.01, 0.9))
            time.sleep(0.02)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with a_project(tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "source"), [("aks", "azure"), ("gke", "gcp")])
def test_an_attempt_reads_the_notice_from_its_nodes_agent(project: Project, provider: str, source: str) -> None:
    project.config(CLOUDS.format(provider=provider, takes=", interrupt_every: 1h, expected_duration: 10000h"))
    done = project.run(project.pipeline({"train": step(asks_until_noticed)}))
    assert done.code == 0, done.err
    assert project.causes("train") == ["interrupted", "succeeded"]
    [noticed] = project.ledger("noticed")
    assert noticed["notice"]["source"] == source
    assert 0 < noticed["left"] <= 600
    assert [line["url"].partition(":")[0] for line in project.ledger("asks")] == ["http", "file"]


def lets_its_node_go_early() -> int:
    """The first attempt approves the preemption at the metadata server, as an agent without other attempts would."""
    import json
    import os
    import time
    import urllib.request

    with alone():
        if attempt() > 1:
            return 1
        url = os.environ["SPOTWRIGHT_METADATA_URL"] + "/metadata/scheduledevents?api-version=2020-07-01"
        done = 0.0
        while True:
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Metadata": "true"})) as answer:  # noqa: S310
                events = json.load(answer)["Events"]
            if events and events[0]["EventStatus"] == "Scheduled":
                body = json.dumps({"StartRequests": [{"EventId": events[0]["EventId"]}]}).encode()
                request = urllib.request.Request(url, body, {"Metadata": "true"})  # noqa: S310
                urllib.request.urlopen(request).close()  # noqa: S310
                note("approved")
            progress(done := min(done + 0.01, 0.9))
            time.sleep(0.02)


@pytest.mark.slow
def test_an_approval_during_a_run_takes_the_node_early(project: Project) -> None:
    notice = CLOUDS.replace("grace_period: 1s", "grace_period: 20s")
    project.config(notice.format(provider="aks", takes=", interrupt_every: 1h, expected_duration: 10000h"))
    done = project.run(project.pipeline({"train": step(lets_its_node_go_early)}))
    assert done.code == 0, done.err
    assert project.causes("train") == ["interrupted", "succeeded"]
    assert "before its time, as was approved" in [data_of(event).get("why") for event in project.events()]


@pytest.mark.slow
def test_the_servers_end_with_a_killed_engine_and_return_with_the_next(project: Project) -> None:
    project.config(CLOUDS.format(provider="gke", takes="").replace("fall_back_after: 1", "fall_back_after: 5"))
    under = project.start("run", str(project.pipeline({"train": step(asks_until_noticed)})), "--name", "r")
    eventually((project.playground / "asking").exists)
    servers = [pid for pid, command in project.processes().items() if "imds_server" in command]
    assert len(servers) == 1
    under.kill()
    eventually(lambda: servers[0] not in project.processes())
    done = project.spotwright("resume", "r")
    assert done.code == 0, done.err
    assert project.causes("train") == ["lost", "succeeded"]
    assert [line["url"].startswith("http://127.0.0.1:") for line in project.ledger("asks")] == [True, True]
