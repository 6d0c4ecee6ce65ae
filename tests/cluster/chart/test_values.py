"""Values of the chart: valid ones are rendered, wrong ones are refused with a sentence, and none weakens the security."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from tests.cluster.chart.rendered import CHART, PROCESSES, Helm, Object, RefusedError, pod_of
from tests.cluster.chart.value_files import CERT_MANAGER, GOOD, HOSTILE, WRONG

EVERY = {**GOOD, **CERT_MANAGER}
SECURE = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def assert_secure(objects: list[Object]) -> None:
    assert sum(each["kind"] == "Deployment" for each in objects) == len(PROCESSES)
    for process in PROCESSES:
        assert_secure_pod(pod_of(objects, process)["spec"])


def assert_secure_pod(spec: Object) -> None:
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "initContainers"} & spec.keys()
    (container,) = spec["containers"]
    assert container["securityContext"] == SECURE
    assert {next(key for key in volume if key != "name") for volume in spec["volumes"]} <= {
        "persistentVolumeClaim",
        "emptyDir",
        "secret",
        "configMap",
    }
    assert [volume for volume in spec["volumes"] if volume["name"] == "tmp"] == [
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
    ]
    first = spec["tolerations"][:2]
    assert {each["key"]: each["tolerationSeconds"] for each in first} == {
        "node.kubernetes.io/not-ready": 10,
        "node.kubernetes.io/unreachable": 10,
    }


@pytest.mark.parametrize("values", EVERY.values(), ids=EVERY)
def test_what_people_want_is_rendered_and_secure(helm: Helm, values: Mapping[str, Any]) -> None:
    objects = helm.render(values)
    assert_secure(objects)
    assert len(
        {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects}
    ) == len(objects)


@pytest.mark.parametrize(("values", "sentence"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_with_a_sentence(helm: Helm, values: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(RefusedError) as refused:
        helm.render(values)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("values", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_are_refused_or_weaken_nothing(helm: Helm, values: Mapping[str, Any]) -> None:
    try:
        objects = helm.render(values)
    except RefusedError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert not re.search(
            r"YAML parse error|nil pointer", refusal
        )  # a sentence, not a manifest that happens to break
        return
    assert_secure(objects)
    plain = helm.render({"namespaces": ["team-a", "team-b"]})
    of_config = {("ConfigMap", "spotwright")}
    assert kinds(objects) - kinds(plain) <= of_config
    for process in PROCESSES:
        pod, as_ever = pod_of(objects, process), pod_of(plain, process)
        assert pod["spec"]["containers"][0]["args"][:5] == as_ever["spec"]["containers"][0]["args"][:5]
        assert pod["metadata"]["labels"].items() >= as_ever["metadata"]["labels"].items()


@pytest.mark.parametrize("namespace", ["spotwright", "default", "kube-system", "1234", "on"])
def test_it_goes_into_any_namespace(helm: Helm, namespace: str) -> None:
    """Names that YAML reads as numbers or truths are names too, and no two objects have one name."""
    objects = helm.render({"namespaces": ["team-a", "1e3", "no"]}, namespace)
    names = [(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    used = {where for _, where, _ in names if where}
    assert used == {namespace, "team-a", "1e3", "no", "default", "kube-node-lease", "kube-system"}
    subjects = [subject for each in objects for subject in each.get("subjects", ())]
    services = [each["clientConfig"]["service"] for each in registration_of(objects)["webhooks"]]
    assert {each["namespace"] for each in (*subjects, *services)} == {namespace}


def test_the_quota_for_its_priority_class_limits_no_other_pod(helm: Helm) -> None:
    """A quota counts every pod of the class in the namespace: in kube-system the cluster's own pods too."""

    def quotas(namespace: str) -> list[Object]:
        objects = helm.render({"namespaces": ["team-a"]}, namespace)
        return [each for each in objects if each["kind"] == "ResourceQuota"]

    assert quotas("kube-system") == []
    (quota,) = quotas("platform")
    assert int(quota["spec"]["hard"]["pods"]) >= 1000


def registration_of(objects: list[Object]) -> Object:
    (found,) = [each for each in objects if each["kind"] == "MutatingWebhookConfiguration"]
    return found


def resources_of(objects: list[Object]) -> set[str]:
    rules = [rule for each in objects for rule in each.get("rules", ()) if "resources" in rule]
    return {resource for rule in rules for resource in rule["resources"]}


GIVEN = {**CERT_MANAGER, "a certificate of one's own": GOOD["a certificate of one's own"]}


@pytest.mark.parametrize("values", GIVEN.values(), ids=GIVEN)
def test_with_a_given_certificate_the_controller_has_no_right_on_the_registration(
    helm: Helm, values: Mapping[str, Any]
) -> None:
    objects = helm.render(values)
    assert "mutatingwebhookconfigurations" not in resources_of(objects)
    assert "mutatingwebhookconfigurations" in resources_of(helm.render({"namespaces": ["team-a"]}))
    for process in PROCESSES:
        spec = pod_of(objects, process)["spec"]
        (name,) = [volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume]
        args = spec["containers"][0]["args"]
        assert {"--certificate=/etc/spotwright/serving/tls.crt", "--authority=/etc/spotwright/serving/ca.crt"} <= {
            *args
        }
    registration, certificates = registration_of(objects), values["certificates"]
    if "authority" in certificates:
        given = {each["clientConfig"]["caBundle"] for each in registration["webhooks"]}
        assert [base64.b64decode(text).decode() for text in given] == [certificates["authority"]]
        return
    (certificate,) = [each for each in objects if each["kind"] == "Certificate"]
    assert registration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "spotwright/spotwright-serving"
    }
    assert certificate["spec"]["secretName"] == name
    assert certificate["spec"]["dnsNames"][0] == "spotwright.spotwright.svc"
    issuers = {each["metadata"]["name"] for each in objects if each["kind"] == "Issuer"}
    assert certificate["spec"]["issuerRef"]["name"] in (issuers or {"company"})


def args_of(helm: Helm, values: Mapping[str, Any], process: str) -> list[str]:
    args: list[str] = pod_of(helm.render(values), process)["spec"]["containers"][0]["args"]
    return args


def test_a_recorder_with_a_volume_is_one_and_gives_way_before_the_next(helm: Helm) -> None:
    objects = helm.render({"namespaces": ["team-a"], "replicas": 3, "logs": {"volume": {"size": "20Gi"}}})
    replicas = {each["metadata"]["name"]: each["spec"]["replicas"] for each in objects if each["kind"] == "Deployment"}
    assert replicas == {"spotwright-webhook": 3, "spotwright-recorder": 1}
    (recorder,) = [
        each for each in objects if each["metadata"]["name"] == "spotwright-recorder" and each["kind"] == "Deployment"
    ]
    assert recorder["spec"]["strategy"] == {"type": "Recreate"}
    assert "--logs=file:///var/lib/spotwright-logs" in pod_of(objects, "recorder")["spec"]["containers"][0]["args"]
    volumes = [
        volume
        for process in PROCESSES
        for volume in pod_of(objects, process)["spec"]["volumes"]
        if "persistent" in str(volume)
    ]
    assert volumes == [{"name": "logs", "persistentVolumeClaim": {"claimName": "spotwright-logs"}}]


def test_each_process_has_its_own_options(helm: Helm) -> None:
    values = {"namespaces": ["team-a"], "logs": {"url": "s3://logs"}}
    webhook, recorder = (args_of(helm, values, process) for process in PROCESSES)
    assert webhook[:2] == ["controller", "webhook"]
    assert recorder[:2] == ["controller", "recorder"]
    assert "--logs=s3://logs" in recorder
    assert not [each for each in webhook if each.startswith(("--logs", "--read-listen", "--log-limit"))]
    assert not [each for each in recorder if each.startswith(("--listen", "--webhook", "--refusal", "--make"))]


def kinds(objects: list[Object]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def test_the_sum_of_hostile_values_that_are_let_through_is_secure(helm: Helm) -> None:
    values: dict[str, Any] = {"namespaces": ["team-a"]}
    for hostile in HOSTILE.values():
        try:
            helm.render(hostile)
        except RefusedError:
            continue
        values |= {key: value for key, value in hostile.items() if key != "namespaces"}
    assert_secure(helm.render(values))


def test_the_linter_of_helm_has_nothing_to_say(helm: Helm) -> None:
    said = helm.run("lint", "--strict", "--with-subcharts", str(CHART), "--set=namespaces={team-a}")
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert "[WARNING]" not in said


def of_schema(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from of_schema(inner, f"{path}/{name}")


def test_the_schema_knows_every_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    known = {path: inner for path, inner in of_schema(schema) if path}
    for path, inner in known.items():
        closed = inner.get("additionalProperties", True) is not True
        assert inner.get("type") != "object" or closed or path == "/global", path
        if inner.get("properties") and "/resources" not in path:
            assert set(inner["properties"]) == set(at(values, path)), path
    assert set(schema["properties"]) == set(values)
    assert schema["additionalProperties"] is False


def at(values: Any, path: str) -> Any:
    for name in path.strip("/").split("/"):
        values = values.get(name, {})
    return values


def test_every_value_is_explained() -> None:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    unexplained = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if line
        and line[0] not in "# "
        and not before.startswith("#")
        and line.endswith(("{}", "[]", '""', "true", "false"))
    ]
    assert unexplained == []
