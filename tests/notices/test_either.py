"""The notice of a pod's own end and that of its node, at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.notices.servers import Server, json_answer, wait_until

from spotwright.local.attempt_orders import NOTICE, write_notice
from spotwright.notices import Source, from_environment
from spotwright.notices.sources import EitherSource

NO_AGENT = "http://127.0.0.1:1/notice"

FromPod = Callable[..., Source]


@pytest.fixture
def from_pod(tmp_path: Path) -> Iterator[FromPod]:
    """The source of a pod that has the hook, with these variables beside."""
    made: list[EitherSource] = []

    def make(**more: str) -> Source:
        source = from_environment(
            {"SPOTWRIGHT_GRACE_FOLDER": str(tmp_path), "SPOTWRIGHT_NOTICE_FILE": str(tmp_path / NOTICE), **more}
        )
        if isinstance(source, EitherSource):
            made.append(source)
        assert source is not None
        return source

    yield make
    for source in made:
        source.stop()


def agent_says(seconds: float | None) -> Server:
    notice = None
    if seconds is not None:
        notice = {
            "seconds_left": seconds,
            "kind": "interruption",
            "source": "azure",
            "certain": True,
            "reason": "preempt",
        }
    return Server(lambda _: json_answer({"format": "spotwright-notice/1", "state": "a1", "notice": notice}))


@pytest.mark.parametrize("name", ["SPOTWRIGHT_NOTICE_URL", "SPOTWRIGHT_HOST"])
def test_without_an_agent_on_the_node_the_file_is_still_read(tmp_path: Path, from_pod: FromPod, name: str) -> None:
    source = from_pod(**{name: NO_AGENT if name.endswith("URL") else "127.0.0.1"})
    assert source.wait(0) is None
    write_notice(tmp_path, time.time(), time.time() + 30, "why")
    notice = source.wait(60)
    assert notice is not None
    assert notice.source == "file"


def test_an_agent_that_knows_nothing_hides_no_file(tmp_path: Path, from_pod: FromPod) -> None:
    with agent_says(None) as server:
        source = from_pod(SPOTWRIGHT_NOTICE_URL=f"{server.url}/notice")
        assert source.wait(0) is None
        write_notice(tmp_path, time.time(), time.time() + 30, "why")
        assert source.wait(60) is not None


def test_the_notice_of_the_agent_is_one(from_pod: FromPod) -> None:
    with agent_says(30) as server:
        source = from_pod(SPOTWRIGHT_NOTICE_URL=f"{server.url}/notice")
        wait_until("the agent's notice", lambda: source.wait(0))
        notice = source.wait(0)
        assert notice is not None
        assert (notice.source, notice.kind) == ("azure", "interruption")


def test_the_earlier_end_counts(tmp_path: Path, from_pod: FromPod) -> None:
    ends_at = time.time() + 3000
    write_notice(tmp_path, time.time(), ends_at, "why")
    with agent_says(300) as server:
        source = from_pod(SPOTWRIGHT_NOTICE_URL=f"{server.url}/notice")
        wait_until("both", lambda: (found := source.wait(0)) is not None and found.ends_at < ends_at - 2000)


def test_with_a_file_alone_nothing_else_is_watched(from_pod: FromPod) -> None:
    assert not isinstance(from_pod(), EitherSource)
