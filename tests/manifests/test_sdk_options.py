"""The option for the Kubeflow SDK: it places the job of ``TrainerClient.train`` with the runtime on the cluster."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest
from tests import plain_yaml
from tests.kinds.kubeflow.runtimes import OURS, SPOT, TEAM, TOLERANT, a_runtime

import spotwright
from spotwright.errors import InputError

ApiException: Any = importlib.import_module("kubernetes.client").ApiException

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

POLICY = {
    "target": {"trainer": "2.3"},
    "pools": {
        "spot": {"capacity": "spot", "provider": "aks"},
        "regular": {"capacity": "on-demand", "provider": "aks"},
        "gpu-spot": {"capacity": "spot", "provider": "gke", "node": {"cpu": 8, "nvidia.com/gpu": 1}},
    },
    "policy": {"default": {"spot": "prefer", "checkpoint": "pvc://ckpt"}},
}


class Api:
    """The part of ``CustomObjectsApi`` that is used; it remembers what was made."""

    def __init__(self, *_: Any, own: str = "", cluster: str = TOLERANT, status: int = 404) -> None:
        self.own, self.cluster, self.status = own, cluster, status
        self.made: list[Any] = []

    def get_namespaced_custom_object(self, *path: str, async_req: bool = False) -> Any:
        return self._give(self.own, path, async_req=async_req)

    def get_cluster_custom_object(self, *path: str, async_req: bool = False) -> Any:
        return self._give(self.cluster, path, async_req=async_req)

    def create_namespaced_custom_object(self, *path: Any) -> None:
        self.made.append(path[-1])

    def _give(self, text: str, path: tuple[str, ...], *, async_req: bool) -> Any:
        found = plain_yaml.load(text) if text else None
        if found is None or found["metadata"]["name"] != path[-1]:
            raise ApiException(status=self.status, reason="no")
        return Mock(get=lambda _timeout: found) if async_req else found


def called(
    job_spec: dict[str, Any] | None = None,
    trainer: Any = None,
    *,
    policy: Any = POLICY,
    runtime: Any = "torch",
    api: Api | None = None,
) -> dict[str, Any]:
    """What an option makes of a job spec, called as the SDK calls it."""
    result = job_spec if job_spec is not None else {}
    backend = SimpleNamespace(custom_api=api or Api(), namespace="team")
    spotwright.TrainJobOption(policy, runtime=runtime)(result, trainer, backend)
    return result


def node(job_spec: dict[str, Any]) -> Any:
    """The pod template that our entry gives the nodes."""
    [entry] = [one for one in job_spec["spec"]["runtimePatches"] if one["manager"] == OURS]
    return entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def test_the_runtime_is_read_from_the_cluster_and_its_tolerations_are_kept() -> None:
    assert node(called())["spec"]["tolerations"] == [TEAM, SPOT]


def test_the_namespaces_own_runtime_comes_before_the_clusters() -> None:
    own = a_runtime(kind="TrainingRuntime", pod="\n                tolerations: [{key: own, operator: Exists}]")

    assert node(called(api=Api(own=own)))["spec"]["tolerations"][0]["key"] == "own"


def test_a_runtime_can_be_given_as_its_manifest() -> None:
    assert node(called(runtime=plain_yaml.load(TOLERANT), api=Api(cluster="")))["spec"]["tolerations"] == [TEAM, SPOT]


def test_a_runtime_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"runtime other not found; pass the runtime of train\(runtime=...\)"):
        called(runtime="other")


def test_a_runtime_that_may_not_be_read_is_reported() -> None:
    with pytest.raises(InputError, match="runtime torch cannot be read: 403 no"):
        called(api=Api(cluster="", status=403))


def test_a_backend_without_a_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="TrainJobOption needs the Kubernetes backend"):
        spotwright.TrainJobOption(POLICY)({}, None, SimpleNamespace())


def test_a_patch_of_the_sdks_own_gets_our_tolerations_where_it_would_hide_them() -> None:
    pod = {"spec": {"tolerations": [{"key": "own", "operator": "Exists"}]}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    patch_ = {
        "manager": "trainer.kubeflow.org/kubeflow-sdk",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    made = called({"spec": {"runtimePatches": [patch_]}})

    assert [one["manager"] for one in made["spec"]["runtimePatches"]] == [OURS, "trainer.kubeflow.org/kubeflow-sdk"]
    theirs = made["spec"]["runtimePatches"][1]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    assert theirs["template"]["spec"]["template"]["spec"]["tolerations"] == [SPOT, {"key": "own", "operator": "Exists"}]


@pytest.mark.parametrize("asks", [{"GPU": 1}, {"nvidia.com/gpu": "1", "CPU": 1}])
@pytest.mark.parametrize("shape", ["custom", "builtin"])
def test_what_the_trainer_asks_for_chooses_the_pools(asks: dict[str, Any], shape: str) -> None:
    trainer = SimpleNamespace(env=None, resources_per_node=asks)
    if shape == "builtin":
        trainer = SimpleNamespace(config=SimpleNamespace(resources_per_node=asks))
    tolerated = {item["key"] for item in node(called(trainer=trainer))["spec"]["tolerations"]}

    assert "nvidia.com/gpu" in tolerated
    assert "nvidia.com/gpu" not in str(node(called())["spec"]["tolerations"])


def test_the_trainer_gets_the_environment_and_checkpoints_named_after_the_job() -> None:
    trainer = SimpleNamespace(env={"EPOCHS": "3", "SPOTWRIGHT_TASK": "mine"})
    made = called({"metadata": {"name": "mnist"}}, trainer)

    assert next(iter(trainer.env)) == "SPOTWRIGHT_RUN"
    assert trainer.env["SPOTWRIGHT_RUN"] == "mnist"
    assert (trainer.env["EPOCHS"], trainer.env["SPOTWRIGHT_TASK"]) == ("3", "mine")
    assert trainer.env["SPOTWRIGHT_CHECKPOINT"] == "/spotwright/checkpoint"
    assert not any("$(SPOTWRIGHT_HOST)" in value for value in trainer.env.values())
    assert node(made)["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "ckpt"}


def test_the_trainer_gets_the_path_of_the_checkpoint_library() -> None:
    trainer = SimpleNamespace(env=None)
    target = {"trainer": "2.3", "package": "/opt/spotwright_checkpoint.pyz"}
    called({"metadata": {"name": "mnist"}}, trainer, policy={**POLICY, "target": target})

    assert trainer.env["PYTHONPATH"] == "/opt/spotwright_checkpoint.pyz"


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_job_without_a_name_gets_no_checkpoints_and_a_warning() -> None:
    trainer = SimpleNamespace(env=None)
    with pytest.warns(UserWarning, match="give the TrainJob a name"):
        made = called({}, trainer)

    assert "SPOTWRIGHT_CHECKPOINT" not in trainer.env
    assert "volumes" not in node(made)["spec"]
    assert "containers" not in node(made)["spec"]


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_trainer_without_an_environment_gets_a_warning() -> None:
    with pytest.warns(UserWarning, match="this trainer takes no environment"):
        made = called({"metadata": {"name": "mnist"}}, SimpleNamespace(config=None))

    assert "volumes" not in node(made)["spec"]


def test_the_record_of_a_file_is_not_left_in_an_object_that_no_file_has() -> None:
    made = called({"metadata": {"name": "mnist", "labels": {"team": "a"}}})

    assert made["metadata"] == {"name": "mnist", "labels": {"team": "a"}}


@pytest.mark.skipif(
    importlib.util.find_spec("kubeflow") is None or importlib.util.find_spec("kubeflow.trainer") is None,
    reason="the kubeflow SDK is not installed: pip install kubeflow==0.5.0 in an environment of its own",
)
def test_the_real_sdk_makes_a_placed_trainjob() -> None:
    trainer_sdk = importlib.import_module("kubeflow.trainer")
    options = importlib.import_module("kubeflow.trainer.options")
    backends = importlib.import_module("kubeflow.trainer.backends.kubernetes.backend")
    types = importlib.import_module("kubeflow.common.types")
    api = Api(cluster=TOLERANT.replace("name: torch}", "name: torch, labels: {trainer.kubeflow.org/framework: torch}}"))
    with (
        patch("kubernetes.config.load_kube_config"),
        patch("kubernetes.client.CustomObjectsApi", lambda *_: api),
        patch.object(backends.KubernetesBackend, "verify_backend"),
    ):
        backend = backends.KubernetesBackend(types.KubernetesBackendConfig(namespace="team"))
        backend.train(
            runtime="torch",
            trainer=trainer_sdk.CustomTrainer(func=a_training, num_nodes=2),
            options=[options.Name("mnist"), spotwright.TrainJobOption(POLICY, runtime="torch")],
        )

    [made] = api.made
    assert node(made)["spec"]["tolerations"] == [TEAM, SPOT]
    assert node(made)["spec"]["terminationGracePeriodSeconds"] == 25
    assert {"name": "SPOTWRIGHT_RUN", "value": "mnist"} in made["spec"]["trainer"]["env"]


def a_training() -> None:
    """What the SDK sends to the nodes."""
