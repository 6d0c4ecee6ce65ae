"""The metadata servers of a run: nodes of clouds have one, the real sources read them, and nothing of them is left."""

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
from tests.notices.servers import Told, wait_until
from tests.supply.builders import Lab

from spotwright.local.identity import marks
from spotwright.local.metadata import Metadata, has_metadata
from spotwright.model.pools import Pool, Provider
from spotwright.notices import Watch, from_environment
from spotwright.notices.azure import AzureSource
from spotwright.supply.happenings import NodeGone


class Cloud:
    """Metadata servers, without a run around them."""

    def __init__(self, folder: Path, scale: float) -> None:
        self.selector = selectors.DefaultSelector()
        self.metadata = Metadata(self.selector, marks("r", folder), scale=scale)

    def serve(self) -> None:
        """What the engine's loop does when the selector says that there is something."""
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
    return a_pool(name, provider=Provider(provider), notice=30.0)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path, scale=10.0)
    yield made
    made.close()


def watch(url: str, told: Told) -> Watch:
    source = from_environment({"SPOTWRIGHT_NOTICE_URL": url})
    assert source is not None
    made = Watch(source, told)
    made.start()
    wait_until("the agent's answer", lambda: made.answered)
    return made


@pytest.mark.parametrize(
    ("provider", "source"), [("aks", "azure"), ("gke", "gcp"), ("eks", "aws"), ("karpenter", "aws")]
)
def test_a_notice_comes_through_the_clouds_own_protocol(cloud: Cloud, provider: str, source: str) -> None:
    told = Told()
    watching = watch(cloud.boot(provider), told)
    ends_at = time.time() + 3
    cloud.metadata.notice("spot-1", 3)
    wait_until("the notice", lambda: told.notices)
    watching.stop()
    notice = told.notices[0]
    assert notice is not None
    assert (notice.kind, notice.source, notice.certain) == ("interruption", source, True)
    assert notice.ends_at == pytest.approx(ends_at, abs=2.5)


def test_a_node_is_told_of_its_own_end_only(cloud: Cloud) -> None:
    first, second = Told(), Told()
    watches = [watch(cloud.boot("aks", number=1), first), watch(cloud.boot("aks", number=2), second)]
    cloud.metadata.notice("spot-2", 30)
    wait_until("the notice", lambda: second.notices)
    source = AzureSource(cloud.metadata_url())
    assert source.wait(0) is None
    assert first.notices == []
    for one in watches:
        one.stop()


def test_many_attempts_on_one_machine_all_have_room(cloud: Cloud) -> None:
    url = cloud.boot("gke")
    host, port = url.removeprefix("http://").removesuffix("/notice").split(":")
    watch(url, Told()).stop()
    source = from_environment({"SPOTWRIGHT_NOTICE_URL": url})
    assert source is not None
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            client = stack.enter_context(socket.create_connection((host, int(port)), 5))
            client.sendall(b"GET /notice?")  # and no more: it holds its place
        assert source.wait(0) is None


def test_an_address_is_good_before_its_server_is_up(cloud: Cloud) -> None:
    """An attempt may start as soon as its node is ready; the process of the servers is still starting then."""
    told = Told()
    watch(cloud.boot("gke"), told).stop()


def test_a_node_that_is_gone_has_no_server_any_more(cloud: Cloud) -> None:
    told = Told()
    watching = watch(cloud.boot("gke"), told)
    cloud.metadata.gone("spot-1")
    assert cloud.metadata.environment("spot-1") == {}
    wait_until("the end of its agent", lambda: watching.problem, 20)
    watching.stop()


def test_an_approval_at_a_nodes_server_is_told(cloud: Cloud) -> None:
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


def test_an_approved_node_goes_before_its_time() -> None:
    lab = Lab(a_pool(lifetime=100.0, max_nodes=1)).submit("a").until(104)
    lab.supply.approve("spot-1")
    lab.until(105)
    assert lab.told(NodeGone) == [(105, "spot-1")]


def test_an_approval_of_a_node_that_was_not_announced_does_nothing() -> None:
    lab = Lab(a_pool(lifetime=100.0, max_nodes=1)).submit("a").until(50)
    lab.supply.approve("spot-1")
    lab.supply.approve("nobody")
    assert lab.until(60).told(NodeGone) == []


@pytest.mark.parametrize("pool", [a_pool(), a_pool(spot=False, provider=Provider.AKS)])
def test_other_nodes_have_no_server_and_start_nothing(tmp_path: Path, pool: Pool) -> None:
    assert not has_metadata(pool)
    cloud = Cloud(tmp_path, 1.0)
    cloud.metadata.boot("spot-1", pool)
    cloud.metadata.notice("spot-1", 30)
    cloud.metadata.gone("spot-1")
    assert cloud.metadata.environment("spot-1") == {}
    assert cloud.metadata._process is None
    cloud.close()


def test_servers_that_were_killed_are_replaced_for_the_next_node(cloud: Cloud) -> None:
    cloud.boot("gke")
    process = cloud.metadata._process
    assert process is not None
    process.send_signal(signal.SIGKILL)

    def replaced() -> bool:
        cloud.serve()
        return cloud.metadata._process is None

    wait_until("their end", replaced)
    cloud.metadata.notice("spot-1", 3)
    told = Told()
    watching = watch(cloud.boot("gke", number=2), told)
    cloud.metadata.notice("spot-2", 3)
    wait_until("the notice", lambda: told.notices)
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
    {{capacity: spot, provider: {provider}, node: {{cpu: 8}}, notice: 8s, simulate: {{boot: 0s{takes}}}}}
  od: {{capacity: on-demand, node: {{cpu: 8}}, simulate: {{boot: 0s}}}}
policy:
  default: {{spot: prefer, ladder: [spot, od], fall_back_after: 1, grace_period: 1s, interruptions: {{backoff: 1ms}}}}
"""
"""Nodes of a cloud, which may be taken; then on-demand."""


def asks_until_noticed() -> int:
    """Its first attempt works until the node agent says that the node goes, and leaves before SIGTERM comes."""
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
def test_an_attempt_of_a_run_is_told_by_its_nodes_agent(project: Project, provider: str, source: str) -> None:
    project.config(CLOUDS.format(provider=provider, takes=", taken_every: 1h, work: 10000h"))
    done = project.run(project.pipeline({"train": step(asks_until_noticed)}))
    assert done.code == 0, done.err
    assert project.causes("train") == ["interrupted", "succeeded"]
    [noticed] = project.ledger("noticed")
    assert noticed["notice"]["source"] == source
    assert 1 < noticed["left"] < 9
    assert [line["url"].partition(":")[0] for line in project.ledger("asks")] == ["http", "file"]


def lets_its_node_go_early() -> int:
    """Its first attempt approves the preemption at the metadata server, as an agent would that knows of nobody else."""
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
def test_an_approval_at_the_metadata_server_of_a_run_takes_the_node_early(project: Project) -> None:
    notice = CLOUDS.replace("notice: 8s", "notice: 500s").replace("grace_period: 1s", "grace_period: 20s")
    project.config(notice.format(provider="aks", takes=", taken_every: 1h, work: 10000h"))
    done = project.run(project.pipeline({"train": step(lets_its_node_go_early)}))
    assert done.code == 0, done.err
    assert project.causes("train") == ["interrupted", "succeeded"]
    assert "before its time, as was approved" in [event.data.get("why") for event in project.events()]


@pytest.mark.slow
def test_after_kill_9_of_the_engine_the_servers_go_and_come_back_with_it(project: Project) -> None:
    project.config(CLOUDS.format(provider="gke", takes="").replace("fall_back_after: 1", "fall_back_after: 5"))
    under = project.start("run", str(project.pipeline({"train": step(asks_until_noticed)})), "--name", "r")
    eventually((project.playground / "asking").exists)
    servers = [pid for pid, command in project.processes().items() if "metadata_process" in command]
    assert len(servers) == 1
    under.kill()
    eventually(lambda: servers[0] not in project.processes())
    done = project.spotwright("resume", "r")
    assert done.code == 0, done.err
    assert project.causes("train") == ["lost", "succeeded"]
    assert [line["url"].startswith("http://127.0.0.1:") for line in project.ledger("asks")] == [True, True]
