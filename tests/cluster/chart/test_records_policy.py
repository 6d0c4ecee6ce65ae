"""The policy on records matches every write of theirs but those of recorder, webhook, collectors and who repairs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from tests.cluster.chart.rendered import CHART, Helm

from spotwright.cluster.record_policy import RESOURCES, policy_spec

RECORDER, WEBHOOK = (f"system:serviceaccount:spotwright:spotwright-{each}" for each in ("recorder", "webhook"))
OURS, GROUP = "spotwright.spotwright", "spotwright:repair"
SPEC = policy_spec("spotwright", OURS, GROUP)
OPERATIONS = ("CREATE", "UPDATE", "DELETE")
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"


class Fields(dict[str, Any]):
    """An object whose fields are named as in CEL."""

    def __getattr__(self, name: str) -> Any:
        found = self[name]
        return Fields(found) if isinstance(found, dict) else found


def holds(expression: str, **known: Any) -> bool:
    """What an expression says, by the part of CEL that the policy uses: the rest of it reads as Python does."""
    text = re.sub(r"!(?!=)", " not ", expression.replace("&&", " and ").replace("||", " or "))
    text = re.sub(r"has\(([\w.]+)\.(\w+)\)", r"('\2' in \1)", text)
    return bool(eval(text, {"__builtins__": {}, "null": None, **known}))  # noqa: S307  # our own text


def is_refused(
    operation: str, resource: str, user: str, *groups: str, release: str | None = OURS, before: str | None = OURS
) -> bool:
    """Whether a write matches all conditions. ``release`` is the label of the object, ``before`` that of the earlier one."""

    def version(of: str | None) -> Fields:
        return Fields({"metadata": {} if of is None else {"labels": {"spotwright.dev/release": of}}})

    made = None if operation == "DELETE" else version(release)
    there = None if operation == "CREATE" else version(before)
    info = {"username": user, "groups": ["system:authenticated", *groups]}
    request = Fields({"operation": operation, "resource": {"resource": resource}, "userInfo": info})
    return all(
        holds(each["expression"], request=request, object=made, oldObject=there) for each in SPEC["matchConditions"]
    )


def test_every_kind_of_the_chart_is_meant_with_its_subresources_and_every_operation() -> None:
    plurals = {
        yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["names"]["plural"]
        for path in (CHART / "crds").iterdir()
    }
    (rule,) = SPEC["matchConstraints"]["resourceRules"]
    assert set(RESOURCES) == plurals
    assert set(rule["resources"]) == {each for name in plurals for each in (name, f"{name}/*")}
    assert set(rule["operations"]) == set(OPERATIONS)
    assert rule["apiVersions"] == ["*"]
    assert SPEC["failurePolicy"] == "Fail"


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_who_may_write_records_and_who_may_not(operation: str, resource: str) -> None:
    assert is_refused(operation, resource, "somebody")
    assert is_refused(operation, resource, "admin", "system:masters")
    assert is_refused(operation, resource, "system:serviceaccount:team-a:spotwright-recorder")
    assert not is_refused(operation, resource, RECORDER)
    assert is_refused(operation, resource, WEBHOOK) is (resource != "spotcounters")
    assert not is_refused(operation, resource, "somebody", GROUP)
    assert is_refused(operation, resource, COLLECTOR) is (operation == "CREATE")


@pytest.mark.parametrize(
    ("operation", "release", "before", "refused"),
    [
        ("CREATE", "other", None, False),
        ("CREATE", None, None, True),
        ("UPDATE", "other", "other", False),
        ("UPDATE", "other", OURS, True),
        ("UPDATE", OURS, "other", True),
        ("UPDATE", None, "other", True),
        ("DELETE", None, "other", False),
        ("DELETE", None, OURS, True),
        ("DELETE", None, None, True),
    ],
)
def test_pools_of_another_release_are_left_to_its_own_policy(
    operation: str, release: str | None, before: str | None, refused: bool
) -> None:
    other = "system:serviceaccount:other:spotwright-recorder"
    assert is_refused(operation, "spotpools", other, release=release, before=before) is refused
    assert is_refused(operation, "spotruns", other, release=release, before=before)


def test_an_empty_group_is_nobodys() -> None:
    (condition,) = [each for each in policy_spec(group="")["matchConditions"] if each["name"] == "nobody-who-repairs"]
    request = Fields({"userInfo": {"groups": ["system:authenticated"]}})
    assert holds(condition["expression"], request=request)


@pytest.mark.parametrize("group", ["spotwright:repair", ""])
def test_the_chart_renders_the_policy_with_its_own_accounts_and_pools(helm: Helm, group: str) -> None:
    objects = helm.render({"namespaces": ["team-a"], "records": {"repairGroup": group}}, "a-home")
    (found,) = [
        each
        for each in objects
        if each["kind"] == "ValidatingAdmissionPolicy" and "records" in each["metadata"]["name"]
    ]
    expected = policy_spec("a-home", "a-home.spotwright-a-home", group)
    assert {key: found["spec"][key] for key in expected} == expected
    (validation,) = found["spec"]["validations"]
    assert validation["expression"] == "false"
    assert ("--as-group" in validation["message"]) is bool(group)
