"""Pods of a run that was created while the webhook was down are placed one by one, by the policy of their role."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_job, a_jobset, admitted, owned_by
from tests.cluster.admitted_pods import PREFER, conditions, taken, variables
from tests.cluster.json_patches import apply_patch
from tests.cluster.kfp_workflows import a_workflow
from tests.cluster.trainjobs import RUNTIME, TRAINJOB
from tests.cluster.webhook_servers import Cluster, a_certificate, mutate, serving

from spotwright.cluster import admission_server
from spotwright.cluster.admit_objects import Outcome
from spotwright.cluster.admit_pods import AdmissionContext, admit_pod
from spotwright.cluster.admit_unplaced import is_of_a_run, place_at_pod, why_unplaced_retries
from spotwright.config import Config

POOL = "kubernetes.azure.com/agentpool"
NODE_NAME = "workflows.argoproj.io/node-name"
Object = dict[str, Any]


def live(data: Object, *owners: Object, uid: str = "1") -> Object:
    """The object as the API server has it."""
    metadata = {"namespace": "team-a", "uid": uid, **data["metadata"]}
    if owners:
        metadata["ownerReferences"] = [reference(owners[0])]
    return {**copy.deepcopy(data), "metadata": metadata}


def reference(owner: Object) -> Object:
    meta = owner["metadata"]
    names = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**names, "controller": True}


def pod_of(owner: Object, spec: Object | None = None, **metadata: Any) -> Object:
    """The pod that a controller makes, with the defaults of the API server."""
    spec = spec or {"containers": [{"name": "main", "image": "train:1"}], "restartPolicy": "Never"}
    spec = {"terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler", **copy.deepcopy(spec)}
    metadata = {"generateName": f"{owner['metadata']['name']}-", "namespace": "team-a", **metadata}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "ownerReferences": [reference(owner)]},
        "spec": spec,
    }


def placed(pod: Object, *owners: Object, config: Config | None = None, beside: tuple[Object, ...] = ()) -> Outcome:
    before = copy.deepcopy((pod, owners))
    outcome = place_at_pod(pod, owners, config or a_config(PREFER), beside)
    assert (pod, owners) == before
    if outcome.placed is not None:
        applied = apply_patch(pod, outcome.patch)
        assert applied["metadata"] == outcome.placed["metadata"]
    return outcome


def policy_in(outcome: Outcome) -> Object:
    assert outcome.placed is not None, outcome
    policy: Object = json.loads(outcome.placed["metadata"]["annotations"]["spotwright.dev/policy"])
    return policy


def test_a_pod_of_a_job_gets_what_the_job_would_have_given_it() -> None:
    job = live(a_job())
    outcome = placed(pod_of(job), job)
    template = admitted(a_job(), a_config(PREFER))[0]["spec"]["template"]
    assert outcome.placed is not None
    pod = outcome.placed
    for name in ("tolerations", "affinity"):
        assert pod["spec"][name] == template["spec"][name]
    assert pod["spec"]["containers"][0]["env"] == template["spec"]["containers"][0]["env"]
    assert template["metadata"]["annotations"].items() <= pod["metadata"]["annotations"].items()


def test_the_pod_is_made_precise_and_says_which_retries_hold() -> None:
    job = live(a_job(backoffLimit=2, podFailurePolicy={"rules": []}))
    pod = placed(pod_of(job), job).placed
    assert pod is not None
    own = why_unplaced_retries(job)
    made = apply_patch(dict(pod), admit_pod(pod, a_config(PREFER), taken("spot-a"), "refusal:1", own).patch)
    assert conditions(made)[POOL] == ["spot-b"]
    annotations = made["metadata"]["annotations"]
    assert annotations["spotwright.dev/attempt"] == "2"
    assert annotations["spotwright.dev/why"].endswith(
        "; Job train was created while the webhook was down, so its own retries (backoffLimit 2, podFailurePolicy) limit it "
        "instead of the policy's budgets"
    )
    assert variables(made)["SPOTWRIGHT_ATTEMPT"] == "2"


def test_it_is_never_refused_because_nothing_in_its_owner_would_end_it() -> None:
    job = live(a_job())
    pod = placed(pod_of(job), job).placed
    assert pod is not None
    spent = taken("spot-a", "spot-b", "regular", "regular")
    assert admit_pod(pod, a_config(PREFER), spent, "refusal:1").verdict == "pod is refused"
    outcome = admit_pod(pod, a_config(PREFER), spent, "refusal:1", why_unplaced_retries(job))
    assert outcome.verdict == "pod is admitted"


def test_the_policy_of_the_task_and_that_of_the_object_count() -> None:
    job = live(a_job())
    by_name = a_config("{default: {spot: prefer}, tasks: {train: {spot: never}}}")
    assert policy_in(placed(pod_of(job), job, config=by_name))["spot"] == "never"
    job["metadata"]["labels"] = {"spotwright.dev/spot": "require"}
    assert policy_in(placed(pod_of(job), job, config=a_config("{}")))["spot"] == "require"


def marked(data: Object, **annotations: str) -> Object:
    meta = {**data["metadata"], "annotations": {f"spotwright.dev/{key}": value for key, value in annotations.items()}}
    return {**data, "metadata": meta}


def with_a_placed_template(job: Object) -> Object:
    job = copy.deepcopy(job)
    job["spec"]["template"]["metadata"] = {"annotations": {"spotwright.dev/policy": '{"spot":"never"}'}}
    return job


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda job: marked(job, admitted="{}"), "placed already"),
        (lambda job: marked(job, ignore="true"), "is marked to be ignored"),
        (with_a_placed_template, "placed already"),
        (lambda job: {**job, "apiVersion": "batch/v1beta9"}, "version is not supported"),
    ],
)
def test_the_pods_of_these_jobs_are_left_alone(change: Any, verdict: str) -> None:
    job = change(live(a_job()))
    assert placed(pod_of(job), job).verdict == verdict


def test_nothing_is_placed_without_a_policy_without_owners_and_in_a_queue() -> None:
    job = live(a_job())
    assert placed(pod_of(job), job, config=a_config("{}")).placed is None
    assert placed(pod_of(job)).verdict == "its owner cannot be read"
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    assert placed(pod_of(job), job).verdict == "is in a queue of Kueue"


def test_a_pod_that_no_pool_fits_stays_as_it_is_and_its_creator_is_told() -> None:
    job = live(a_job())
    job["spec"]["template"]["spec"]["nodeSelector"] = {"nobody": "has-it"}
    outcome = placed(pod_of(job, job["spec"]["template"]["spec"]), job)
    assert (outcome.verdict, outcome.patch) == ("cannot be placed", ())
    assert "fits no pool" in outcome.warnings[0]


def test_a_hook_of_a_release_stays_on_on_demand() -> None:
    job = live(a_job())
    job["metadata"]["annotations"] = {"helm.sh/hook": "pre-upgrade"}
    assert policy_in(placed(pod_of(job), job))["spot"] == "never"


def test_a_pod_of_a_set_has_the_role_of_its_replicated_job() -> None:
    jobs = a_jobset()
    node = jobs["spec"]["replicatedJobs"][0]
    jobs["spec"]["replicatedJobs"] = [node, {**copy.deepcopy(node), "name": "leader"}]
    whole, spots = live(jobs, uid="2"), {}
    for name in ("node", "leader"):
        job = live({**a_job(), "metadata": {"name": f"train-{name}-0"}}, whole)
        labels = {"jobset.sigs.k8s.io/replicatedjob-name": name, "jobset.sigs.k8s.io/jobset-name": "train"}
        spots[name] = policy_in(placed(pod_of(job, labels=labels), job, whole))["spot"]
    assert spots == {"node": "prefer", "leader": "never"}


def test_a_pod_of_a_train_job_has_the_policy_of_the_train_job() -> None:
    train = live(TRAINJOB, uid="3")
    whole = live(a_jobset(), train, uid="2")
    job = live({**a_job(), "metadata": {"name": "train-node-0"}}, whole)
    pod = pod_of(job, labels={"jobset.sigs.k8s.io/replicatedjob-name": "node"})
    assert policy_in(placed(pod, job, whole, train, beside=(RUNTIME,)))["spot"] == "require"


def a_training_job() -> Object:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
    roles = {name: {"replicas": 1, "template": template} for name in ("Master", "Worker")}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {"pytorchReplicaSpecs": roles},
    }


def test_the_master_of_a_training_job_stays_on_on_demand_and_its_worker_does_not() -> None:
    job = live(a_training_job())
    spots = [
        policy_in(placed(pod_of(job, labels={"training.kubeflow.org/replica-type": role}), job))["spot"]
        for role in ("master", "worker")
    ]
    assert spots == ["never", "prefer"]


def an_argo_pod(workflow: Object, template: str, node: str, **metadata: Any) -> Object:
    variable = {"name": "ARGO_TEMPLATE", "value": json.dumps({"name": template})}
    containers = [{"name": "wait", "image": "argoexec:1"}, {"name": "main", "image": "train:1", "env": [variable]}]
    spec = {"containers": containers, "restartPolicy": "Never"}
    return pod_of(workflow, spec, annotations={NODE_NAME: node}, **metadata)


def test_a_pod_of_a_workflow_has_the_role_of_its_template() -> None:
    templates = [{"name": name, "container": {"image": "train:1"}} for name in ("train", "tidy")]
    spec = {"entrypoint": "train", "onExit": "tidy", "templates": templates}
    metadata = {"name": "mnist-7"}
    workflow = live({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec})
    train = placed(an_argo_pod(workflow, "train", "mnist-7(1)"), workflow)
    again = placed(an_argo_pod(workflow, "train", "mnist-7(2)"), workflow)
    assert policy_in(train)["spot"] == "prefer"
    assert policy_in(placed(an_argo_pod(workflow, "tidy", "mnist-7.onExit"), workflow))["spot"] == "never"
    assert placed(an_argo_pod(workflow, "agent", "mnist-7.http"), workflow).placed is None
    assert train.placed is not None
    assert again.placed is not None
    env = {one["name"]: one.get("value") for one in train.placed["spec"]["containers"][1]["env"]}
    assert (env["SPOTWRIGHT_RUN"], env["SPOTWRIGHT_TASK"]) == ("mnist-7", "mnist-7/train")
    assert len(env["SPOTWRIGHT_INDEX"]) == 12
    assert train.placed["spec"]["containers"] == again.placed["spec"]["containers"], "one place for all attempts"


def test_of_a_pipeline_the_tasks_are_placed_and_the_drivers_are_not() -> None:
    workflow = a_workflow("train", "test")
    workflow["metadata"]["name"] = "mnist-7"
    workflow = live(workflow)
    label = {"pipeline/runid": "1-2"}
    config = a_config("{default: {spot: prefer}, tasks: {test: {spot: require}}}")
    spots = {
        name: policy_in(
            placed(
                an_argo_pod(workflow, "system-container-impl", f"mnist-7.root.{name}.executor(0)", labels=label),
                workflow,
                config=config,
            )
        )["spot"]
        for name in ("train", "test")
    }
    assert spots == {"train": "prefer", "test": "require"}
    driver = an_argo_pod(workflow, "system-container-driver", "mnist-7.root.train-driver", labels=label)
    assert placed(driver, workflow, config=config).placed is None


def test_only_pods_of_runs_without_a_policy_are_looked_at() -> None:
    job = live(a_job())
    assert is_of_a_run(pod_of(job))
    assert not is_of_a_run(pod_of(job, annotations={"spotwright.dev/policy": "{}"}))
    assert not is_of_a_run(pod_of(job, annotations={"spotwright.dev/ignore": "true"}))
    for api_version, kind in (("apps/v1", "ReplicaSet"), ("apps/v1", "DaemonSet"), ("apps/v1", "StatefulSet")):
        assert not is_of_a_run(owned_by(pod_of(job), api_version, kind, "web"))
    assert not is_of_a_run(owned_by(pod_of(job), "batch.volcano.sh/v1alpha1", "Job", "other"))
    assert not is_of_a_run(owned_by(pod_of(job), "tekton.dev/v1", "TaskRun", "step"))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come as late as a busy machine makes them."""
    for limit in ("ANSWER_AFTER", "LOOK_UP", "FACTS"):
        monkeypatch.setattr(admission_server, limit, 60.0)


class Counting(Cluster):
    """A cluster that counts for how many pods the facts were asked."""

    asked = 0

    async def find_facts(self, request: Any) -> AdmissionContext:
        self.asked += 1
        return await super().find_facts(request)


def test_the_webhook_reads_the_owners_and_asks_for_facts_only_where_it_places(tmp_path: Path) -> None:
    certificate = a_certificate(tmp_path)
    job = live(a_job())
    other = live({**a_job(), "metadata": {"name": "other", "annotations": {"spotwright.dev/admitted": "{}"}}}, uid="2")
    lost = live({**a_job(), "metadata": {"name": "lost"}}, uid="3")
    cluster = Counting(job, other, facts=taken("spot-a"))

    async def scenario() -> None:
        async with serving(certificate, cluster) as (session, address):
            pod = pod_of(job)
            answer = await mutate(session, address, pod)
            made = apply_patch(pod, json.loads(base64.b64decode(answer["patch"])))
            assert conditions(made)[POOL] == ["spot-b"]
            assert made["metadata"]["annotations"]["spotwright.dev/attempt"] == "2"
            for left in (other, lost, live(a_job(), uid="9")):  # the last one was replaced by another of its name
                assert "patch" not in await mutate(session, address, pod_of(left))
            assert cluster.asked == 1

    asyncio.run(scenario())


def test_owners_may_come_as_late_as_a_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy API server answers after seconds: without its owners, the next pod would be left unplaced like the previous one."""
    monkeypatch.setattr(admission_server, "LOOK_UP", 0.05)
    job = live(a_job())

    async def scenario() -> None:
        cluster = Cluster(job, facts=taken("spot-a"), delay=0.5)
        async with serving(a_certificate(tmp_path), cluster) as (session, address):
            assert "patch" in await mutate(session, address, pod_of(job))

    asyncio.run(scenario())
