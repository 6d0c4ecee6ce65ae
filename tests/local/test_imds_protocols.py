"""The simulated metadata servers answer as each provider documents, and are as strict."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from spotwright.clouds.provider_records import PROVIDERS
from spotwright.local.imds_server import (
    AwsMetadataServer,
    AzureGroup,
    AzureMetadataServer,
    GcpMetadataServer,
    metadata_server_of,
)
from spotwright.notices.http_server import DeferredResponse, Request, Response

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
        self.node = AzureMetadataServer("aks-p-vmss_1", group, self.approved.append)
        self.other = AzureMetadataServer("aks-p-vmss_2", group, self.approved.append)

    def events(self, node: AzureMetadataServer | None = None) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(ask(node or self.node, EVENTS, VERSION, AZURE).body)
        return document

    def start(self, body: bytes, node: AzureMetadataServer | None = None) -> int:
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


def test_azure_removes_an_event_that_is_over() -> None:
    azure = Azure()
    azure.node.notice(time.time() + 30)
    azure.node.withdraw()
    assert azure.events() == {"DocumentIncarnation": 3, "Events": []}


def test_azure_starts_an_approved_event() -> None:
    azure = Azure()
    azure.node.notice(time.time() + 30)
    body = json.dumps({"StartRequests": [{"EventId": azure.events()["Events"][0]["EventId"]}]}).encode()
    assert azure.start(body, azure.other) == 200
    assert azure.approved == ["aks-p-vmss_1"]
    assert azure.events()["Events"][0]["EventStatus"] == "Started"


def test_azure_accepts_an_approval_twice_and_starts_once() -> None:
    azure = Azure()
    azure.node.notice(time.time() + 30)
    body = json.dumps({"StartRequests": [{"EventId": azure.events()["Events"][0]["EventId"]}]}).encode()
    assert [azure.start(body), azure.start(body)] == [200, 200]
    assert azure.approved == ["aks-p-vmss_1"]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"StartRequests": []}', b'{"StartRequests": [{"EventId": "no"}]}', b"[1]"]
)
def test_azure_refuses_an_approval_of_no_event(body: bytes) -> None:
    assert Azure().start(body) == 400


@pytest.mark.parametrize(
    ("query", "headers"),
    [(VERSION, {}), (VERSION, {"metadata": "false"}), ({}, AZURE), ({"api-version": "latest"}, AZURE)],
)
def test_azure_requires_its_header_and_a_version(query: dict[str, str], headers: dict[str, str]) -> None:
    assert ask(Azure().node, EVENTS, query, headers).status == 400


def test_azure_gives_the_name_of_the_machine() -> None:
    query = {"api-version": "2021-02-01", "format": "text"}
    assert ask(Azure().node, "/metadata/instance/compute/name", query, AZURE).body == b"aks-p-vmss_1"


def test_azure_answers_404_for_other_paths() -> None:
    assert ask(Azure().node, "/metadata/identity/oauth2/token", VERSION, AZURE).status == 404


def test_google_answers_preempted_with_its_header_and_an_etag() -> None:
    node = GcpMetadataServer(lambda: None)
    before = ask(node, PREEMPTED, headers=GOOGLE)
    node.notice(0.0)
    after = ask(node, PREEMPTED, headers=GOOGLE)
    assert (before.body, after.body) == (b"FALSE", b"TRUE")
    assert before.headers["Metadata-Flavor"] == "Google"
    assert before.headers["ETag"] != after.headers["ETag"]


@pytest.mark.parametrize("headers", [{}, {"metadata-flavor": "google"}, {**GOOGLE, "x-forwarded-for": "10.0.0.1"}])
def test_google_requires_its_header(headers: dict[str, str]) -> None:
    assert ask(GcpMetadataServer(lambda: None), PREEMPTED, headers=headers).status == 403


def test_google_answers_a_waiting_request_when_the_value_changes() -> None:
    changed: list[int] = []
    node = GcpMetadataServer(lambda: changed.append(1))
    later = node.handle(Request("GET", PREEMPTED, {"wait_for_change": "true"}, GOOGLE, b""))
    assert isinstance(later, DeferredResponse)
    assert later.answer(False) is None
    node.notice(0.0)
    answer = later.answer(False)
    assert answer is not None
    assert answer.body == b"TRUE"
    assert changed


def test_google_answers_a_waiting_request_at_its_timeout() -> None:
    node = GcpMetadataServer(lambda: None)
    query = {"wait_for_change": "true", "timeout_sec": "1"}
    asked = time.monotonic()
    later = node.handle(Request("GET", PREEMPTED, query, GOOGLE, b""))
    assert isinstance(later, DeferredResponse)
    assert asked + 1.0 <= later.deadline <= time.monotonic() + 1.0
    answer = later.answer(True)
    assert answer is not None
    assert answer.body == b"FALSE"


def test_google_answers_at_once_if_the_last_etag_is_outdated() -> None:
    query = {"wait_for_change": "true", "last_etag": "0"}
    assert ask(GcpMetadataServer(lambda: None), PREEMPTED, query, GOOGLE).status == 200


def test_google_has_no_maintenance_event_and_no_other_path() -> None:
    node = GcpMetadataServer(lambda: None)
    assert ask(node, "/computeMetadata/v1/instance/maintenance-event", headers=GOOGLE).body == b"NONE"
    assert ask(node, "/computeMetadata/v1/instance/service-accounts/", headers=GOOGLE).status == 404


def token(node: AwsMetadataServer, life: str = "60") -> dict[str, str]:
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": life}
    answer = ask(node, "/latest/api/token", headers=headers, method="PUT")
    assert answer.headers["X-Aws-Ec2-Metadata-Token-Ttl-Seconds"] == life
    return {"x-aws-ec2-metadata-token": answer.body.decode()}


def test_ec2_has_no_action_until_the_instance_is_interrupted() -> None:
    node = AwsMetadataServer()
    headers = token(node)
    assert ask(node, ACTION, headers=headers).status == 404
    node.notice(4102444800.9)
    answer = json.loads(ask(node, ACTION, headers=headers).body)
    assert answer == {"action": "terminate", "time": "2100-01-01T00:00:00Z"}
    node.withdraw()
    assert ask(node, ACTION, headers=headers).status == 404


@pytest.mark.parametrize("headers", [{}, {"x-aws-ec2-metadata-token": "made-up"}])
def test_ec2_requires_a_token(headers: dict[str, str]) -> None:
    assert ask(AwsMetadataServer(), ACTION, headers=headers).status == 401


def test_ec2_refuses_an_expired_token(monkeypatch: pytest.MonkeyPatch) -> None:
    node = AwsMetadataServer()
    headers, now = token(node, "60"), time.monotonic()
    monkeypatch.setattr("spotwright.local.imds_server.time.monotonic", lambda: now + 61)
    assert ask(node, ACTION, headers=headers).status == 401


@pytest.mark.parametrize("life", ["", "0", "21601", "long"])
def test_ec2_gives_no_token_for_an_invalid_lifetime(life: str) -> None:
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": life}
    assert ask(AwsMetadataServer(), "/latest/api/token", headers=headers, method="PUT").status == 400


def test_ec2_gives_no_token_to_a_proxy() -> None:
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": "60", "x-forwarded-for": "10.0.0.1"}
    assert ask(AwsMetadataServer(), "/latest/api/token", headers=headers, method="PUT").status == 403


def test_ec2_has_no_rebalance_recommendation_and_its_life_cycle_is_spot() -> None:
    node = AwsMetadataServer()
    headers = token(node)
    assert ask(node, "/latest/meta-data/events/recommendations/rebalance", headers=headers).status == 404
    assert ask(node, "/latest/meta-data/instance-life-cycle", headers=headers).body == b"spot"
    assert ask(node, "/latest/meta-data/iam/security-credentials/", headers=headers).status == 404


@pytest.mark.parametrize(
    ("provider", "kind"),
    [
        ("aks", AzureMetadataServer),
        ("gke", GcpMetadataServer),
        ("eks", AwsMetadataServer),
        ("karpenter", AwsMetadataServer),
    ],
)
def test_each_provider_has_the_metadata_server_of_its_cloud(provider: str, kind: type) -> None:
    service = PROVIDERS[provider].metadata_service
    assert isinstance(
        metadata_server_of(service, "n", AzureGroup(), approved=lambda _: None, changed=lambda: None), kind
    )
