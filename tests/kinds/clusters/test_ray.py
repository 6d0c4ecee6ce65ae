"""Ray: the head stays on on-demand, worker groups follow the policy, and a RayJob counts its tries."""

from __future__ import annotations

from typing import Any

import pytest
from tests.placing.placed import PREFER, REQUIRE, Outcome, at_path, place, refusal

SPOT = "kubernetes.azure.com/scalesetpriority"
CONTAINERS = "containers: [{name: ray, image: ray}]"
GROUPS = "workerGroupSpecs.0.template.spec"


def a_cluster(depth: int, spec: str = "", head: str = "", worker: str = "") -> str:
    text = f"""\
headGroupSpec: {{rayStartParams: {{{head}}}, template: {{spec: {{{CONTAINERS}}}}}}}
workerGroupSpecs:
- groupName: Trials
  template: {{spec: {{{CONTAINERS}{worker}}}}}
{spec}"""
    return "".join(f"{' ' * depth}{line}\n" for line in text.splitlines())


def a_ray_cluster(metadata: str = "name: tune", **parts: str) -> str:
    return f"apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {{{metadata}}}\nspec:\n{a_cluster(2, **parts)}"


def a_ray_job(fields: str = "", metadata: str = "name: tune", version: str = "v1", **parts: str) -> str:
    head = (
        f"apiVersion: ray.io/{version}\nkind: RayJob\nmetadata: {{{metadata}}}\nspec:\n  entrypoint: python tune.py\n"
    )
    return f"{head}{fields}  rayClusterSpec:\n{a_cluster(4, **parts)}"


def a_ray_cron_job() -> str:
    inner = "".join(f"  {line}\n" for line in a_ray_job().partition("spec:\n")[2].splitlines())
    head = "apiVersion: ray.io/v1\nkind: RayCronJob\nmetadata: {name: nightly}\nspec:\n  schedule: '0 1 * * *'\n"
    return f"{head}  jobTemplate:\n{inner}"


def capacity(outcome: Outcome, path: str) -> set[str]:
    """The capacity of the pools of a role."""
    return {"spot" if pool.endswith("spot") else "on-demand" for pool in outcome.roles[path].pools}


def keys(pod: Any) -> list[str]:
    return [one["key"] for one in pod.get("tolerations", [])]


def test_the_head_is_required_on_on_demand_and_the_workers_tolerate_spot() -> None:
    outcome = place(a_ray_cluster(), REQUIRE)
    spec = outcome.value["spec"]

    assert keys(at_path(spec, "headGroupSpec.template.spec")) == []
    assert keys(at_path(spec, GROUPS)) == [SPOT]
    assert capacity(outcome, "tune/head") == {"on-demand"}
    assert outcome.roles["tune/trials"].pools == ("spot",)


@pytest.mark.parametrize("label", ["spotwright.dev/spot: require", "spotwright.dev/spot: prefer"])
def test_a_label_of_the_cluster_moves_its_workers_and_never_its_head(label: str) -> None:
    outcome = place(a_ray_cluster(f"name: tune, labels: {{{label}}}"), "{default: {timeout: 1h}}")

    assert capacity(outcome, "tune/head") == {"on-demand"}
    assert "spot" in outcome.roles["tune/trials"].pools


def test_a_head_that_the_policy_puts_on_spot_is_named_with_the_fault_tolerance_it_lacks() -> None:
    policy = "{default: {spot: prefer}, tasks: {tune/head: {spot: require}}}"
    options = "gcsFaultToleranceOptions: {redisAddress: 'redis:6379'}"
    without, protected = place(a_ray_cluster(), policy), place(a_ray_cluster(spec=options), policy)

    assert without.reports("warning", "head: it is on spot (spotwright.yaml:", "no fault tolerance")
    assert protected.reports("warning", "head: it is on spot", "Serve alone")
    assert not protected.reports("no fault tolerance")


def test_a_head_that_runs_tasks_itself_is_named() -> None:
    assert place(a_ray_cluster()).reports("note", 'set rayStartParams: {num-cpus: "0"}')
    assert not place(a_ray_cluster(head='num-cpus: "0"')).reports("rayStartParams")


def test_a_lost_worker_is_created_again_and_nothing_counts_it() -> None:
    outcome = place(a_ray_cluster(), "{default: {spot: prefer, interruptions: {max: 3}}}")

    assert "KubeRay creates the pod again" in outcome.roles["tune/trials"].after_interruption
    assert "retries are not counted" in outcome.roles["tune/trials"].after_interruption
    assert outcome.reports("tune/trials: interruptions.max", "no effect here")
    assert outcome.reports("fall_back_after has no effect", "policy.tasks (tune/GROUP)")


def test_workers_that_restart_in_place_do_not_fit_rays_autoscaler() -> None:
    scaled = "enableInTreeAutoscaling: true"

    assert place(a_ray_cluster(spec=scaled, worker=", restartPolicy: Always")).reports(
        "warning", "restartPolicy to Never"
    )
    assert not place(a_ray_cluster(spec=scaled)).reports("restartPolicy")


def test_kueue_admits_rays_autoscaler_in_elastic_jobs_alone() -> None:
    queued, scaled = "name: tune, labels: {kueue.x-k8s.io/queue-name: team}", "enableInTreeAutoscaling: true"
    elastic = f"{queued}, annotations: {{kueue.x-k8s.io/elastic-job: 'true'}}"

    assert place(a_ray_cluster(queued, spec=scaled)).reports("warning", "kueue.x-k8s.io/elastic-job")
    assert not place(a_ray_cluster(elastic, spec=scaled)).reports("elastic-job")


def test_a_job_is_tried_again_on_a_new_cluster_as_often_as_the_budgets_allow() -> None:
    policy = (
        "{default: {spot: prefer, timeout: 1h, pending_timeout: 5m, interruptions: {max: 4}, errors: {retries: 1}}}"
    )
    outcome = place(a_ray_job(), policy)

    assert (outcome.value["spec"]["backoffLimit"], outcome.value["spec"]["activeDeadlineSeconds"]) == (5, 3900)
    assert outcome.reports("warning", "backoffLimit 5 counts interruptions (4) and errors (1) together")
    assert "against backoffLimit 5" in outcome.roles["tune/trials"].after_interruption


def test_a_limit_of_the_users_stays_unless_it_is_to_be_replaced() -> None:
    text = a_ray_job("  backoffLimit: 1\n")

    assert place(text).value["spec"]["backoffLimit"] == 1
    assert place(text).reports("backoffLimit 1 stays; the policy allows 10")
    assert place(text, replace_retries=True).value["spec"]["backoffLimit"] == 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (a_ray_job("  submissionMode: InteractiveMode\n"), "KubeRay takes no backoffLimit in InteractiveMode"),
        (a_ray_job(version="v1alpha1"), "ray.io/v1alpha1 has no backoffLimit"),
    ],
)
def test_a_job_that_cannot_have_retries_gets_none(text: str, message: str) -> None:
    outcome = place(text)

    assert "backoffLimit" not in outcome.value["spec"]
    assert outcome.reports("warning", message, "is not tried again")


def test_the_tries_of_a_job_share_their_run_because_each_has_another_cluster() -> None:
    pod = at_path(place(a_ray_job()).value, f"spec.rayClusterSpec.{GROUPS}")
    env = {one["name"]: one for one in pod["containers"][0]["env"]}

    assert env["SPOTWRIGHT_RUN"]["value"] == "tune"


def test_the_submitter_stays_on_on_demand() -> None:
    outcome = place(a_ray_job(f"  submitterPodTemplate: {{spec: {{{CONTAINERS}}}}}\n"), REQUIRE)

    assert capacity(outcome, "tune/submitter") == {"on-demand"}


def test_a_job_on_a_cluster_that_exists_has_nothing_to_place() -> None:
    text = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: j}\nspec: {clusterSelector: {ray.io/cluster: tune}}\n"
    outcome = place(text)

    assert outcome.text == text
    assert outcome.reports("warning", "place that RayCluster")


def test_a_cluster_that_outlives_its_job_is_named() -> None:
    queued = "name: tune, labels: {kueue.x-k8s.io/queue-name: team}"

    assert place(a_ray_job()).reports("note", "set shutdownAfterJobFinishes: true")
    assert place(a_ray_job(metadata=queued)).reports("warning", "Kueue needs shutdownAfterJobFinishes: true")
    assert not place(a_ray_job("  shutdownAfterJobFinishes: true\n")).reports("shutdownAfterJobFinishes")


def test_a_cron_job_places_the_job_of_its_template() -> None:
    outcome = place(a_ray_cron_job(), REQUIRE)

    assert keys(at_path(outcome.value, f"spec.jobTemplate.rayClusterSpec.{GROUPS}")) == [SPOT]
    assert at_path(outcome.value, "spec.jobTemplate.backoffLimit") == 10


def a_service(labels: str = "{}", **parts: str) -> str:
    head = f"apiVersion: ray.io/v1\nkind: RayService\nmetadata: {{name: s, labels: {labels}}}\nspec:\n"
    return f"{head}  rayClusterConfig:\n{a_cluster(4, **parts)}"


def test_a_service_stays_unchanged_unless_it_asks_for_spot_itself() -> None:
    plain, asking = place(a_service()), place(a_service("{spotwright.dev/spot: prefer}"), "{default: {timeout: 1h}}")

    assert plain.reports("warning", "RayService s stays unchanged: it serves requests")
    assert keys(at_path(asking.value, f"spec.rayClusterConfig.{GROUPS}")) == [SPOT]
    assert asking.reports("warning", "keep a worker group on on-demand")
    assert asking.reports("warning", "without gcsFaultToleranceOptions")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (a_ray_cluster(spec="tolerations: []"), "it belongs under spec.workerGroupSpecs[0].template.spec.tolerations"),
        (a_ray_job("  nodeSelector: {a: b}\n"), "spec.rayClusterSpec.workerGroupSpecs[0].template.spec.nodeSelector"),
        (a_ray_cluster().replace("headGroupSpec", "head"), "expected a cluster with a headGroupSpec"),
    ],
)
def test_a_field_at_the_wrong_level_is_refused_with_the_right_path(text: str, message: str) -> None:
    assert message in refusal(text, PREFER)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        (a_ray_job().replace("name: tune", "generateName: tune-"), "replace generateName by metadata.name"),
        (a_ray_cron_job(), "let the code name its place"),
    ],
)
@pytest.mark.parametrize(("more", "level"), [(", checkpoint: 'pvc://c'", "warning"), ("", "note")])
def test_a_job_whose_tries_share_no_name_is_said_to_start_over(text: str, way: str, more: str, level: str) -> None:
    outcome = place(text, f"{{default: {{spot: prefer{more}}}}}")

    assert outcome.reports(f"{level}: a new try starts over: SPOTWRIGHT_RUN of a Ray", way)
    [effect] = [role.after_interruption for role in outcome.roles.values() if role.on_spot]
    assert effect.endswith("and starts over")


def test_a_job_with_a_name_does_not_start_over() -> None:
    assert not place(a_ray_job(), "{default: {spot: prefer, checkpoint: 'pvc://c'}}").reports("starts over")


def in_groups(text: str, worker: str = "", head: str = "") -> str:
    """A cluster with more fields of the worker group and of the head group."""
    text = text.replace(
        "- groupName: Trials\n", f"- groupName: Trials\n    {worker}\n" if worker else "- groupName: Trials\n"
    )
    return text.replace("headGroupSpec: {", f"headGroupSpec: {{{head}, " if head else "headGroupSpec: {")


MARKET_TYPES = [
    "labels: {ray.io/market-type: on-demand}",
    "rayStartParams: {labels: 'region=eu,ray.io/market-type=on-demand'}",
    """rayStartParams: {labels: '{"ray.io/market-type": "on-demand"}'}""",
]


@pytest.mark.parametrize("market", MARKET_TYPES)
def test_a_group_whose_market_type_is_on_demand_stays_there(market: str) -> None:
    outcome = place(in_groups(a_ray_cluster("name: tune, labels: {spotwright.dev/spot: require}"), market), REQUIRE)

    assert capacity(outcome, "tune/trials") == {"on-demand"}
    assert outcome.reports(
        "note: Trials: kept on on-demand, because Ray gives it the tasks that ask for on-demand nodes"
    )


def test_a_market_type_in_the_environment_counts_too() -> None:
    text = a_ray_cluster().replace(
        "template: {spec: {containers: [{name: ray, image: ray}]}}\n",
        "template: {spec: {containers: [{name: ray, image: ray, env: [{name: RAY_NODE_MARKET_TYPE, value: on-demand}]}]}}\n",
    )

    assert capacity(place(text, REQUIRE), "tune/trials") == {"on-demand"}


def test_a_group_of_spot_nodes_is_placed_as_the_policy_says_without_a_word() -> None:
    outcome = place(in_groups(a_ray_cluster(), "labels: {ray.io/market-type: spot}"), REQUIRE)

    assert capacity(outcome, "tune/trials") == {"spot"}
    assert not outcome.reports("Ray gives it")


@pytest.mark.parametrize(
    ("policy", "worker", "head", "message"),
    [
        (
            "{default: {spot: prefer}, tasks: {tune/trials: {spot: require}}}",
            "labels: {ray.io/market-type: on-demand}",
            "",
            "Trials: it is on spot (spotwright.yaml:8), and Ray gives it the tasks that ask for on-demand nodes",
        ),
        (
            "{default: {spot: never}}",
            "labels: {ray.io/market-type: spot}",
            "",
            "Trials: it is on on-demand (spotwright.yaml:8), and Ray gives it the tasks that ask for spot nodes",
        ),
        (
            REQUIRE,
            "",
            "labels: {ray.io/market-type: spot}",
            "head: it is on on-demand (it holds the state of the cluster",
        ),
    ],
)
def test_a_market_type_that_is_not_that_of_the_nodes_is_named(
    policy: str, worker: str, head: str, message: str
) -> None:
    assert place(in_groups(a_ray_cluster(), worker, head), policy).reports("warning", message)


def test_without_a_policy_nothing_is_said_of_market_types() -> None:
    outcome = place(
        in_groups(a_ray_cluster(), "labels: {ray.io/market-type: on-demand}"), "{tasks: {other: {spot: prefer}}}"
    )

    assert not outcome.reports("market")
