"""The preStop hook in pods of Argo, of KFP and of gangs: which pods get it, its content, and the user's own hooks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripts.make_grace_page import RESULTS, table
from tests.cluster.admission_objects import a_config
from tests.cluster.admitted_pods import PREFER, SPENT, a_pod, precise, variables

from spotwright.cluster.admit_pods import FOLDER, hook_script

SPOT = "{default: {spot: require, grace_period: 20s}}"


def argo_pod(*beside: dict[str, Any], policy: str = SPOT) -> dict[str, Any]:
    """A pod as Argo makes it: the task's container, the containers ``beside``, and Argo's own."""
    pod = a_pod(a_config(policy))
    pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"] = "run.root.train"
    pod["spec"]["containers"] += [*beside, {"name": "wait", "image": "argoexec"}]
    return pod


def gang_pod(label: str) -> dict[str, Any]:
    """A pod of a training whose pods are one group, which its controller has labelled."""
    pod = a_pod(a_config(SPOT))
    pod["metadata"].setdefault("labels", {})[label] = "training"
    return pod


@pytest.mark.parametrize("collector", ["StdOut", "Push"])
def test_a_pod_of_a_katib_trial_gets_the_hook_where_a_shell_keeps_sigterm_from_its_code(collector: str) -> None:
    pod = a_pod(a_config(SPOT))
    if collector == "StdOut":  # as katib v0.19.0 makes it, pkg/webhook/v1beta1/pod/utils.go
        wrapped = "python3 train.py 1>/var/log/katib/metrics.log 2>&1 && echo completed > /var/log/katib/$$$$.pid"
        pod["spec"]["containers"][0] |= {"command": ["sh", "-c"], "args": [wrapped]}
        pod["spec"]["containers"].append({"name": "metrics-logger-and-collector", "image": "collector"})
    assert bool(hooks(graced(pod))["main"]) == (collector == "StdOut")


def graced(pod: dict[str, Any]) -> dict[str, Any]:
    return precise(pod, config=a_config(SPOT))[0]


def hooks(pod: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("lifecycle", {}).get("preStop") for one in pod["spec"]["containers"]}


def test_the_main_container_gets_the_hook_and_argo_s_own_does_not() -> None:
    pod = graced(argo_pod())
    assert hooks(pod) == {"main": {"exec": {"command": ["sh", "-c", hook_script(18)]}}, "wait": None}
    assert pod["spec"]["terminationGracePeriodSeconds"] == 20
    assert pod["spec"]["volumes"] == [{"name": "spotwright-grace", "emptyDir": {}}]


def test_the_code_finds_the_folder_and_the_notice() -> None:
    pod = graced(argo_pod())
    found = variables(pod)
    assert found["SPOTWRIGHT_GRACE_FOLDER"] == FOLDER
    assert found["SPOTWRIGHT_NOTICE_FILE"] == f"{FOLDER}/notice"
    assert pod["spec"]["containers"][0]["volumeMounts"][-1] == {
        "name": "spotwright-grace",
        "mountPath": FOLDER,
        "subPath": "main",
    }


def test_each_container_of_the_task_has_a_folder_of_its_own() -> None:
    other = {"name": "beside", "image": "x:1", "env": [{"name": "SPOTWRIGHT_TASK", "value": "train"}]}
    pod = graced(argo_pod(other))
    mounts = [one["volumeMounts"][-1]["subPath"] for one in pod["spec"]["containers"][:2]]
    assert mounts == ["main", "beside"]
    assert len(pod["spec"]["volumes"]) == 1


def test_pods_of_other_kinds_have_their_grace_period_after_sigterm() -> None:
    assert hooks(graced(a_pod(a_config(SPOT)))) == {"main": None}


@pytest.mark.parametrize("label", ["jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name"])
def test_pods_that_train_together_get_the_hook_and_know_their_grace_after_sigterm(label: str) -> None:
    pod = graced(gang_pod(label))
    assert hooks(pod) == {"main": {"exec": {"command": ["sh", "-c", hook_script(18)]}}}
    found = variables(pod)
    assert (found["SPOTWRIGHT_GRACE_FOLDER"], found["SPOTWRIGHT_GRACE"]) == (FOLDER, "20")


def test_a_hook_of_the_user_s_stays_in_a_gang() -> None:
    given = gang_pod("jobset.sigs.k8s.io/jobset-name")
    own = {"preStop": {"exec": {"command": ["true"]}}}
    given["spec"]["containers"][0]["lifecycle"] = own
    assert graced(given)["spec"]["containers"][0]["lifecycle"] == own


def test_a_hook_of_the_user_s_stays_and_its_user_is_told() -> None:
    own = {"preStop": {"httpGet": {"port": 80}}, "postStart": {"exec": {"command": ["true"]}}}
    given = argo_pod()
    given["spec"]["containers"][0]["lifecycle"] = own
    pod, outcome = precise(given, config=a_config(SPOT))
    assert pod["spec"]["containers"][0]["lifecycle"] == own
    assert "SPOTWRIGHT_GRACE_FOLDER" not in variables(pod)
    assert outcome.warnings == [
        (
            "spotwright: container main has its own preStop hook, which Spotwright keeps: its code gets no time to save before"
            " SIGTERM"
        )
    ]


def test_another_handler_of_the_user_s_stays_beside_the_hook() -> None:
    given = argo_pod()
    given["spec"]["containers"][0]["lifecycle"] = {"postStart": {"exec": {"command": ["true"]}}}
    assert set(graced(given)["spec"]["containers"][0]["lifecycle"]) == {"postStart", "preStop"}


def test_a_notice_file_of_the_user_s_is_left() -> None:
    given = argo_pod()
    given["spec"]["containers"][0]["env"].append({"name": "SPOTWRIGHT_NOTICE_FILE", "value": "/own"})
    assert variables(graced(given))["SPOTWRIGHT_NOTICE_FILE"] == "/own"


@pytest.mark.parametrize("spec", [{"terminationGracePeriodSeconds": 2}, {"os": {"name": "windows"}}])
def test_pods_without_the_time_or_the_shell_get_no_hook(spec: dict[str, Any]) -> None:
    given = argo_pod()
    given["spec"] |= spec
    assert hooks(graced(given))["main"] is None


def test_a_second_look_adds_nothing() -> None:
    pod = graced(argo_pod())
    assert graced(pod) == pod


def test_a_refused_pod_has_no_hook() -> None:
    pod, outcome = precise(argo_pod(policy=PREFER), SPENT)
    assert outcome.verdict == "pod is refused"
    assert set(hooks(pod).values()) == {None}


def test_the_table_counts_every_pod_that_was_measured() -> None:
    rows = [line.split(" | ") for line in table().splitlines() if line.startswith("| ")][1:]
    trials = json.loads(RESULTS.read_text(encoding="utf-8"))["trials"]

    assert sum(int(row[4]) for row in rows) == sum(len(trial["moments"]) for trial in trials)
