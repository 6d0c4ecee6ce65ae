"""A refused pod is small, without its user's parts, and admitted wherever the original pod would be."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.admission_objects import KEY, a_config
from tests.cluster.admitted_pods import IMAGE, PREFER, SPENT, a_pod, precise
from tests.cluster.json_patches import apply_patch

from spotwright.cluster.admit_pods import AdmissionContext, RefusalPods, admit_pod
from spotwright.model.attempts import Cause
from spotwright.model.quantities import parse_quantity
from spotwright.scheduling.next_attempt import PastAttempt

NODE = "workflows.argoproj.io/node-name"
TEMPORARY = "/tmp"  # noqa: S108 (a path in Argo's containers)
SHARED = {"name": "var-run-argo", "mountPath": "/var/run/argo"}
MAIN = {
    "name": "main",
    "image": "train:1",
    "command": ["/var/run/argo/argoexec", "emissary", "--", "/kfp-launcher/launch", "--", "python3"],
    "args": ["train.py"],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}, SHARED],
}


def refused(pod: dict[str, Any], *, user: int = 65532, argo_images: tuple[str, ...] = ()) -> dict[str, Any]:
    outcome = admit_pod(pod, a_config(PREFER), SPENT, RefusalPods(IMAGE, user, argo_images))
    assert outcome.verdict == "pod is refused"
    spec: dict[str, Any] = apply_patch(pod, outcome.patch)["spec"]
    return spec


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "Never"])
def test_a_pod_that_the_training_operator_makes_again_whatever_its_end_is_not_refused(policy: str) -> None:
    pod = a_pod()
    pod["spec"]["restartPolicy"] = policy
    pod["metadata"]["ownerReferences"][0] |= {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    pod, outcome = precise(pod, SPENT)

    is_refused = policy == "Never"
    assert (outcome.verdict == "pod is refused") is is_refused
    assert (
        f"its restartPolicy {policy} restarts it after any error" in str(pod["metadata"]["annotations"])
    ) is not is_refused


def a_step(**wait: Any) -> dict[str, Any]:
    """A pod of an Argo step, with the containers that Argo 3.7.3 adds."""
    given = a_pod()
    given["metadata"]["annotations"][NODE] = "run.train(0)"
    argo = {"image": "quay.io/argoproj/argoexec:v3.7.3", "env": [{"name": "ARGO_TEMPLATE", "value": "{}"}]}
    mirrored = [SHARED, {"name": "data", "mountPath": "/mainctrfs/data"}, {"name": "tmp", "mountPath": TEMPORARY}]
    variables = [{"name": "ARGO_CONTAINER_NAME", "value": "main"}, *given["spec"]["containers"][0]["env"]]
    given["spec"]["containers"] = [
        {
            "name": "wait",
            "command": ["argoexec", "wait", "--loglevel", "info"],
            "volumeMounts": mirrored,
            **argo,
            **wait,
        },
        {**MAIN, "env": variables},
    ]
    given["spec"]["initContainers"] = [
        {"name": "init", "command": ["argoexec", "init"], "volumeMounts": [SHARED], **argo},
        {"name": "kfp-launcher", "image": "kfp:1"},
    ]
    given["spec"]["volumes"] = [
        {"name": "var-run-argo", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    return given


def test_it_has_one_container_and_no_volume_of_its_user_s() -> None:
    hook = {"preStop": {"exec": {"command": ["sleep", "20"]}}}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    main = {"name": "main", "image": "train:1", "lifecycle": hook, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    given = a_pod()
    given["spec"] |= {"containers": [{**main, "env": given["spec"]["containers"][0]["env"]}, {"name": "log"}]}
    given["spec"] |= {"volumes": [claim], "initContainers": [{"name": "fetch"}], "hostNetwork": True}
    spec = refused(given)
    assert [one["name"] for one in spec["containers"]] == ["main"]
    assert {"volumes", "initContainers", "hostNetwork"}.isdisjoint(spec)
    assert "lifecycle" not in spec["containers"][0]
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        ({}, ("100m", "128Mi"), ("100m", "128Mi")),
        ({"limits": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": 8}}, ("100m", "128Mi"), ("100m", "128Mi")),
        ({"requests": {"cpu": "8", "memory": "1Gi"}}, ("100m", "128Mi"), ("500m", "128Mi")),
        (
            {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}},
            ("10m", "32Mi"),
            ("200m", "64Mi"),
        ),
        ({"requests": {"cpu": "10m"}, "limits": {"cpu": "16", "memory": "64Mi"}}, ("10m", "64Mi"), ("500m", "64Mi")),
        ({"limits": {"cpu": 0.05, "memory": 67108864}}, ("0.05", "67108864"), ("0.05", "67108864")),
        ({"requests": {"cpu": "0", "memory": 0}}, ("100m", "128Mi"), ("500m", "128Mi")),
    ],
)
def test_it_requests_little_and_never_more_than_the_pod_in_its_place(
    given: dict[str, Any], requests: tuple[str, str], limits: tuple[str, str]
) -> None:
    pod = a_pod()
    pod["spec"]["containers"][0]["resources"] = given
    [main] = refused(pod)["containers"]
    names = ("cpu", "memory")
    assert main["resources"] == {
        "requests": dict(zip(names, requests, strict=True)),
        "limits": dict(zip(names, limits, strict=True)),
    }


def test_argo_s_own_containers_get_requests_and_limits_too() -> None:
    spec = refused(a_step(resources={"requests": {"cpu": "1"}}))
    for one in (*spec["containers"], *spec["initContainers"]):
        assert set(one["resources"]["limits"]) == {"cpu", "memory"}
        assert parse_quantity(one["resources"]["requests"]["cpu"]) <= parse_quantity("100m")


def test_it_goes_where_its_user_s_selectors_let_it_and_nowhere_because_of_its_rungs() -> None:
    require = "{default: {spot: require, interruptions: {max: 0}}}"
    given = a_pod(a_config(require))
    given["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
    [term] = given["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    own = {"key": "zone", "operator": "NotIn", "values": ["b"]}
    placed = list(term["matchExpressions"])
    term["matchExpressions"].append(own)
    given["spec"]["affinity"]["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
    outcome = admit_pod(given, a_config(require), AdmissionContext([past("spot-a")]), IMAGE)
    spec = apply_patch(given, outcome.patch)["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [own]}]}}
    assert spec["affinity"] == {"nodeAffinity": required}
    term["matchExpressions"] = placed
    outcome = admit_pod(given, a_config(require), AdmissionContext([past("spot-a")]), IMAGE)
    assert "affinity" not in apply_patch(given, outcome.patch)["spec"]


def past(pool: str) -> PastAttempt:
    return PastAttempt(Cause.INTERRUPTED, (pool,), pool)


def test_it_tolerates_its_pools_taints_and_what_its_user_names_and_not_everything() -> None:
    given = a_pod()
    own = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    given["spec"]["tolerations"] = [own, {"operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute"}]
    tolerations = refused(given)["tolerations"]
    assert tolerations[0] == own
    assert [one["key"] for one in tolerations[1:]] == [KEY]


def test_its_container_is_admitted_by_the_level_restricted() -> None:
    given = a_pod(securityContext={"runAsUser": 0})
    [main] = refused(given)["containers"]
    context = main["securityContext"]
    assert context["runAsUser"] == 65532
    assert (context["runAsNonRoot"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.parametrize(
    ("user", "own", "runs_as"),
    [
        (1234, {"runAsUser": 7}, 1234),
        (0, {"runAsUser": 1000680000}, 1000680000),
        (0, {"runAsUser": 0}, None),
        (0, {}, None),
    ],
)
def test_it_runs_as_the_user_that_was_set_or_as_its_own(user: int, own: dict[str, int], runs_as: int | None) -> None:
    [main] = refused(a_pod(securityContext=own), user=user)["containers"]
    assert main["securityContext"].get("runAsUser") == runs_as


def test_its_message_fits_the_termination_log_in_bytes() -> None:
    pod = a_pod()
    facts = AdmissionContext([PastAttempt(Cause.FAILED, ("spot-a",), "spot-a")] * 2000)
    after, _ = precise(pod, facts)
    text = after["spec"]["containers"][0]["env"][0]["value"]
    assert 1000 < len(text.encode()) <= 3000


def test_of_argo_it_keeps_argo_s_containers_and_its_emissary() -> None:
    spec = refused(a_step())
    first, second = spec["containers"]
    assert first["name"] == "wait"
    assert second["command"][:4] == ["/var/run/argo/argoexec", "emissary", "--", "sh"]
    assert "args" not in second
    assert {"name": "ARGO_CONTAINER_NAME", "value": "main"} in second["env"]
    assert second["volumeMounts"] == [SHARED]
    assert [one["name"] for one in spec["initContainers"]] == ["init"]
    assert [one["name"] for one in spec["volumes"]] == ["var-run-argo", "tmp"]
    assert [one["mountPath"] for one in first["volumeMounts"]] == ["/var/run/argo", TEMPORARY]


@pytest.mark.parametrize(
    ("wait", "images", "stays"),
    [
        ({}, (), True),
        ({"image": "registry.local:5000/mirror/argoexec@sha256:0123"}, (), True),
        ({}, ("quay.io/argoproj/argoexec",), True),
        ({"image": "evil/argoexec:1"}, ("quay.io/argoproj/argoexec:v3.7.3",), False),
        ({"image": "train:1"}, (), False),
        ({"image": "argoexec/train:1"}, (), False),
        ({"command": ["sh", "-c", "train"]}, (), False),
        ({"command": ["argoexec", "emissary", "--", "train"]}, (), False),
        ({"command": None, "args": ["wait"]}, (), True),
    ],
)
def test_a_container_counts_as_argo_s_by_its_image_and_its_program(
    wait: dict[str, Any], images: tuple[str, ...], *, stays: bool
) -> None:
    names = [one["name"] for one in refused(a_step(**wait), argo_images=images)["containers"]]
    assert names == (["wait", "main"] if stays else ["main"])


def test_a_pod_that_only_calls_itself_argo_s_runs_nothing_of_its_user_s() -> None:
    given = a_step()
    given["spec"]["initContainers"] = [{"name": "init", "image": "train:1", "command": ["argoexec", "init"]}]
    given["spec"]["volumes"][0] = {"name": "var-run-argo", "persistentVolumeClaim": {"claimName": "own"}}
    spec = refused(given)
    [main] = spec["containers"]
    assert main["command"][0] == "sh"
    assert {"initContainers", "volumes"}.isdisjoint(spec)
    with_a_claim = a_step()
    with_a_claim["spec"]["volumes"][0] = {"name": "var-run-argo", "persistentVolumeClaim": {"claimName": "own"}}
    spec = refused(with_a_claim)
    assert all("persistentVolumeClaim" not in one for one in spec["volumes"])
    assert all(one["name"] != "var-run-argo" for each in spec["containers"] for one in each.get("volumeMounts") or ())


def test_what_exchanges_the_program_of_argo_s_container_is_left_out() -> None:
    hostile = [{"name": "PATH", "value": "/argo/own"}, {"name": "LD_PRELOAD", "value": "/argo/own/x.so"}]
    hook = {"postStart": {"exec": {"command": ["train"]}}}
    first = refused(a_step(env=[*hostile, {"name": "ARGO_POD_NAME", "value": "p"}], lifecycle=hook))["containers"][0]
    assert first["env"] == [{"name": "ARGO_POD_NAME", "value": "p"}]
    assert "lifecycle" not in first


def test_of_an_argo_step_with_several_containers_each_says_the_message() -> None:
    given = a_step()
    wait, main = given["spec"]["containers"]
    given["spec"]["containers"] = [wait, {**main, "name": "fetch"}, {**main, "name": "train"}]
    spec = refused(given)
    assert [one["name"] for one in spec["containers"]] == ["wait", "fetch", "train", "main"]
    assert all(one["image"] == IMAGE and one["command"][3] == "sh" for one in spec["containers"][1:3])
    assert spec["containers"][3]["command"][0] == "sh"


def test_a_pod_of_another_kind_with_several_containers_keeps_the_first() -> None:
    given = a_pod()
    [main] = given["spec"]["containers"]
    given["spec"]["containers"] = [{**main, "name": "train"}, {"name": "log", "image": "log:1"}]
    assert [one["name"] for one in refused(given)["containers"]] == ["train"]


@pytest.mark.parametrize("text", ["[" * 2000, "{", '{"0": 1}', "[]", '{"-1": ["x"]}', "x" * 100_000])
def test_whatever_a_pod_says_of_its_own_conditions_it_is_refused(text: str) -> None:
    given = a_pod(a_config("{default: {spot: require, interruptions: {max: 1}}}"))
    given["metadata"]["annotations"]["spotwright.dev/own"] = text
    outcome = admit_pod(given, a_config("{default: {spot: require, interruptions: {max: 1}}}"), SPENT, IMAGE)
    assert outcome.verdict == "pod is refused"
