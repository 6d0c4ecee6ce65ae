"""A ResourceQuota beside the work: which pods it refuses, and how many it holds at once."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in

from spotwright.linter.rule import job

_REFUSES, _GANG, _FEWER = "quota-refuses-pods", "gang-larger-than-quota", "quota-holds-fewer-pods"


def quota(hard: str, more: str = "", namespace: str = "") -> str:
    metadata = f"{{name: team{f', namespace: {namespace}' if namespace else ''}}}"
    return f"apiVersion: v1\nkind: ResourceQuota\nmetadata: {metadata}\nspec:\n  hard: {{{hard}}}\n{more}---\n"


def work(resources: str = "", spec: str = "", pod: str = "") -> str:
    return job(pod, spec=spec, container=f"resources: {{{resources}}}\n" if resources else "")


def found(text: str) -> dict[str, str]:
    return {one.rule: one.text for one in found_in(text) if one.rule in (_REFUSES, _GANG, _FEWER)}


@pytest.mark.parametrize(
    ("hard", "resources", "missing"),
    [
        ("cpu: 8", "", "cpu"),
        ("requests.cpu: 8", "requests: {memory: 1Gi}", "requests.cpu"),
        ("requests.cpu: 8", "limits: {cpu: 1}", ""),
        ("limits.cpu: 8", "requests: {cpu: 1}", "limits.cpu"),
        ("limits.memory: 8Gi, limits.cpu: 8", "limits: {cpu: 1}", "limits.memory"),
        ("limits.memory: 8Gi, limits.cpu: 8", "", "limits.cpu, limits.memory"),
        ("requests.nvidia.com/gpu: 4", "", ""),
        ("requests.storage: 1Ti, persistentvolumeclaims: 4, services: 1", "", ""),
    ],
)
def test_a_quota_of_cpu_or_memory_refuses_containers_that_do_not_state_it(
    hard: str, resources: str, missing: str
) -> None:
    text = found(quota(hard) + work(resources)).get(_REFUSES, "")
    assert (f" does not state {missing}: main" in text) if missing else not text


def test_what_a_limit_range_gives_is_stated() -> None:
    given = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: r}\nspec: {limits: [{type: Container, default: {cpu: 1}}]}\n---\n"
    assert _REFUSES in found(quota("limits.cpu: 8") + work())
    assert _REFUSES not in found(quota("limits.cpu: 8") + given + work())


def test_an_init_container_has_to_state_it_too() -> None:
    first = "initContainers: [{name: first, image: i}]\n"
    text = found(quota("cpu: 8") + work("requests: {cpu: 1}", pod=first))[_REFUSES]
    assert text == "Job train: ResourceQuota team refuses pods with a container that does not state cpu: first"


@pytest.mark.parametrize(
    ("hard", "resources", "said"),
    [
        (
            "requests.nvidia.com/gpu: 4",
            "limits: {nvidia.com/gpu: 8}",
            "allows 4 nvidia.com/gpu, and one pod has 8 nvidia.com/gpu",
        ),
        ("requests.nvidia.com/gpu: 8", "limits: {nvidia.com/gpu: 8}", ""),
        (
            "limits.memory: 4Gi",
            "limits: {memory: 8Gi}",
            "allows 4Gi memory of limits, and one pod has 8Gi memory of limits",
        ),
        ("limits.memory: 8Gi", "limits: {memory: 8Gi}", ""),
        ("pods: 0", "", "allows no pods"),
        ("cpu: '{{ .Values.cpu }}'", "requests: {cpu: 90}", ""),
    ],
)
def test_one_pod_that_is_larger_than_the_quota_is_never_made(hard: str, resources: str, said: str) -> None:
    text = found(quota(hard) + work(resources)).get(_REFUSES, "")
    assert text == (f"Job train: ResourceQuota team {said}" if said else "")


def test_a_quota_is_of_its_namespace_alone() -> None:
    here = work().replace("  name: train\n", "  name: train\n  namespace: a\n")
    assert _REFUSES in found(quota("cpu: 8", namespace="a") + here)
    assert _REFUSES not in found(quota("cpu: 8", namespace="b") + here)
    assert _REFUSES not in found(quota("cpu: 8", namespace="b") + work())


@pytest.mark.parametrize(
    ("scope", "pod", "counts"),
    [
        ("scopes: [Terminating]", "", False),
        ("scopes: [Terminating]", "activeDeadlineSeconds: 60\n", True),
        ("scopes: [NotTerminating]", "", True),
        ("scopes: [BestEffort]", "", True),
        ("scopes: [NotBestEffort]", "", False),
        ("scopes: [CrossNamespacePodAffinity]", "", False),
        ("scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [low]}]}", "", False),
        (
            "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [low]}]}",
            "priorityClassName: low\n",
            True,
        ),
        ("scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: DoesNotExist}]}", "", True),
    ],
)
def test_a_quota_counts_the_pods_of_its_scopes(scope: str, pod: str, *, counts: bool) -> None:
    assert (_REFUSES in found(quota("pods: 0", f"  {scope}\n") + work(pod=pod))) is counts


def test_more_pods_than_the_quota_holds_are_made_one_after_another() -> None:
    text = quota("requests.cpu: 8") + work("requests: {cpu: 3}", spec="parallelism: 5\n")
    assert found(text) == {
        _FEWER: "Job train has 5 pods at once, and ResourceQuota team holds 2: the others are made as these end"
    }
    assert found(text.replace("parallelism: 5", "parallelism: 2")) == {}


@pytest.mark.parametrize(("least", "is_found"), [(5, True), (2, False)])
def test_a_gang_needs_as_many_as_it_says(least: int, *, is_found: bool) -> None:
    gang = (
        f"apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: g}}\nspec:\n  minAvailable: {least}\n  tasks:\n"
        "  - name: w\n    replicas: 5\n    template: {spec: {containers: [{name: m, image: x}]}}\n"
    )
    assert (found(quota("pods: 4") + gang) == {}) is not is_found
    if is_found:
        assert found(quota("pods: 4") + gang)[_GANG].endswith("and ResourceQuota team holds 4 at most")


def test_a_quota_with_a_quantity_that_cannot_be_read_is_named() -> None:
    [text] = [one.text for one in found_in(quota("requests.cpu: abc") + work()) if "ResourceQuota" in one.text]
    assert text.startswith(
        "ResourceQuota team does not apply to pods, because it cannot be read: spec.hard.requests.cpu: 'abc'"
    )
