"""Katib itself: its experiments have the right values and the right best trial, whatever happens to the nodes of trials.

By hand, because Katib is no part of the bed that CI starts: `TESTBED_CONTROLLERS=katib,jobset,trainer`, with a PostgreSQL of
Debian. Suggestions are of goptuna, early stopping is Katib's medianstop.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from testbed.building.images import KATIB_PYTHON, PYTHON
from testbed.control import katib
from testbed.faults import Faults
from testbed.settings import NETWORK, Settings
from tests.cluster.conftest import Require
from tests.cluster.live.admission.claimed_folders import claimed_folder
from tests.cluster.live.controllers import Controller, configuration, controller
from tests.cluster.live.kube import Kube, Object, pod_spec
from tests.cluster.live.recorded import kept_log, runs_of
from tests.cluster.live.runtimes import training_runtime

from spotwright.checkpoint_file import FILE_NAME, checkpoint_file
from spotwright.config import parse
from spotwright.manifests.files import place_text

pytestmark = pytest.mark.cluster

ENDS = 600.0  # seconds for an experiment, on a busy machine
EPOCHS = 10
SPOT = {"kubernetes.azure.com/scalesetpriority": "spot"}
NAME, ALGORITHM = "tune", "sobol"
KATIB_FOLDERS = ("/opt/katib", "/opt/katib/pkg/apis/manager/v1beta1/python", "/opt/katib/packages")
TRAIN = """
import datetime, os, sys, time
from spotwright.checkpoint import Checkpoint

lr, how, place = float(sys.argv[1]), sys.argv[2], sys.argv[3]
trial = os.environ["KATIB_TRIAL_NAME"]

def push(accuracy):
    import api_pb2, api_pb2_grpc, grpc
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    metric = api_pb2.Metric(name="accuracy", value=f"{accuracy:.6f}")
    log = api_pb2.ObservationLog(metric_logs=[api_pb2.MetricLog(time_stamp=now, metric=metric)])
    with grpc.insecure_channel("DATABASE") as channel:
        request = api_pb2.ReportObservationLogRequest(trial_name=trial, observation_log=log)
        api_pb2_grpc.DBManagerStub(channel).ReportObservationLog(request, timeout=30)

with Checkpoint(*([f"/saves/{trial}"] if place == "own" else []), every=0) as ckpt:
    state = ckpt.load(default={"begun": []})
    state["begun"].append(ckpt.step)
    tell = ckpt.print if how == "keeps" else lambda line: print(line, flush=True)
    for epoch in ckpt.steps(EPOCHS):
        time.sleep(1)
        accuracy = 0.9 + lr - 0.02 * abs(epoch - 2)
        push(accuracy) if how == "pushes" else tell(f"epoch={epoch} accuracy={accuracy:.6f}")
        ckpt.step_done(state)
        open(f"/saves/{trial}.epoch", "w").write(str(epoch))
    open(f"/saves/{trial}.begun", "w").write(" ".join(map(str, state["begun"])))
""".replace("DATABASE", f"{NETWORK.control_plane}:6789").replace("EPOCHS", str(EPOCHS))


class Trials(NamedTuple):
    """The trials of an experiment, and their code."""

    kind: str = "Job"  # or TrainJob
    how: str = "keeps"  # the lines of earlier attempts; else it prints or pushes its metrics
    place: str = "own"  # a folder that the code names; "policy": the policy names the claim
    number: int = 2
    stops: bool = False  # whether Katib ends those that do worse than others


def experiment(namespace: str, trials: Trials) -> Object:
    """An experiment whose trials run one after the other, each with its best epoch as the third."""
    program = TRAIN if trials.how == "pushes" else _quoted(TRAIN)
    command = ["python3", "-c", program, "${trialParameters.lr}", trials.how, trials.place]
    template: Object = {
        "primaryContainerName": "main",
        "retain": True,
        "trialParameters": [{"name": "lr", "reference": "lr"}],
    }
    if trials.kind == "Job":
        pod = trial_pod(namespace, command, trials)
        template["trialSpec"] = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}}}
    else:
        spec = {
            "runtimeRef": {"name": "plain", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
            "trainer": {"numNodes": 1, "command": command},
        }
        condition = 'status.conditions.#(type=="{0}")#|#(status=="True")#'
        template |= {
            "primaryContainerName": "node",
            "primaryPodLabels": {"jobset.sigs.k8s.io/replicatedjob-name": "node"},
            "successCondition": condition.format("Complete"),
            "failureCondition": condition.format("Failed"),
            "trialSpec": {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec},
        }
    spec = {
        "objective": {"type": "maximize", "objectiveMetricName": "accuracy"},
        "algorithm": {"algorithmName": ALGORITHM},
        "parallelTrialCount": 1,
        "maxTrialCount": trials.number,
        "maxFailedTrialCount": 1,
        "parameters": [{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "0.2"}}],
        "trialTemplate": template,
    }
    if trials.how == "pushes":
        spec["metricsCollectorSpec"] = {"collector": {"kind": "Push"}}
    if trials.stops:
        settings = {"min_trials_required": "1", "start_step": "3"}
        named = [{"name": name, "value": value} for name, value in settings.items()]
        spec["earlyStopping"] = {"algorithmName": "medianstop", "algorithmSettings": named}
    metadata = {"name": NAME, "namespace": namespace}
    return {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": metadata, "spec": spec}


def trial_pod(namespace: str, command: Sequence[str], trials: Trials) -> Object:
    """The pod of a trial, on spot; it knows the service of early stopping, because the bed has no DNS."""
    mounts = [{"name": "saves", "mountPath": "/saves"}, {"name": "library", "mountPath": "/library"}]
    container = {
        "name": "main" if trials.kind == "Job" else "node",
        "image": KATIB_PYTHON if trials.how == "pushes" else PYTHON,
        "imagePullPolicy": "Never",
        "command": [*command],
        "env": [{"name": "PYTHONPATH", "value": ":".join((f"/library/{FILE_NAME}", *KATIB_FOLDERS))}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": mounts,
    }
    volumes = [
        {"name": "saves", "persistentVolumeClaim": {"claimName": "saves"}},
        {"name": "library", "configMap": {"name": "library"}},
    ]
    aliases = [{"ip": NETWORK.control_plane, "hostnames": [service(namespace)]}]
    return pod_spec(container, volumes=volumes, hostAliases=aliases) | {"nodeSelector": SPOT}


def service(namespace: str) -> str:
    """The name of the service of suggestions and early stopping."""
    return f"{NAME}-{ALGORITHM}.{namespace}"


def _quoted(program: str) -> str:
    """A program as an argument of the shell that Katib puts in front: it joins the words of a command by blanks."""
    return f'\'exec(__import__("base64").b64decode("{base64.b64encode(program.encode()).decode()}"))\''


def best_of(lr: float) -> float:
    """The best accuracy of an undisturbed trial, at its third epoch, as Katib writes it."""
    return round(0.9 + lr, 6)


def values_of(trial: Object) -> tuple[float, float]:
    """The parameter of a trial, and the best accuracy that Katib has of it."""
    [metric] = trial["status"]["observation"]["metrics"]
    return float(trial["spec"]["parameterAssignments"][0]["value"]), float(metric["max"])


def ended(kube: Kube, namespace: str, name: str) -> Object | None:
    """An experiment that is over."""
    found = kube.get("experiment", name, namespace) or {}
    over = [one["type"] for one in found.get("status", {}).get("conditions", ()) if one["status"] == "True"]
    return found if {"Succeeded", "Failed"} & {*over} else None


@pytest.fixture
def tuning(kube: Kube, namespace: str, tmp_path: Path, require: Require) -> Iterator[tuple[str, Path]]:
    """A namespace in which Katib collects metrics, with the library, and the folder of the claim ``saves``."""
    require("experiments.kubeflow.org")
    kube.run("label", "namespace", namespace, "katib.kubeflow.org/metrics-collector-injection=enabled")
    data = {FILE_NAME: base64.b64encode(checkpoint_file()).decode()}
    metadata = {"name": "library", "namespace": namespace}
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data})
    with claimed_folder(kube, namespace, tmp_path / "saves") as folder:
        yield namespace, folder
    kube.run("delete", "experiment", "--all", "-n", namespace, "--wait=false")


@contextmanager
def the_way(
    way: str, kube: Kube, bed: Settings, namespace: str, folder: Path, config: str
) -> Iterator[Controller | None]:
    """Without Spotwright, with its file alone, or with its controller."""
    made = controller(kube, bed, folder, config) if way == "controller" else nullcontext()
    with made as running:
        if running is not None:
            running.enable(namespace)
        yield running


def policy(trials: Trials) -> str:
    """The policy of these tests."""
    data = yaml.safe_load(configuration("60s"))
    if trials.place == "policy":
        data["policy"]["default"]["checkpoint"] = "pvc://saves"
    return yaml.safe_dump(data, sort_keys=False)


def placed(objects: Sequence[Object], config: str) -> list[Object]:
    """Objects as `spotwright place` writes them."""
    text = place_text(yaml.safe_dump_all(objects), "experiment.yaml", parse(config)).text
    return list(yaml.safe_load_all(text))


def begin(kube: Kube, namespace: str, trials: Trials, way: str, config: str) -> None:
    """Create an experiment, and the runtime of its trials."""
    objects = [experiment(namespace, trials)]
    if trials.kind == "TrainJob":
        runtime = training_runtime(kube, namespace, "true")
        runtime["spec"]["mlPolicy"]["numNodes"] = 1
        [member] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        member["template"]["spec"]["template"]["spec"] = trial_pod(namespace, ["true"], trials)
        runtime["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 3}
        objects.insert(0, runtime)
    kube.apply(*(placed(objects, config) if way == "file" else objects))


class Case(NamedTuple):
    """The fault on the first trial's node, and the way in which the experiment runs."""

    trials: Trials
    fault: str
    way: str

    def __str__(self) -> str:
        """The name of the test."""
        return "-".join(map(str, (*self.trials, self.fault, self.way)))


def cases(trials: Trials, *faults: str, ways: Sequence[str] = ("nothing", "file", "controller")) -> list[Case]:
    """Each fault in each way."""
    return [Case(trials, fault, way) for fault in faults for way in ways]


CASES = [
    *cases(Trials(), "none", "drain", "power-cut", "reboot"),
    *cases(Trials(kind="TrainJob"), "drain", "power-cut", "reboot"),
    *cases(Trials(how="pushes"), "drain"),
    *cases(Trials(place="policy"), "drain", ways=("file", "controller")),
    *cases(Trials(stops=True, number=3), "drain"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_experiment_has_the_values_of_an_undisturbed_one(  # fixtures
    case: Case,
    kube: Kube,
    bed: Settings,
    faults: Faults,
    tuning: tuple[str, Path],
    tmp_path: Path,
    require: Require,
) -> None:
    trials, fault, way = case
    if trials.kind == "TrainJob":
        require("trainjobs.trainer.kubeflow.org")
    namespace, folder = tuning
    with the_way(way, kube, bed, namespace, tmp_path, policy(trials)) as running, early_stopping(bed, namespace):
        begin(kube, namespace, trials, way, policy(trials))
        if fault != "none":
            interrupt(kube, faults, namespace, folder, fault)
        over = kube.wait(lambda: ended(kube, namespace, NAME), "the experiment is over", ENDS)
        if running is not None:
            kube.wait(lambda: running.has_ended(NAME), "its end is recorded", 60)
            check_record(running, trials)
    check_experiment(kube, namespace, over, trials)
    check_attempts(folder, trials, fault)
    check_suggestion(kube, namespace)


@contextmanager
def early_stopping(bed: Settings, namespace: str) -> Iterator[None]:
    """Let pods reach the service of early stopping by the name in their /etc/hosts."""
    listens = f"TCP-LISTEN:6788,bind={NETWORK.control_plane},reuseaddr,fork"
    inside = ["ip", "netns", "exec", bed.namespace, *map(str, katib.command(bed))]
    with subprocess.Popen([*inside, "socat", listens, f"TCP:{service(namespace)}:6788"], process_group=0) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.mark.parametrize("how", ["keeps", "prints"])
def test_without_the_lines_of_earlier_attempts_katib_takes_a_wrong_value(
    how: str, kube: Kube, faults: Faults, tuning: tuple[str, Path]
) -> None:
    namespace, folder = tuning
    kube.apply(experiment(namespace, Trials(how=how)))
    interrupt(kube, faults, namespace, folder, "drain")
    kube.wait(lambda: ended(kube, namespace, NAME), "the experiment is over", ENDS)
    values = [values_of(trial) for trial in kube.list("trials", namespace)]
    right = [accuracy == pytest.approx(best_of(lr)) for lr, accuracy in values]
    assert right.count(False) == (1 if how == "prints" else 0), values


def interrupt(kube: Kube, faults: Faults, namespace: str, folder: Path, fault: str) -> None:
    """Take the node of the first trial once its best epoch is behind it; a node that lost its power boots again."""
    kube.wait(lambda: any(int(each.read_text() or 0) >= 4 for each in folder.glob("*.epoch")), "epoch 4", ENDS)
    [pod] = [each for each in kube.list("pods", namespace) if is_of_a_trial(each)]
    node = int(pod["spec"]["nodeName"][1:])
    if fault == "drain":
        faults.drain(node)
    else:
        faults.cut_power(node)
        if fault == "power-cut":
            uid = pod["metadata"]["uid"]
            kube.wait(lambda: is_let_go(kube, namespace, uid), "the pod is let go", 120)
    faults.restore(node)


def is_of_a_trial(pod: Object) -> bool:
    return "katib.kubeflow.org/trial" in pod["metadata"]["labels"] and pod["status"]["phase"] == "Running"


def is_let_go(kube: Kube, namespace: str, uid: str) -> bool:
    """Whether a pod is marked for deletion, or gone."""
    found = [each for each in kube.list("pods", namespace) if each["metadata"]["uid"] == uid]
    return not found or bool(found[0]["metadata"].get("deletionTimestamp"))


def check_experiment(kube: Kube, namespace: str, over: Object, trials: Trials) -> None:
    """Every trial has the value of an undisturbed one, and the best of them is the experiment's."""
    found = kube.list("trials", namespace)
    values = [values_of(trial) for trial in found]
    counts = [
        over["status"].get(key, 0) for key in ("trialsSucceeded", "trialsEarlyStopped")
    ]  # a race of Katib's decides
    assert sum(counts) == trials.number, over["status"]
    assert [accuracy for _, accuracy in values] == pytest.approx([best_of(lr) for lr, _ in values])
    best = over["status"]["currentOptimalTrial"]
    [metric] = best["observation"]["metrics"]
    assert float(metric["max"]) == pytest.approx(max(accuracy for _, accuracy in values))


def check_attempts(folder: Path, trials: Trials, fault: str) -> None:
    """The first trial went on where its save left off, each had its own saves, and Katib ended the one that it stops early."""
    begun = {each.stem: each.read_text().split() for each in folder.glob("*.begun")}
    assert len(begun) == trials.number - (1 if trials.stops else 0)
    assert all(attempts[0] == "0" for attempts in begun.values()), begun
    resumed = [attempts for attempts in begun.values() if len(attempts) > 1]
    assert len(resumed) == (0 if fault == "none" else 1), begun
    assert all(int(attempts[1]) >= 4 for attempts in resumed), begun


def check_suggestion(kube: Kube, namespace: str) -> None:
    """Katib's objects for its suggestions carry nothing of ours."""
    made: list[Any] = [*kube.list("suggestions", namespace), *kube.list("deployments", namespace)]
    assert made
    assert not any("spotwright" in str(each["metadata"]) for each in made)


def check_record(running: Controller, trials: Trials) -> None:
    """The record has the parameters and metrics of each trial, and the lines that it printed."""
    run = running.run(NAME)
    assert run is not None
    tasks = [task for task in run.tasks.values() if task.attempts]
    assert len(tasks) == trials.number
    for task in tasks:
        assert float(task.parameters["accuracy"]) == pytest.approx(best_of(float(task.parameters["lr"])))
    if trials.how == "pushes":
        return
    ((named, _),) = runs_of(running.kube.kubeconfig, NAME)
    logs = [kept_log(running.logs, named.run, task.path).decode() for task in tasks]
    assert any("accuracy=" in text and "metrics-logger-and-collector" in text for text in logs)
