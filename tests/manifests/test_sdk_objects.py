"""Objects of the Kubeflow SDKs, by the real packages: placed ones keep their type, and unplaced ones equal the original."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

import spotwright as spot

SPOT = "kubernetes.azure.com/scalesetpriority"
POLICY: dict[str, Any] = {
    "target": {"trainer": "2.3"},
    "pools": {
        "spotpool": {"capacity": "spot", "provider": "aks"},
        "agentpool": {"capacity": "on-demand", "provider": "aks"},
    },
    "policy": {"default": {"spot": "require", "timeout": "1h"}},
}
JOBS = {
    "PyTorchJob": ("pytorch", ("Master", "Worker")),
    "TFJob": ("tf", ("PS", "Worker")),
    "XGBoostJob": ("xgb", ("Master", "Worker")),
    "PaddleJob": ("paddle", ("Worker",)),
    "JAXJob": ("jax", ("Worker",)),
    "MPIJob": ("mpi", ("Launcher", "Worker")),
}
CONTAINERS = {"tf": "tensorflow", "xgb": "xgboost"}
TRIAL = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "t", "image": "i"}]}}},
}
EXPERIMENT = {
    "apiVersion": "kubeflow.org/v1beta1",
    "kind": "Experiment",
    "metadata": {"name": "e"},
    "spec": {
        "maxTrialCount": 2,
        "trialTemplate": {"trialParameters": [{"name": "lr", "reference": "lr"}], "trialSpec": TRIAL},
    },
}

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def sdk(module: str, package: str) -> Any:
    """A package that pins other versions of what this project needs, where somebody has installed it."""
    why = f"{module} is not installed: pip install {package} in an environment of its own"
    return pytest.importorskip(module, reason=why, exc_type=ImportError)


def training() -> Any:
    return sdk("kubeflow.training", "kubeflow-training==1.9.4")


def a_job(models: Any, kind: str) -> Any:
    prefix, roles = JOBS[kind]
    pod = client.V1PodSpec(containers=[client.V1Container(name=CONTAINERS.get(prefix, prefix), image="i")])
    template = client.V1PodTemplateSpec(spec=pod)
    specs = {role: models.KubeflowOrgV1ReplicaSpec(replicas=1, template=template) for role in roles}
    spec = getattr(models, f"KubeflowOrgV1{kind}Spec")(
        run_policy=models.KubeflowOrgV1RunPolicy(), **{f"{prefix}_replica_specs": specs}
    )
    metadata = client.V1ObjectMeta(name="mnist")
    return getattr(models, f"KubeflowOrgV1{kind}")(
        api_version="kubeflow.org/v1", kind=kind, metadata=metadata, spec=spec
    )


@pytest.mark.parametrize("kind", JOBS)
def test_a_model_of_the_training_operators_sdk_is_placed_as_one(kind: str) -> None:
    job = a_job(training(), kind)
    placed = spot.place(job, POLICY)
    worker = getattr(placed.spec, f"{JOBS[kind][0]}_replica_specs")["Worker"]

    assert type(placed) is type(job)
    assert worker.template.spec.tolerations[0].key == SPOT
    retries_itself = kind in ("MPIJob", "PaddleJob", "PyTorchJob")  # or has no policy of a role
    assert worker.restart_policy == (None if retries_itself else "ExitCode")
    assert spot.unplace(placed) == job


@pytest.mark.parametrize("trial", ["dict", "V1Job", "PyTorchJob"])
def test_a_model_of_katibs_sdk_is_placed_whatever_its_trial_is(trial: str) -> None:
    katib = sdk("kubeflow.katib", "kubeflow-katib==0.19.0")
    spec: Any = TRIAL
    if trial == "V1Job":
        pod = client.V1PodSpec(restart_policy="Never", containers=[client.V1Container(name="t", image="i")])
        job_spec = client.V1JobSpec(template=client.V1PodTemplateSpec(spec=pod))
        spec = client.V1Job(api_version="batch/v1", kind="Job", spec=job_spec)
    elif trial == "PyTorchJob":
        spec = a_job(training(), trial)
    template = katib.V1beta1TrialTemplate(
        trial_parameters=[katib.V1beta1TrialParameterSpec(name="lr", reference="lr")], trial_spec=spec
    )
    experiment = katib.V1beta1Experiment(
        api_version="kubeflow.org/v1beta1",
        kind="Experiment",
        metadata=client.V1ObjectMeta(name="e"),
        spec=katib.V1beta1ExperimentSpec(max_trial_count=2, trial_template=template),
    )
    placed = spot.place(experiment, POLICY)
    plain = katib.ApiClient().sanitize_for_serialization

    assert type(placed) is type(experiment)
    assert SPOT in str(placed.spec.trial_template.trial_spec)
    assert plain(spot.unplace(placed)) == plain(experiment)


def test_the_models_of_the_trainer_are_placed_beside_their_runtime() -> None:
    models = sdk("kubeflow_trainer_api.models", "kubeflow-trainer-api==2.3.0")
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1"}
    pod = {"spec": {"containers": [{"name": "node", "image": "i"}]}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    runtime = models.TrainerV1alpha1TrainingRuntime.from_dict(
        {**head, "kind": "TrainingRuntime", "metadata": {"name": "torch"},
         "spec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    )  # fmt: skip
    reference = {"name": "torch", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    job = models.TrainerV1alpha1TrainJob.from_dict(
        {**head, "kind": "TrainJob", "metadata": {"name": "j"}, "spec": {"runtimeRef": reference}}
    )

    for one, beside in ((job, [runtime]), (runtime, [])):
        placed = spot.place(one, POLICY, beside=beside)
        assert type(placed) is type(one)
        assert SPOT in str(placed.to_dict())
        assert spot.unplace(placed) == one


def test_the_models_of_katibs_api_are_placed() -> None:
    models = sdk("kubeflow_katib_api.models", "kubeflow-katib-api==0.19.0")
    experiment = models.V1beta1Experiment.from_dict(EXPERIMENT)
    placed = spot.place(experiment, POLICY)

    assert type(placed) is type(experiment)
    assert SPOT in str(placed.to_dict())
    assert spot.unplace(placed) == experiment
