"""Whatever ends well without Spotwright ends well with it: over drawn histories of pods, for every kind and way of placing it.

A workload is drawn as its author wrote it, with retries of its own or those that Kubernetes and Argo have by default, and a
history of how its pods end. The controller of its kind (:mod:`tests.cluster.budgets.controller_models`) goes through the history
by the author's object, by the object as ``spotwright place`` writes it, and by the object as the webhook admits it. There the
webhook also reviews each pod, by what the real recorder has written of the pods before; what it refuses never ends well.
``tests/cluster/live/no_harm`` is the same on a real cluster, for one event at a time.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.cluster.admission_objects import admitted, owned_by
from tests.cluster.budgets.controller_models import ArgoModel, JobModel, JobSetModel
from tests.cluster.budgets.pod_ends import DONE, ENDS, ERRORS, LOSSES, MOVES, PEER_LOST, PodEnd
from tests.cluster.budgets.recorded_history import RecordedWorkload
from tests.cluster.watching.watched_cluster import CONFIG
from tests.placing.placed import FILE

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.kinds.job import DISRUPTION_CONDITION
from spotwright.manifests.files import place_text

Object = dict[str, Any]
Model = JobModel | JobSetModel | ArgoModel
Review = Callable[[int, int], bool]

TARGET = {"kubernetes": "1.35", "trainer": "2.2", "argo": "3.7"}
META = {"name": "train", "namespace": "team-a"}


def a_config(policy: Mapping[str, Any]) -> Config:
    return configuration.from_mapping({**CONFIG, "target": TARGET, "policy": {"default": dict(policy)}})


# Workloads


class Kind(NamedTuple):
    """How the objects of a kind are made from the author's workload, and which of them decides about its pods."""

    make: Callable[[Object], list[Object]]
    spec: Callable[[list[Object]], Object]  # of the object that decides: a Job, a JobSet or a template
    model: Callable[[Object], Model]
    labels: Mapping[str, str] = {}
    is_gang: bool = False


def the_job(spec: Object) -> list[Object]:
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": META, "spec": spec}]


def the_experiment(spec: Object) -> list[Object]:
    trial = {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
    return [
        {
            "apiVersion": "kubeflow.org/v1beta1",
            "kind": "Experiment",
            "metadata": META,
            "spec": {
                "parallelTrialCount": 1,
                "maxTrialCount": 1,
                "maxFailedTrialCount": 1,
                "trialTemplate": {"primaryContainerName": "main", "trialSpec": trial},
            },
        }
    ]


def the_set(spec: Object) -> list[Object]:
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": META, "spec": spec}]


def the_train_job(spec: Object) -> list[Object]:
    api = "trainer.kubeflow.org/v1alpha1"
    runtime = {
        "apiVersion": api,
        "kind": "TrainingRuntime",
        "metadata": {**META, "name": "plain"},
        "spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": spec}},
    }
    job = {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 2}}
    return [runtime, {"apiVersion": api, "kind": "TrainJob", "metadata": META, "spec": job}]


def the_workflow(spec: Object) -> list[Object]:
    return [{"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": META, "spec": spec}]


def of_runtime(documents: list[Object]) -> Object:
    """The spec of the JobSet that the Trainer makes of the TrainJob's runtime."""
    reference = documents[-1]["spec"]["runtimeRef"]["name"]
    runtime = next(each for each in documents if each["metadata"]["name"] == reference)
    spec: Object = runtime["spec"]["template"]["spec"]
    return spec


def of_trial(documents: list[Object]) -> Object:
    spec: Object = documents[0]["spec"]["trialTemplate"]["trialSpec"]["spec"]
    return spec


def of_step(spec: Object) -> ArgoModel:
    own = spec["templates"][0].get("retryStrategy")
    return ArgoModel(own if own is not None else (spec.get("templateDefaults") or {}).get("retryStrategy"))


MEMBER = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0"}
KINDS: Mapping[str, Kind] = {
    "job": Kind(the_job, lambda made: made[0]["spec"], JobModel),
    "trial": Kind(the_experiment, of_trial, JobModel),
    "workflow": Kind(the_workflow, lambda made: made[0]["spec"], of_step),
    "job-gang": Kind(the_job, lambda made: made[0]["spec"], JobModel, is_gang=True),
    "jobset": Kind(the_set, lambda made: made[0]["spec"], JobSetModel, MEMBER, is_gang=True),
    "trainjob": Kind(the_train_job, of_runtime, JobSetModel, MEMBER, is_gang=True),
}


DISRUPTED = [dict(DISRUPTION_CONDITION)]
RULES: list[Object] = [
    {"action": "Ignore", "onPodConditions": DISRUPTED},
    {"action": "Count", "onPodConditions": DISRUPTED},
    {"action": "FailJob", "onPodConditions": DISRUPTED},
    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [137, 143, 255]}},
    {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [137, 143]}},
    {"action": "Count", "onExitCodes": {"operator": "In", "values": [3]}},
]


@st.composite
def job_specs(draw: st.DrawFn, pods: int) -> Object:
    """A Job as its author writes it: with a limit and rules, or without."""
    rules = draw(st.just([]) | st.lists(st.sampled_from(RULES), min_size=1, max_size=2))
    restart = "Never" if rules else draw(st.sampled_from(["Never", "Never", "OnFailure"]))
    pod = {"restartPolicy": restart, "containers": [{"name": "main", "image": "train:1"}]}
    spec: Object = {"template": {"spec": pod}}
    if pods > 1:
        spec |= {"completions": pods, "parallelism": pods, "completionMode": "Indexed"}
    if draw(st.booleans()):
        spec["backoffLimit"] = draw(st.integers(0, 8))
    elif pods > 1 and restart == "Never" and draw(st.booleans()):
        spec["backoffLimitPerIndex"] = draw(st.integers(0, 4))
    if rules:
        spec["podFailurePolicy"] = {"rules": copy.deepcopy(rules)}
    return spec


@st.composite
def set_specs(draw: st.DrawFn) -> Object:
    """A JobSet of two workers as its author writes it."""
    spec: Object = {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": draw(job_specs(2))}}]}
    if draw(st.booleans()):
        spec["failurePolicy"] = {"maxRestarts": draw(st.integers(0, 4))}
        if draw(st.booleans()):
            action = draw(st.sampled_from(["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]))
            reason = draw(st.sampled_from(["PodFailurePolicy", "BackoffLimitExceeded"]))
            spec["failurePolicy"]["rules"] = [{"name": "own", "action": action, "onJobFailureReasons": [reason]}]
    return spec


EXPRESSIONS = [
    "asInt(lastRetry.exitCode) > 1",
    "lastRetry.status == 'Error' || lastRetry.exitCode in ['137', '143', '255']",
    "lastRetry.exitCode != '42'",
]


@st.composite
def workflow_specs(draw: st.DrawFn) -> Object:
    """A Workflow of one step, with a strategy on the step, one for all templates, or none."""
    strategy: Object = {}
    if draw(st.booleans()):
        strategy["limit"] = draw(st.integers(0, 6).flatmap(lambda limit: st.sampled_from([limit, str(limit)])))
    if draw(st.booleans()):
        strategy["retryPolicy"] = draw(st.sampled_from(["Always", "OnFailure", "OnError"]))
    if draw(st.booleans()):
        strategy["expression"] = draw(st.sampled_from(EXPRESSIONS))
    template: Object = {"name": "main", "container": {"image": "train:1", "command": ["train"]}}
    spec: Object = {"entrypoint": "main", "templates": [template]}
    where = draw(st.sampled_from(["step", "defaults", "nowhere"]))
    if where == "step":
        template["retryStrategy"] = strategy
    elif where == "defaults":
        spec["templateDefaults"] = {"retryStrategy": strategy}
    return spec


SPECS: Mapping[str, st.SearchStrategy[Object]] = {
    "job": st.integers(1, 2).flatmap(job_specs),
    "trial": job_specs(1),
    "workflow": workflow_specs(),
    "job-gang": job_specs(2),
    "jobset": set_specs(),
    "trainjob": set_specs(),
}


# Histories


class Strike(NamedTuple):
    """The fate of one pod; in a gang its peer fails as well, before Kubernetes knows of the loss or after."""

    member: int
    end: PodEnd
    peer_is_first: bool


History = Sequence[Strike]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Ends of pods, some of them again and again."""
    groups = st.sampled_from([LOSSES, LOSSES, MOVES, ERRORS, ENDS])
    made: list[Strike] = []
    for _ in range(draw(st.integers(1, 4))):
        end = draw(groups.flatmap(st.sampled_from))
        strike = Strike(draw(st.integers(0, 1)), end, draw(st.booleans()))
        made += [strike] * draw(st.sampled_from([1, 1, 2, 3, 5]))
    return made


DELETED = PodEnd("deleted", 143)


class Walk:
    """The controller of a workload on its way through a history; ``pods`` are those under our controller.

    :attr:`there` are the indexes whose pod is there. Once a pod is refused, the later ones of its task are too.
    """

    def __init__(self, kind: str, model: Model, pods: RecordedWorkload | None) -> None:
        self.model, self.there = model, set[int]()
        self.is_refused = False
        self._kind, self._pods = kind, pods

    @property
    def to_do(self) -> Sequence[int]:
        """The indexes that want a pod while all is well."""
        return () if self.is_refused else self.model.to_do

    @property
    def restart(self) -> int:
        return self.model.restarts if isinstance(self.model, JobSetModel) else 0

    def make(self, index: int) -> bool:
        """Make the pod of an index, unless it is there; false: it is refused."""
        if index not in self.there and self._pods is not None:
            self.is_refused = not self._pods.review(index, self.restart)
        self.there.add(index)
        return not self.is_refused

    def end(self, index: int, end: PodEnd, fates: Mapping[int, PodEnd] = MappingProxyType({})) -> None:
        """End a pod, or its container where that starts again in it. Where its set starts again, that deletes the others.

        ``fates``: how those end meanwhile, which have lost their node.
        """
        ended, restart = end.seen_by(self._kind), self.restart
        stays = self.model.stays(ended)
        if not stays:
            self.there.remove(index)
        if self._pods is not None:
            self._pods.end(index, end, stays=stays)
        self.model.end(ended, index)
        if self.model.said or self.restart > restart:
            if self._pods is not None:
                for other in self.there:
                    self._pods.delete(other, fates.get(other, DELETED))
            self.there.clear()

    def go_on(self) -> None:
        """Let time pass."""
        if self._pods is not None:
            self._pods.go_on()


def goes_well(kind: str, model: Model, history: History, pods: RecordedWorkload | None = None) -> bool:
    """Whether a workload ends well that its controller leads through a history."""
    (_gang if KINDS[kind].is_gang else _alone)(Walk(kind, model, pods), history)
    return model.said in ("Complete", "Succeeded")  # a refused pod leaves it empty


def _alone(walk: Walk, history: History) -> None:
    """Each pod ends by the strikes for its index, one after the other, and then well."""
    left = {index: [strike.end for strike in history if strike.member == index] for index in (0, 1)}
    while walk.to_do:
        for index in walk.to_do:
            if walk.to_do and walk.make(index):
                walk.end(index, left[index].pop(0) if left[index] else DONE)
                walk.go_on()


def _gang(walk: Walk, history: History) -> None:
    """Both pods end by each strike: the other one fails for want of its peer, unless its set deletes it before."""
    left = list(history)
    while walk.to_do and all(walk.make(index) for index in walk.to_do):
        strike = left.pop(0) if left else Strike(0, DONE, peer_is_first=False)
        ends = [(strike.member, strike.end), (1 - strike.member, DONE if strike.end is DONE else PEER_LOST)]
        if strike.peer_is_first and strike.end not in ERRORS:
            ends.reverse()
        for index, end in ends:
            if index in walk.there:
                walk.end(index, end, {strike.member: strike.end} if strike.end in LOSSES else {})
        walk.go_on()


# Ways


def alone(kind: str, written: Object) -> Model:
    of = KINDS[kind]
    return of.model(of.spec(of.make(copy.deepcopy(written))))


def by_file(kind: str, written: Object, config: Config) -> Model:
    of = KINDS[kind]
    text = "\n---\n".join(json.dumps(each) for each in of.make(copy.deepcopy(written)))
    placed = [each for each in plain_yaml.load_all(place_text(text, FILE, config).text) if each is not None]
    return of.model(of.spec(placed))


def by_controller(kind: str, written: Object, config: Config, history: History) -> bool:
    of = KINDS[kind]
    made = [with_defaults(each) for each in of.make(copy.deepcopy(written))]
    first, _ = admitted(made[0], config)
    owners = owners_of(kind, first, config)
    decides = owners[1] if kind in ("jobset", "trainjob") else owners[0]
    spec = decides["spec"]
    template = (
        spec["replicatedJobs"][0]["template"]["spec"]["template"]
        if kind in ("jobset", "trainjob")
        else pod_of_step(spec)
        if kind == "workflow"
        else spec["template"]
    )
    with tempfile.TemporaryDirectory() as folder:
        pods = RecordedWorkload(Path(folder), config, owners, template, of.labels)
        try:
            return goes_well(kind, of.model(spec), history, pods)
        finally:
            pods.close()


def pod_of_step(spec: Object) -> Object:
    (step,) = spec["templates"]
    return {
        "metadata": step.get("metadata") or {},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", **step["container"]}]},
    }


def owners_of(kind: str, first: Object, config: Config) -> list[Object]:
    """The owners of the pods, nearest first, of an object that was admitted: they were made of it, and admitted as well."""
    root = with_uid(first)
    if kind in ("job", "job-gang", "workflow"):
        return [root]
    if kind == "trial":
        trial = with_uid({"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "metadata": META, "spec": {}})
        spec = first["spec"]["trialTemplate"]["trialSpec"]
        made = owned({**spec, "metadata": {**META, **spec.get("metadata", {})}}, trial)
        return [with_uid(admitted(with_defaults(made), config)[0]), owned(trial, root), root]
    if kind == "trainjob":
        top = with_uid(the_train_job({})[1])
        spec = copy.deepcopy(first["spec"]["template"]["spec"])
        root = with_uid(admitted(owned(the_set(spec)[0], top), config)[0])
        return [child(root), root, top]
    return [child(root), root]


def child(of_set: Object) -> Object:
    """The Job that JobSet makes."""
    replicated = of_set["spec"]["replicatedJobs"][0]
    meta = {**META, "name": "train-node-0", "labels": MEMBER}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": replicated["template"]["spec"]}
    return with_uid(owned(made, of_set))


def owned(data: Object, owner: Object) -> Object:
    made = owned_by(data, owner["apiVersion"], owner["kind"], owner["metadata"]["name"])
    made["metadata"]["ownerReferences"][0]["uid"] = owner["metadata"]["uid"]
    return made


def with_uid(data: Object) -> Object:
    meta = {**data["metadata"], "uid": f"uid-of-{data['kind']}", "creationTimestamp": "2027-01-15T07:59:00Z"}
    return {**data, "metadata": meta}


def with_defaults(data: Object) -> Object:
    """The object as the API server fills it in, with the author's text as kubectl notes it."""
    sent = copy.deepcopy(data)
    if data["kind"] == "Job":
        fill_in(data["spec"])
    for each in data["spec"].get("replicatedJobs") or () if data["kind"] == "JobSet" else ():
        fill_in(each["template"]["spec"])
    noted = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(sent)}
    return {
        **data,
        "metadata": {**data["metadata"], "annotations": {**data["metadata"].get("annotations", {}), **noted}},
    }


def fill_in(spec: Object) -> None:
    """Set the defaults of a Job. Source: Kubernetes, ``pkg/apis/batch/v1/defaults.go``."""
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    spec.setdefault("completions", 1)
    spec.setdefault("parallelism", 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")


# The property


IGNORES_CODES = '"action": "Ignore", "onExitCodes"'
MOST_LOST, MOST_MOVED = 10, 20  # interruptions.max, and MAX_MOVES
POLICIES = st.sampled_from(
    [{"spot": "prefer"}, {"spot": "require"}, {"spot": "prefer", "timeout": "1h"}, {"spot": "never"}]
)
SEARCH = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
JOURNALED = settings(SEARCH, max_examples=SEARCH.max_examples // 4, phases=[Phase.explicit, Phase.generate])
"""Each of these examples writes and reads a journal: a failing one is shown as it was found."""

Case = tuple[Object, History]


def goes_well_with_us(kind: str, way: str, case: Case, policy: Mapping[str, Any]) -> bool:
    written, history = case
    config = a_config(policy)
    if way == "file":
        return goes_well(kind, by_file(kind, written, config), history)
    return by_controller(kind, written, config, history)


def is_within_budgets(written: Object, history: History) -> bool:
    """Whether our budgets leave work alone that its author's rules do not limit.

    Without a limit by the author, the controller's budgets apply: for interruptions, moves, and errors that the author's rules
    ignore.
    """
    ends = [strike.end for strike in history]
    if sum(end in LOSSES for end in ends) > MOST_LOST or sum(end in MOVES for end in ends) > MOST_MOVED:
        return False
    text = json.dumps(written)  # with restarts that do not count, errors of peers are without a bound too
    return "IgnoreMaxRestarts" not in text and (IGNORES_CODES not in text or not any(end in ERRORS for end in ends))


def cases(kind: str) -> st.SearchStrategy[Case]:
    """An author's workload, and a history in which it ends well."""
    return st.tuples(SPECS[kind], histories()).filter(lambda case: goes_well(kind, alone(kind, case[0]), case[1]))


@pytest.mark.parametrize("kind", KINDS)
@SEARCH
@given(data=st.data(), policy=POLICIES)
def test_what_ends_well_without_us_ends_well_as_a_placed_file(kind: str, data: st.DataObject, policy: Object) -> None:
    assert goes_well_with_us(kind, "file", data.draw(cases(kind)), policy)


@pytest.mark.parametrize("kind", KINDS)
@JOURNALED
@given(data=st.data(), policy=POLICIES)
def test_what_ends_well_without_us_ends_well_under_the_controller(
    kind: str, data: st.DataObject, policy: Object
) -> None:
    bounded = cases(kind).filter(lambda case: is_within_budgets(*case))
    assert goes_well_with_us(kind, "controller", data.draw(bounded), policy)


def strikes(end: PodEnd, times: int = 1) -> History:
    return [Strike(0, end, peer_is_first=False)] * times


def end_called(name: str) -> PodEnd:
    return next(end for end in ENDS if end.name == name)


def a_job(**spec: Any) -> Object:
    return {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}, **spec}


def a_set(policy: Object, **spec: Any) -> Object:
    job = a_job(completions=2, parallelism=2, completionMode="Indexed", **spec)
    return {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}], "failurePolicy": policy}


IGNORES_KILLS = {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [137, 143]}}]}
IGNORES_DISRUPTIONS = {"rules": [{"action": "Ignore", "onPodConditions": DISRUPTED}]}
FAILS_AT_42 = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}


def fails_the_set(reason: str) -> Object:
    return {"maxRestarts": 1, "rules": [{"name": "own", "action": "FailJobSet", "onJobFailureReasons": [reason]}]}


FOUND: Mapping[str, tuple[Sequence[str], Object, History]] = {
    "a rule of ours counted what the author's rule ignored": (
        ["job", "trial"],
        a_job(backoffLimit=0, podFailurePolicy=IGNORES_KILLS),
        strikes(end_called("drain")),
    ),
    "each interruption spent a restart of the set, and no try of its Job": (
        ["jobset", "trainjob"],
        a_set({"maxRestarts": 1}),
        strikes(end_called("drain"), 3),
    ),
    "an interruption failed the set by the author's rule for an exit code": (
        ["jobset", "trainjob"],
        a_set(fails_the_set("PodFailurePolicy"), podFailurePolicy=FAILS_AT_42),
        strikes(end_called("drain")),
    ),
    "an error failed the set by the author's rule for the last of seven": (
        ["jobset", "trainjob"],
        a_set(fails_the_set("BackoffLimitExceeded")),
        strikes(end_called("error 1")),
    ),
    "a Job that ignores interruptions failed at the first error of a peer": (
        ["jobset", "trainjob"],
        a_set({"maxRestarts": 0}, podFailurePolicy=IGNORES_DISRUPTIONS),
        strikes(end_called("power cut")),
    ),
}
"""Cases that the property found: they ended well without us alone."""


@pytest.mark.parametrize(
    ("kind", "found"), [pytest.param(kind, name) for name, (kinds, *_) in FOUND.items() for kind in kinds]
)
@pytest.mark.parametrize("way", ["file", "controller"])
def test_a_case_that_was_found_ends_well_with_us(kind: str, way: str, found: str) -> None:
    _, written, history = FOUND[found]

    assert goes_well(kind, alone(kind, written), history)
    assert goes_well_with_us(kind, way, (written, history), {"spot": "prefer"})


def test_the_property_sees_histories_that_no_retry_outlives() -> None:
    """Workloads that fail without us, and workloads that a refusal ends: otherwise the models would let everything end well."""
    many = strikes(end_called("error 1"), 7)
    assert not goes_well("job", alone("job", a_job()), many)
    assert not goes_well_with_us("job", "controller", (a_job(), many), {"spot": "prefer"})
    assert not goes_well_with_us("job", "controller", (a_job(), strikes(end_called("drain"), 21)), {"spot": "prefer"})
