"""The simulated metadata servers answer what each provider's documentation says, and are as strict."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from spotwright.local.metadata_protocols import AwsNode, AzureGroup, AzureNode, GcpNode, node_of
from spotwright.notices.serving import Later, Request, Response

EVENTS = "/metadata/scheduledevents"
VERSION = {"api-version": "2020-07-01"}
AZURE = {"metadata": "true"}
GOOGLE = {"metadata-flavor": "Google"}
PREEMPTED = "/computeMetadata/v1/instance/preempted"
ACTION = "/latest/meta-data/spot/instance-action"


def ask(
    node: Any,
    path: str,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    *,
    method: str = "GET",
    body: bytes = b"",
) -> Response:
    answer = node.handle(Request(method, path, query or {}, headers or {}, body))
    assert isinstance(answer, Response)
    return answer


class Azure:
    def __init__(self) -> None:
        self.approved: list[str] = []
        group = AzureGroup()
        self.node = AzureNode("aks-p-vmss_1", group, self.approved.append)
        self.other = AzureNode("aks-p-vmss_2", group, self.approved.append)

    def events(self, node: AzureNode | None = None) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(ask(node or self.node, EVENTS, VERSION, AZURE).body)
        return said

    def start(self, body: bytes, node: AzureNode | None = None) -> int:
        return ask(node or self.node, EVENTS, VERSION, AZURE, method="POST", body=body).status


def test_azure_has_no_events_at_first() -> None:
    assert Azure().events() == {"DocumentIncarnation": 1, "Events": []}


def test_azure_schedules_a_preemption_with_every_documented_property() -> None:
    azure = Azure()
    azure.node.notice(4102444800.9)
    document = azure.events()
    assert document["DocumentIncarnation"] == 2
    [event] = document["Events"]
    assert event.pop("EventId")
    assert event == {
        "EventStatus": "Scheduled",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": ["aks-p-vmss_1"],
        "NotBefore": "Fri, 01 Jan 2100 00:00:00 GMT",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def test_azure_shows_an_event_to_the_whole_group() -> None:
    azure = Azure()
    azure.node.notice(time.time() + 30)
    assert azure.events(azure.other) == azure.events(azure.node)


def test_azure_starts_an_event_at_its_time_and_empties_it() -> None:
    azure = Azure()
    azure.node.notice(time.time() - 1)
    [event] = azure.events()["Events"]
    assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")


def test_azure_takes_an_event_off_the_list_when_it_is_over() -> None:
    azure = Azure()
    azure.node.notice(time.time() + 30)
    azure.node.withdraw()
    assert azure.events() == {"DocumentIncarnation": 3, "Events": []}


def test_azure_starts_what_is_approved() -> None:
    azure = Azure()
    azure.node.notice(time.time() + 30)
    body = json.dumps({"StartRequests": [{"EventId": azure.events()["Events"][0]["EventId"]}]}).encode()
    assert azure.start(body, azure.other) == 200
    assert azure.approved == ["aks-p-vmss_1"]
    assert azure.events()["Events"][0]["EventStatus"] == "Started"


def test_azure_takes_an_approval_twice_and_starts_once() -> None:
    azure = Azure()
    azure.node.notice(time.time() + 30)
    body = json.dumps({"StartRequests": [{"EventId": azure.events()["Events"][0]["EventId"]}]}).encode()
    assert [azure.start(body), azure.start(body)] == [200, 200]
    assert azure.approved == ["aks-p-vmss_1"]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"StartRequests": []}', b'{"StartRequests": [{"EventId": "no"}]}', b"[1]"]
)
def test_azure_refuses_an_approval_of_nothing(body: bytes) -> None:
    assert Azure().start(body) == 400


@pytest.mark.parametrize(
    ("query", "headers"),
    [(VERSION, {}), (VERSION, {"metadata": "false"}), ({}, AZURE), ({"api-version": "latest"}, AZURE)],
)
def test_azure_wants_its_header_and_a_version(query: dict[str, str], headers: dict[str, str]) -> None:
    assert ask(Azure().node, EVENTS, query, headers).status == 400


def test_azure_says_what_the_machine_is_called() -> None:
    query = {"api-version": "2021-02-01", "format": "text"}
    assert ask(Azure().node, "/metadata/instance/compute/name", query, AZURE).body == b"aks-p-vmss_1"


def test_azure_has_nothing_else() -> None:
    assert ask(Azure().node, "/metadata/identity/oauth2/token", VERSION, AZURE).status == 404


def test_google_says_preempted_with_its_header_and_an_etag() -> None:
    node = GcpNode(lambda: None)
    before = ask(node, PREEMPTED, headers=GOOGLE)
    node.notice(0.0)
    after = ask(node, PREEMPTED, headers=GOOGLE)
    assert (before.body, after.body) == (b"FALSE", b"TRUE")
    assert before.headers["Metadata-Flavor"] == "Google"
    assert before.headers["ETag"] != after.headers["ETag"]


@pytest.mark.parametrize("headers", [{}, {"metadata-flavor": "google"}, {**GOOGLE, "x-forwarded-for": "10.0.0.1"}])
def test_google_wants_its_header(headers: dict[str, str]) -> None:
    assert ask(GcpNode(lambda: None), PREEMPTED, headers=headers).status == 403


def test_google_answers_a_question_that_waits_when_the_value_changes() -> None:
    changed: list[int] = []
    node = GcpNode(lambda: changed.append(1))
    later = node.handle(Request("GET", PREEMPTED, {"wait_for_change": "true"}, GOOGLE, b""))
    assert isinstance(later, Later)
    assert later.answer(False) is None
    node.notice(0.0)
    said = later.answer(False)
    assert said is not None
    assert said.body == b"TRUE"
    assert changed


def test_google_answers_a_question_that_waits_when_its_time_is_over() -> None:
    node = GcpNode(lambda: None)
    query = {"wait_for_change": "true", "timeout_sec": "1"}
    later = node.handle(Request("GET", PREEMPTED, query, GOOGLE, b""))
    assert isinstance(later, Later)
    assert later.until - time.monotonic() == pytest.approx(1.0, abs=0.5)
    said = later.answer(True)
    assert said is not None
    assert said.body == b"FALSE"


def test_google_does_not_wait_where_another_etag_is_known() -> None:
    query = {"wait_for_change": "true", "last_etag": "0"}
    assert ask(GcpNode(lambda: None), PREEMPTED, query, GOOGLE).status == 200


def test_google_has_no_maintenance_and_nothing_else() -> None:
    node = GcpNode(lambda: None)
    assert ask(node, "/computeMetadata/v1/instance/maintenance-event", headers=GOOGLE).body == b"NONE"
    assert ask(node, "/computeMetadata/v1/instance/service-accounts/", headers=GOOGLE).status == 404


def token(node: AwsNode, life: str = "60") -> dict[str, str]:
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": life}
    said = ask(node, "/latest/api/token", headers=headers, method="PUT")
    assert said.headers["X-Aws-Ec2-Metadata-Token-Ttl-Seconds"] == life
    return {"x-aws-ec2-metadata-token": said.body.decode()}


def test_ec2_has_no_action_until_the_instance_is_interrupted() -> None:
    node = AwsNode()
    headers = token(node)
    assert ask(node, ACTION, headers=headers).status == 404
    node.notice(4102444800.9)
    said = json.loads(ask(node, ACTION, headers=headers).body)
    assert said == {"action": "terminate", "time": "2100-01-01T00:00:00Z"}
    node.withdraw()
    assert ask(node, ACTION, headers=headers).status == 404


@pytest.mark.parametrize("headers", [{}, {"x-aws-ec2-metadata-token": "made-up"}])
def test_ec2_wants_a_token(headers: dict[str, str]) -> None:
    assert ask(AwsNode(), ACTION, headers=headers).status == 401


def test_ec2_takes_no_token_beyond_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    node = AwsNode()
    headers, now = token(node, "60"), time.monotonic()
    monkeypatch.setattr("spotwright.local.metadata_protocols.time.monotonic", lambda: now + 61)
    assert ask(node, ACTION, headers=headers).status == 401


@pytest.mark.parametrize("life", ["", "0", "21601", "long"])
def test_ec2_gives_no_token_for_another_life(life: str) -> None:
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": life}
    assert ask(AwsNode(), "/latest/api/token", headers=headers, method="PUT").status == 400


def test_ec2_gives_no_token_to_a_proxy() -> None:
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": "60", "x-forwarded-for": "10.0.0.1"}
    assert ask(AwsNode(), "/latest/api/token", headers=headers, method="PUT").status == 403


def test_ec2_recommends_nothing_and_says_that_it_is_spot() -> None:
    node = AwsNode()
    headers = token(node)
    assert ask(node, "/latest/meta-data/events/recommendations/rebalance", headers=headers).status == 404
    assert ask(node, "/latest/meta-data/instance-life-cycle", headers=headers).body == b"spot"
    assert ask(node, "/latest/meta-data/iam/security-credentials/", headers=headers).status == 404


@pytest.mark.parametrize(
    ("provider", "kind"), [("aks", AzureNode), ("gke", GcpNode), ("eks", AwsNode), ("karpenter", AwsNode)]
)
def test_each_provider_has_its_clouds_server(provider: str, kind: type) -> None:
    assert isinstance(node_of(provider, "n", AzureGroup(), approved=lambda _: None, changed=lambda: None), kind)
