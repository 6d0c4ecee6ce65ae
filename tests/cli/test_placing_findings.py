"""The findings of place: patterns that match nothing, grace periods that are cut, advice that the provider can follow."""

from __future__ import annotations

import pytest
from tests import plain_yaml
from tests.e2e.project import Done, Project

from spotwright.cli import SUCCEEDED

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "python:3.11"}]
"""
CONFIG = """\
pools:
  spotpool: {capacity: spot, provider: PROVIDER}
  agentpool: {capacity: on-demand, provider: PROVIDER}
policy:
  default: POLICY
"""


def placed(project: Project, policy: str, *options: str, provider: str = "aks", text: str = JOB) -> Done:
    project.config(CONFIG.replace("PROVIDER", provider).replace("POLICY", policy))
    (project.folder / "job.yaml").write_text(text)
    done = project.here("place", "job.yaml", *options)
    assert done.code == SUCCEEDED, done.err
    return done


def test_a_misspelt_pattern_is_a_warning_with_the_nearest_name(project: Project) -> None:
    done = placed(project, '{spot: prefer}\n  tasks: {"**/trian*": {timeout: 1h}}')

    assert (
        "spotwright.yaml:7: warning: policy.tasks '**/trian*' matches no placed task: did you mean 'train'?" in done.err
    )


def test_a_pattern_for_other_files_is_a_note_and_one_that_matches_is_silent(project: Project) -> None:
    done = placed(project, '{spot: prefer}\n  tasks: {deploy: {spot: never}, "tr*": {timeout: 1h}}')

    assert "spotwright.yaml:7: note: policy.tasks 'deploy' matches no placed task\n" in done.err
    assert "tr*" not in done.err


def test_explain_names_a_pattern_that_matches_nothing_too(project: Project) -> None:
    placed(project, "{spot: prefer}\n  tasks: {trian: {timeout: 1h}}")

    assert "did you mean 'train'?" in project.here("explain", "job.yaml").out


def test_a_grace_period_of_the_policy_that_is_cut_is_a_warning_with_its_source(project: Project) -> None:
    done = placed(project, "{spot: require, grace_period: 60s}")

    assert "terminationGracePeriodSeconds: 25" in done.out
    text = (
        "job: the grace period of 60s (spotwright.yaml:6) is cut to 25s: the shortest notice of its spot pools is 30s"
    )
    assert f"job.yaml:6: warning: {text}" in done.err


def test_the_default_grace_period_that_is_cut_is_a_note(project: Project) -> None:
    assert "note: job: the grace period of 30s (built in) is cut to 25s" in placed(project, "{spot: require}").err


@pytest.mark.parametrize("provider", ["eks", "karpenter"])
def test_a_grace_period_within_the_notice_is_no_finding(project: Project, provider: str) -> None:
    assert "grace period" not in placed(project, "{spot: require, grace_period: 60s}", provider=provider).err


def test_gke_is_advised_a_compute_class_and_no_expander(project: Project) -> None:
    done = placed(project, "{spot: prefer}", provider="gke")

    assert "use a ComputeClass with spot first (GKE's autoscaler has no priority expander)" in done.err
    assert "expander 'priority'" not in done.err
    assert "cluster-autoscaler-priority-expander" not in project.here("explain", "job.yaml").out


def test_the_expander_of_a_mixed_cluster_lists_no_pool_of_gke(project: Project) -> None:
    (project.folder / "job.yaml").write_text(JOB)
    project.config(
        "pools:\n  near: {capacity: spot, provider: aks}\n  base: {capacity: on-demand, provider: aks}\n"
        "  far: {capacity: spot, provider: gke}\npolicy: {default: {spot: prefer}}\n"
    )
    text = project.here("explain", "job.yaml").out

    assert "- ^aks-near-.*" in text
    assert ".*far.*" not in text


IGNORED = JOB.replace(
    "  template:",
    "  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}]}\n  template:",
)


def action(done: Done) -> str:
    """The action of the Job's first failure rule."""
    return str(plain_yaml.load(done.out)["spec"]["podFailurePolicy"]["rules"][0]["action"])


def test_replace_retries_without_a_bound_leaves_the_rule_and_says_so(project: Project) -> None:
    done = placed(project, "{spot: require}", "--replace-retries", text=IGNORED)

    assert action(done) == "Ignore"
    assert (
        "give the policy a timeout, or set activeDeadlineSeconds (without it --replace-retries leaves this rule)"
        in done.err
    )


def test_replace_retries_without_a_bound_leaves_the_restart_policy_and_says_so(project: Project) -> None:
    text = JOB.replace("restartPolicy: Never", "restartPolicy: OnFailure")
    done = placed(project, "{spot: require}", "--replace-retries", text=text)

    assert "restartPolicy: OnFailure" in done.out
    assert (
        "--replace-retries changes it only with a bound: give the policy a timeout, or set activeDeadlineSeconds"
        in done.err
    )


def test_replace_retries_with_a_bound_replaces_the_restart_policy(project: Project) -> None:
    text = JOB.replace("restartPolicy: Never", "restartPolicy: OnFailure")
    done = placed(project, "{spot: require, timeout: 1h}", "--replace-retries", text=text)

    assert action(done) == "Ignore"
    assert "restartPolicy: Never" in done.out


def test_only_takes_several_groups_of_changes_and_names_them_if_it_is_misspelt(project: Project) -> None:
    done = placed(project, "{spot: require, checkpoint: /ckpt}", "--only", "placement", "--only", "checkpoint")
    wrong = project.here("place", "job.yaml", "--only", "affinity")

    assert "tolerations:" in done.out
    assert "SPOTWRIGHT_CHECKPOINT" in done.out
    assert "backoffLimit" not in done.out
    assert wrong.code == 2
    assert "'placement', 'retries', 'checkpoint'" in wrong.err
