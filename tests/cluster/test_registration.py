"""The registration of the webhook: everything that is placed is asked about, and everything fails open."""

from __future__ import annotations

import base64
from typing import Any

from spotwright.cluster.install import webhook_configuration
from spotwright.kinds.kind import SERVED


def webhooks() -> dict[str, dict[str, Any]]:
    configuration = webhook_configuration("spotwright", ("spotwright", "webhook"), b"PEM")
    return {webhook["name"].partition(".")[0]: webhook for webhook in configuration["webhooks"]}


def test_every_webhook_fails_open_within_two_seconds_and_has_no_side_effects() -> None:
    for webhook in webhooks().values():
        assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 2)
        assert webhook["sideEffects"] == "NoneOnDryRun"
        assert webhook["namespaceSelector"] == {"matchLabels": {"spotwright.dev/enabled": "true"}}


def test_the_service_and_its_authority_are_named() -> None:
    client = webhooks()["pods"]["clientConfig"]
    assert client["service"] == {"namespace": "spotwright", "name": "webhook", "path": "/mutate", "port": 443}
    assert base64.b64decode(client["caBundle"]) == b"PEM"


def test_every_namespaced_kind_that_is_placed_is_asked_about() -> None:
    resources = {rule["resources"][0] for name in ("objects", "pods") for rule in webhooks()[name]["rules"]}
    assert resources == {"deployments", *(f"{kind.lower()}s" for kind in SERVED if not kind.startswith("Cluster"))}


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
    assert "object.spec != oldObject.spec" in conditions["was-placed"]


def test_pods_without_a_policy_cost_no_request() -> None:
    conditions = {one["name"]: one["expression"] for one in webhooks()["pods"]["matchConditions"]}
    assert "'spotwright.dev/policy' in object.metadata.annotations" in conditions["has-a-policy"]
