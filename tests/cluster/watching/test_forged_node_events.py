"""Writers of Events in namespace ``default`` have no influence: a policy must prove who writes about a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.watching.days import JOBS, PODS, Day, day
from tests.cluster.watching.watched_objects import BEGIN, at, job, pod

from spotwright.cluster import watch_streams
from spotwright.cluster.api_client import Api
from spotwright.cluster.node_events import SUFFIX
from spotwright.engine.events import NoticeGiven
from spotwright.model.attempts import Cause
from spotwright.notices.node_event import event_of
from spotwright.notices.notice import Notice
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder

EVENTS = "/api/v1/namespaces/default/events"
REGISTERED = "/apis/admissionregistration.k8s.io/v1"
NAME = f"spotwright{SUFFIX}"
OF_AGENT = "SpotInterruptionNotice"
CAUSES = {OF_AGENT: Cause.INTERRUPTED, "SpotInterruption": Cause.INTERRUPTED, "ScaleDown": Cause.DISRUPTED}
"""The effect of an Event about the node on a pod that exited with 143, if it is trusted."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_streams, "_DISCOVERS", 0.1)
    monkeypatch.setattr(Api, "now", lambda _: BEGIN + 200.0)  # the objects have times from the begin on


def say(made: Day, reason: str, name: str = "said") -> None:
    """Write an Event about the node ``n1``, 60 s after the start, in the wording of its usual writer."""
    notice = Notice(float(BEGIN + 90), "interruption", "aws", certain=True, reason="the provider takes it", id=name)
    event = event_of(notice, "n1", "boot", float(BEGIN + 60))
    meta = {**event["metadata"], "creationTimestamp": at(60)}
    made.server.put(EVENTS, name, **{**event, "reason": reason, "metadata": meta})


def install(made: Day, seconds: float = 0, actions: tuple[str, ...] = ("Deny",)) -> None:
    """Make the policy and its binding, so many seconds after the begin."""
    meta = {"creationTimestamp": at(seconds)}
    made.server.put(f"{REGISTERED}/validatingadmissionpolicies", NAME, metadata=meta, spec={})
    spec = {"policyName": NAME, "validationActions": list(actions)}
    made.server.put(f"{REGISTERED}/validatingadmissionpolicybindings", NAME, metadata=meta, spec=spec)


async def end(made: Day, name: str = "train") -> Cause | None:
    """Let a pod on the node exit with 143 after the Event, and return the recorded cause."""
    train = job(name, uid=f"uid-{name}")
    made.put(JOBS, train)
    made.put(PODS, pod(f"pod-of-{name}", train, made=61, node="n1", phase="Running"))
    await made.until(lambda: made.is_recorded(name), f"the attempt of {name}")
    made.put(PODS, pod(f"pod-of-{name}", train, made=61, node="n1", phase="Failed", exit_code=143, ended=80))
    await made.until(lambda: made.cause(name), f"the end of {name}")
    return made.cause(name)


def notices(made: Day) -> list[NoticeGiven]:
    found: list[NoticeGiven] = []
    for folder in StateFolder.existing(made.folder).runs():
        journal = Journal.read(folder.journal)
        try:
            found += [event for _, event in journal.events() if isinstance(event, NoticeGiven)]
        finally:
            journal.close()
    return found


@pytest.mark.parametrize("reason", CAUSES)
@pytest.mark.parametrize("installed", [None, ("Audit",)], ids=["no policy", "a policy that denies nothing"])
def test_an_event_that_anyone_could_have_written_changes_nothing(
    tmp_path: Path, reason: str, installed: tuple[str, ...] | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(made: Day) -> None:
        if installed is not None:
            install(made, actions=installed)
        await made.start_with_a_running_job("beside")
        say(made, reason)
        await made.until(lambda: any(EVENTS in line and "watch=true" in line for line in made.server.asked))
        assert await end(made) is Cause.FAILED
        assert not notices(made)
        assert "ValidatingAdmissionPolicy" in made.watcher.watched.kinds[watch_streams.ABOUT_NODES]

    day(tmp_path / "state", test)
    assert caplog.text.count("Events about nodes, including notices of node agents, are ignored") == 1


@pytest.mark.parametrize("reason", CAUSES)
def test_an_event_counts_whose_writer_the_policy_has_proved(tmp_path: Path, reason: str) -> None:
    async def test(made: Day) -> None:
        install(made)
        await made.start_with_a_running_job("beside")
        say(made, reason)
        await made.until(lambda: made.watcher._view.events_of("n1"), "the Event")
        assert await end(made) is CAUSES[reason]
        assert len(notices(made)) == (2 if reason == OF_AGENT else 0)  # one for each pod on the node

    day(tmp_path / "state", test)


def test_a_policy_that_comes_later_proves_only_what_is_written_under_it(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        await made.start_with_a_running_job("beside")
        say(made, OF_AGENT)
        assert await end(made) is Cause.FAILED
        install(made, seconds=120)  # the Event is from before
        await made.until(lambda: made.watcher.watched.kinds[watch_streams.ABOUT_NODES] == "watched", "the policy")
        assert await end(made, "second") is Cause.FAILED
        install(made)  # now it was written under the policy: what had been passed over is read again
        await made.until(lambda: made.watcher._view.notice_of("n1"), "the notice")
        assert await end(made, "third") is Cause.INTERRUPTED

    day(tmp_path / "state", test)


def test_without_the_policy_no_event_is_believed_any_more(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        install(made)
        say(made, OF_AGENT)
        await made.start_with_a_running_job("beside")
        await made.until(lambda: made.watcher._view.notice_of("n1"), "the notice")
        made.server.delete(f"{REGISTERED}/validatingadmissionpolicybindings", NAME)
        await made.until(lambda: not made.watcher._view.notice_of("n1"), "it is forgotten")
        assert await end(made) is Cause.FAILED

    day(tmp_path / "state", test)
