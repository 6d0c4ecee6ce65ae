"""The chart's policy on a real API server: only the controller and the repair group write records, whatever the roles allow."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
import yaml
from tests.cluster.chart.rendered import CHART
from tests.cluster.live.kube import Kube, Object

from spotwright.cluster.permissions import account as account_of
from spotwright.cluster.record_policy import RESOURCES, policy_spec
from spotwright.cluster.spot_pools import RELEASE_LABEL

pytestmark = pytest.mark.cluster

_RBAC = "rbac.authorization.k8s.io"
_REGISTRATION = "admissionregistration.k8s.io/v1"
_VERSION = "spotwright.dev/v1alpha1"
NAME = f"records-{uuid.uuid4().hex[:6]}"
EDIT, EXTENDED, ADMIN, RECORDER, WEBHOOK = "edit", "extended", "admin", account_of("recorder"), account_of("webhook")
GROUP, REFUSED = f"{NAME}:repair", "the controller alone writes records"
KINDS = {
    path["spec"]["names"]["plural"]: path["spec"]["names"]["kind"]
    for path in (yaml.safe_load(each.read_text()) for each in sorted((CHART / "crds").iterdir()))
}
VERBS = ("create", "update", "patch", "delete", "deletecollection")


def policy(namespace: str) -> Iterator[Object]:
    """The policy with its binding, for a release that serves this namespace."""
    spec = policy_spec(namespace, NAME, GROUP)
    spec["validations"] = [{"expression": "false", "message": REFUSED, "reason": "Forbidden"}]
    meta = {"name": NAME}
    yield {"apiVersion": _REGISTRATION, "kind": "ValidatingAdmissionPolicy", "metadata": meta, "spec": spec}
    served = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
    binding = {
        "policyName": NAME,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchExpressions": [served]}},
    }
    yield {"apiVersion": _REGISTRATION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": meta, "spec": binding}


def roles(namespace: str) -> Iterator[Object]:
    """A role that extends ``edit`` by all rights on the kinds, as an administrator's aggregation does, and who has which role."""
    rule = {"apiGroups": ["spotwright.dev"], "resources": ["*"], "verbs": ["*"]}
    label = {f"{NAME}/extends": "true"}
    selectors = [{"matchLabels": {f"{_RBAC}/aggregate-to-edit": "true"}}, {"matchLabels": label}]
    version = f"{_RBAC}/v1"
    yield {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": NAME, "labels": label}, "rules": [rule]}
    meta = {"name": f"{NAME}-{EXTENDED}"}
    yield {
        "apiVersion": version,
        "kind": "ClusterRole",
        "metadata": meta,
        "aggregationRule": {"clusterRoleSelectors": selectors},
    }
    for account, role in {
        EDIT: "edit",
        EXTENDED: meta["name"],
        ADMIN: "cluster-admin",
        RECORDER: NAME,
        WEBHOOK: NAME,
    }.items():
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}}
        yield {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{NAME}-{account}"},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }


def record(resource: str, namespace: str, name: str) -> Object:
    """A small object of a kind; a pool is of this release."""
    meta: Object = {"name": name, "labels": {RELEASE_LABEL: NAME}}
    meta |= {} if resource == "spotpools" else {"namespace": namespace}
    return {"apiVersion": _VERSION, "kind": KINDS[resource], "metadata": meta}


def path(resource: str, namespace: str) -> str:
    return f"/apis/{_VERSION}/{'' if resource == 'spotpools' else f'namespaces/{namespace}/'}{resource}"


@pytest.fixture(scope="module")
def served(kube: Kube) -> Iterator[str]:
    """A namespace with a record of each kind, the accounts and the policy in force."""
    namespace = NAME
    kube.apply(*(yaml.safe_load(each.read_text(encoding="utf-8")) for each in sorted((CHART / "crds").iterdir())))
    kube.run(
        "wait", "--for=condition=Established", *(f"crd/{name}.spotwright.dev" for name in RESOURCES), "--timeout=60s"
    )
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    kube.apply(*roles(namespace))
    for resource in RESOURCES:
        kube.apply(record(resource, namespace, f"{NAME}-kept"))
    kube.apply(*policy(namespace))
    try:
        kube.wait(lambda: REFUSED in tried(kube, namespace, "patch", "spotruns", ADMIN), "the policy is in force", 60)
        yield namespace
    finally:
        repairs = (
            "--as=administrator",
            "--as-group=system:masters",
            f"--as-group={GROUP}",
        )  # the policy outlives its end
        kube.run("delete", "spotpools", f"{NAME}-kept", "--ignore-not-found", *repairs)
        kube.run("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", NAME)
        kube.run("delete", "clusterrole", NAME, f"{NAME}-{EXTENDED}")
        kube.run(
            "delete", "clusterrolebinding", *(f"{NAME}-{each}" for each in (EDIT, EXTENDED, ADMIN, RECORDER, WEBHOOK))
        )
        kube.run("delete", "namespace", namespace, "--wait=false")


def tried(kube: Kube, namespace: str, verb: str, resource: str, account: str, *options: str) -> str:
    """Try a write without a trace, as an account. Returns why it is refused; empty if it is not."""
    user = [f"--as=system:serviceaccount:{namespace}:{account}", *options]
    kept, text = f"{NAME}-kept", None
    where = [] if resource == "spotpools" else ["-n", namespace]
    if verb == "create":
        command, text = (
            ["create", "--dry-run=server", "-f", "-"],
            json.dumps(record(resource, namespace, f"{NAME}-new")),
        )
    elif verb == "update":
        found = json.loads(kube.run("get", resource, kept, *where, "-o", "json"))
        found["metadata"]["annotations"] = {"example.org/changed": "true"}
        command, text = ["replace", "--dry-run=server", "-f", "-"], json.dumps(found)
    elif verb == "patch":
        body = '{"metadata": {"annotations": {"example.org/changed": "true"}}}'
        command = ["patch", resource, kept, *where, "--dry-run=server", "--type=merge", "-p", body]
    elif verb == "delete":
        command = ["delete", resource, kept, *where, "--dry-run=server"]
    else:
        chosen = f"labelSelector={RELEASE_LABEL.replace('/', '%2F')}%3D{NAME}"
        command = ["delete", "--raw", f"{path(resource, namespace)}?dryRun=All&{chosen}"]
    try:
        kube.run(*command, *user, text=text)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_role_alone_lets_nobody_write_a_record(kube: Kube, served: str, verb: str, resource: str) -> None:
    assert "forbidden" in tried(kube, served, verb, resource, EDIT).lower()
    for account in (EXTENDED, ADMIN):
        assert REFUSED in tried(kube, served, verb, resource, account), account
    masters = ["--as-group=system:masters"]
    assert REFUSED in tried(kube, served, verb, resource, ADMIN, *masters)


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("verb", VERBS)
def test_the_recorder_and_who_repairs_write_records_and_the_webhook_counters(
    kube: Kube, served: str, verb: str, resource: str
) -> None:
    assert tried(kube, served, verb, resource, RECORDER) == ""
    assert (REFUSED not in tried(kube, served, verb, resource, WEBHOOK)) is (resource == "spotcounters")
    assert tried(kube, served, verb, resource, ADMIN, f"--as-group={GROUP}") == ""


@pytest.mark.parametrize("resource", RESOURCES)
def test_no_subresource_is_a_way_around_the_policy(kube: Kube, served: str, resource: str) -> None:
    where = [] if resource == "spotpools" else ["-n", served]
    user = f"--as=system:serviceaccount:{served}:{ADMIN}"
    body = '{"status": {"phase": "forged"}}'
    kept = f"{NAME}-kept"
    with pytest.raises(AssertionError, match=f"{REFUSED}|could not find|not found"):
        kube.run("patch", resource, kept, *where, "--subresource=status", "--type=merge", "-p", body, user)


def test_the_collectors_of_kubernetes_delete_what_a_deleted_run_owned(kube: Kube, served: str) -> None:
    repair = [f"--as=system:serviceaccount:{served}:{ADMIN}", f"--as-group={GROUP}"]
    run = record("spotruns", served, f"{NAME}-owner")
    made = json.loads(kube.run("create", "-f", "-", "-o", "json", *repair, text=json.dumps(run)))
    owned = record("spottasks", served, f"{NAME}-owned")
    owner = {
        "apiVersion": _VERSION,
        "kind": "SpotRun",
        "name": made["metadata"]["name"],
        "uid": made["metadata"]["uid"],
    }
    owned["metadata"]["ownerReferences"] = [owner]
    kube.run("create", "-f", "-", *repair, text=json.dumps(owned))
    kube.run("delete", "spotruns", f"{NAME}-owner", "-n", served, *repair)
    kube.wait(lambda: kube.get("spottasks", f"{NAME}-owned", served) is None, "the task goes with its run", 60)
