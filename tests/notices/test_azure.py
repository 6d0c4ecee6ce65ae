"""Azure's Scheduled Events as documented: the events that count, their ends, and the answers that are not believed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.notices.servers import Server, after, answer, json_answer

from spotwright.notices import SourceError
from spotwright.notices.http_client import Answer, format_http_date
from spotwright.notices.metadata_services import AzureSource, resource_of

pytestmark = pytest.mark.usefixtures("patient_clients")

ME = "aks-gpu-31415926-vmss_7"


def event(**changes: Any) -> dict[str, Any]:
    """A preemption in 30 s, with every property that the documentation names."""
    return {
        "EventId": "5C1B9A3E-0F77-4C44-9D2E-7E0A6B1F2C3D",
        "EventStatus": "Scheduled",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": [ME],
        "NotBefore": format_http_date(time.time() + 30),
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
        **changes,
    }


class Azure:
    """A metadata service with the events that are put in."""

    def __init__(self, *events: Any) -> None:
        self.events = list(events)
        self.answer_bytes: bytes | None = None
        self.posted: list[Any] = []

    def __call__(self, request: str) -> bytes:
        head, _, body = request.partition("\r\n\r\n")
        assert "\r\nMetadata: true" in head
        if "/metadata/instance/compute/name?api-version=" in head:
            return answer(ME)
        assert "/metadata/scheduledevents?api-version=2020-07-01 " in head
        if head.startswith("POST"):
            self.posted.append(json.loads(body))
            return answer()
        return self.answer_bytes or json_answer(
            {"DocumentIncarnation": 3, "Events": self.events}, headers={"Date": format_http_date(time.time())}
        )


def test_no_events_are_no_notice() -> None:
    with Server(Azure()) as server:
        assert AzureSource(server.url).wait(0) is None


def test_a_preemption_is_an_interruption_at_its_time() -> None:
    began = time.time()
    with Server(Azure(event())) as server:
        notice = AzureSource(server.url).wait(0)
    assert notice is not None
    assert (notice.kind, notice.source, notice.certain) == ("interruption", "azure", True)
    assert notice.ends_at == after(began, 30)


def test_the_machine_asks_for_its_own_name_once() -> None:
    with Server(Azure()) as server:
        source = AzureSource(server.url)
        source.wait(0)
        source.wait(0)
    assert sum("compute/name" in request for request in server.requests) == 1


def test_an_event_of_another_machine_of_the_group_is_ignored() -> None:
    with Server(Azure(event(Resources=["aks-gpu-31415926-vmss_8"]))) as server:
        assert AzureSource(server.url).wait(0) is None


def test_names_of_machines_are_the_same_in_capitals() -> None:
    with Server(Azure(event(Resources=["AKS-GPU-31415926-VMSS_7"]))) as server:
        assert AzureSource(server.url).wait(0) is not None


def test_the_name_can_come_from_the_provider_id() -> None:
    group = "/subscriptions/0/resourceGroups/MC_rg/providers/Microsoft.Compute/virtualMachineScaleSets/aks-gpu-31415926-vmss"
    with Server(Azure(event())) as server:
        source = AzureSource(server.url, resource=resource_of(f"azure://{group}/virtualMachines/7"))
        assert source.wait(0) is not None
    assert not any("compute/name" in request for request in server.requests)


def test_a_machine_without_a_scale_set_has_its_own_name() -> None:
    assert (
        resource_of("azure:///subscriptions/0/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm-1")
        == "vm-1"
    )


@pytest.mark.parametrize(
    "text", ["", "aws:///eu-west-1a/i-0abc", "azure:///subscriptions/0", "azure:///x/virtualMachines/a b"]
)
def test_another_provider_id_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="not a provider ID"):
        resource_of(text)


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("Preempt", "Platform", "interruption"),
        ("Redeploy", "Platform", "interruption"),
        ("Redeploy", "User", "disruption"),
        ("Terminate", "Platform", "interruption"),
        ("Terminate", "User", "disruption"),
        ("Reboot", "Platform", "disruption"),
        ("Freeze", "Platform", None),
        ("SomethingNew", "Platform", None),
    ],
)
def test_each_kind_of_event_gives_its_kind_of_notice(kind: str, source: str, expected: str | None) -> None:
    with Server(Azure(event(EventType=kind, EventSource=source))) as server:
        notice = AzureSource(server.url).wait(0)
    assert (notice.kind if notice is not None else None) == expected


def test_an_advice_is_never_certain() -> None:
    with Server(Azure(event(EventType="SpotRebalanceRecommendation", EventStatus="Advisory"))) as server:
        notice = AzureSource(server.url).wait(0)
    assert notice is not None
    assert (notice.kind, notice.certain, notice.ends_at) == ("rebalance", False, float("inf"))


def test_an_event_that_is_withdrawn_is_no_notice_any_more() -> None:
    azure = Azure(event())
    with Server(azure) as server:
        source = AzureSource(server.url)
        assert source.wait(0) is not None
        azure.events.clear()
        assert source.wait(0) is None


def test_an_event_that_has_started_has_no_time_and_keeps_the_known_one() -> None:
    azure = Azure(event(NotBefore=format_http_date(time.time() - 3)))
    with Server(azure) as server:
        source = AzureSource(server.url)
        first = source.wait(0)
        azure.events[0].update(EventStatus="Started", NotBefore="")
        assert source.wait(0) == first


def test_an_event_that_starts_early_ends_now() -> None:
    azure = Azure(event())
    with Server(azure) as server:
        source = AzureSource(server.url)
        source.wait(0)
        azure.events[0].update(EventStatus="Started", NotBefore="")
        notice = source.wait(0)
    assert notice is not None
    assert notice.ends_at <= time.time()


def test_the_earlier_of_two_events_counts() -> None:
    later = event(EventType="Redeploy", EventId="B", NotBefore=format_http_date(time.time() + 600))
    with Server(Azure(later, event())) as server:
        notice = AzureSource(server.url).wait(0)
    assert notice is not None
    assert "Preempt" in notice.reason


@pytest.mark.parametrize("ahead", [-4000.0, 4000.0])
def test_a_clock_that_is_wrong_does_not_matter(ahead: float) -> None:
    """The time between the answer's date and NotBefore counts: both are Azure's."""
    azure = Azure()
    now = time.time() + ahead
    azure.answer_bytes = json_answer(
        {"Events": [event(NotBefore=format_http_date(now + 30))]}, headers={"Date": format_http_date(now)}
    )
    began = time.time()
    with Server(azure) as server:
        notice = AzureSource(server.url).wait(0)
    assert notice is not None
    assert notice.certain
    assert notice.ends_at == after(began, 30)


@pytest.mark.parametrize("moment", ["", "soon", None, 17, "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_an_impossible_time_gives_an_uncertain_notice(moment: Any) -> None:
    with Server(Azure(event(NotBefore=moment))) as server:
        notice = AzureSource(server.url).wait(0)
    assert notice is not None
    assert not notice.certain


@pytest.mark.parametrize(
    "answer_bytes",
    [
        answer("<html>sign in here</html>"),
        answer('{"Events": {}}'),
        answer("[]"),
        answer('{"Events": []', 200),
        answer("internal error", 500),
        answer('{"error": "not found"}', 404),
        answer(b"\xff\xfe"),
    ],
)
def test_an_answer_that_is_no_list_of_events_is_an_error(answer_bytes: bytes) -> None:
    azure = Azure()
    azure.answer_bytes = answer_bytes
    with Server(azure) as server, pytest.raises(SourceError, match=r"^azure: "):
        AzureSource(server.url).wait(0)


def test_a_malformed_name_is_an_error() -> None:
    """Without its own name a machine would take another one's events for its own, or none."""
    with Server(lambda _: answer("<html>")) as server, pytest.raises(SourceError, match="--provider-id"):
        AzureSource(server.url).wait(0)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=20) | st.just(ME) | st.just("Preempt"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(event())), inner, max_size=9),
    max_leaves=20,
)


@given(st.lists(_JSON, max_size=4))
def test_no_garbage_is_ever_a_certain_notice(events: list[Any]) -> None:
    """An event is certain only if every property has its documented value."""
    source = AzureSource(resource=ME)
    with_answer(source, json.dumps({"Events": events}).encode())
    try:
        notice = source.wait(0)
    except SourceError:
        return
    assert notice is None or not notice.certain or any(_is_whole(item) for item in events)


@given(st.binary(max_size=400))
def test_no_bytes_raise_another_error(body: bytes) -> None:
    source = AzureSource(resource=ME)
    with_answer(source, body)
    try:
        assert source.wait(0) is None
    except SourceError as error:
        assert "\n" not in str(error)  # noqa: PT017


def with_answer(source: AzureSource, body: bytes) -> None:
    source._http.request = lambda *_, **__: Answer(200, {}, body)  # type: ignore[method-assign]


def _is_whole(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("EventId"), str)
        and item.get("EventStatus") in ("Scheduled", "Started")
        and item.get("ResourceType") == "VirtualMachine"
    )


def test_the_first_request_may_take_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It switches the service on. The next ones are answered at once, or not at all."""
    given_timeouts: list[float] = []
    source = AzureSource(resource=ME)

    def request(*_: Any, timeout: float, **__: Any) -> Any:
        given_timeouts.append(timeout)
        return Answer(200, {}, b'{"Events": []}')

    monkeypatch.setattr(source._http, "request", request)
    source.wait(0)
    source.wait(0)
    assert given_timeouts[0] >= 120
    assert given_timeouts[1] <= 5


def test_an_approval_names_the_event() -> None:
    azure = Azure(event())
    with Server(azure) as server:
        source = AzureSource(server.url)
        source.wait(0)
        assert source.approve()
    assert azure.posted == [{"StartRequests": [{"EventId": event()["EventId"]}]}]


@pytest.mark.parametrize(
    "changes",
    [
        {"Resources": [ME, "aks-gpu-31415926-vmss_8"]},
        {"EventType": "Redeploy"},
        {"EventStatus": "Started", "NotBefore": ""},
        {"NotBefore": "soon"},
    ],
)
def test_only_a_preemption_of_this_machine_alone_is_approved(changes: dict[str, Any]) -> None:
    azure = Azure(event(**changes))
    with Server(azure) as server:
        source = AzureSource(server.url)
        source.wait(0)
        assert not source.approve()
    assert azure.posted == []


def test_an_approval_that_is_refused_is_an_error() -> None:
    azure = Azure(event())
    with Server(azure) as server:
        source = AzureSource(server.url)
        source.wait(0)
        server.reply = lambda _: answer("", 400)
        with pytest.raises(SourceError, match="refused with 400"):
            source.approve()
