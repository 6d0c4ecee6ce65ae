"""The registration of the webhook: everything that is placed is asked about, and everything fails open."""

from __future__ import annotations

import base64
import re
from typing import Any

from spotwright.cluster import admission_server
from spotwright.cluster.install import webhook_configuration
from spotwright.kinds.kind import all_kinds, run_kinds


def webhooks() -> dict[str, dict[str, Any]]:
    configuration = webhook_configuration("spotwright", ("spotwright", "webhook"), b"PEM")
    return {webhook["name"].partition(".")[0]: webhook for webhook in configuration["webhooks"]}


def test_every_webhook_fails_open_within_ten_seconds_and_has_no_side_effects() -> None:
    for webhook in webhooks().values():
        assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 10)
        assert webhook["sideEffects"] == "NoneOnDryRun"
        assert webhook["namespaceSelector"] == {"matchLabels": {"spotwright.dev/enabled": "true"}}


def test_the_server_waits_as_long_as_an_api_server_and_answers_before_it_goes_on() -> None:
    asked_for = webhooks()["pods"]["timeoutSeconds"]
    assert admission_server.FACTS < admission_server.ANSWER_AFTER < asked_for
    assert admission_server.LOOK_UP < admission_server.ANSWER_AFTER
    assert admission_server._LIMITS.arrival >= asked_for
    assert admission_server._LIMITS.idle > 90.0, "Go's http.DefaultTransport ends a connection that was idle for 90 s"


def test_the_service_and_its_authority_are_named() -> None:
    client = webhooks()["pods"]["clientConfig"]
    assert client["service"] == {"namespace": "spotwright", "name": "webhook", "path": "/mutate", "port": 443}
    assert base64.b64decode(client["caBundle"]) == b"PEM"


def test_every_namespaced_kind_that_is_placed_is_asked_about() -> None:
    resources = {rule["resources"][0] for name in ("objects", "pods") for rule in webhooks()[name]["rules"]}
    placed = [kind for kind in all_kinds().values() if kind.place is not None and kind.version]
    assert resources == {f"{kind.name.lower()}s" for kind in placed if not kind.name.startswith("Cluster")}
    assert {"pods", "deployments", "jobs", "workflows", "trainjobs"} <= resources


def test_kinds_of_one_name_are_asked_about_in_each_of_their_groups() -> None:
    rules = [rule for rule in webhooks()["objects"]["rules"] if rule["resources"][0] in ("jobs", "cronjobs")]

    assert {(rule["apiGroups"][0], rule["resources"][0]) for rule in rules} == {
        (group, resource) for group in ("batch", "batch.volcano.sh") for resource in ("jobs", "cronjobs")
    }


def test_every_kind_is_asked_about_when_it_is_created_and_when_its_spec_is_updated_after_it_was_placed() -> None:
    asked = webhooks()
    assert {rule["operations"][0] for rule in asked["objects"]["rules"]} == {"CREATE"}
    created = [rule["resources"] for name in ("objects", "pods") for rule in asked[name]["rules"]]
    assert [rule["resources"] for rule in asked["updates"]["rules"]] == created
    conditions = {one["name"]: one["expression"] for one in asked["updates"]["matchConditions"]}
    assert "'spotwright.dev/admitted' in oldObject.metadata.annotations" in conditions["was-placed"]
    assert (
        "'spotwright.dev/admitted' in oldObject.spec.trialTemplate.trialSpec.metadata.annotations"
        in conditions["was-placed"]
    )
    assert conditions["was-placed"].endswith(" && object.spec != oldObject.spec")


def test_pods_without_a_policy_cost_no_request_unless_a_run_makes_them() -> None:
    conditions = {one["name"]: one["expression"] for one in webhooks()["pods"]["matchConditions"]}
    asked = conditions["has-a-policy-or-a-run"]
    assert "'spotwright.dev/policy' in object.metadata.annotations" in asked
    kinds = set(re.findall(r"'(\w+)\.[\w.-]+'", asked.partition(" in [")[2]))
    assert kinds == {*run_kinds()} - {"Trial"}


def test_listed_namespaces_are_chosen_by_the_label_that_nobody_can_forge() -> None:
    made = webhook_configuration("spotwright", ("spotwright", "webhook"), b"", ("team-b", "team-a"))
    for webhook in made["webhooks"]:
        chosen = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}
        assert webhook["namespaceSelector"] == {"matchExpressions": [chosen]}
        assert "caBundle" not in webhook["clientConfig"]  # the controller writes it
