"""Rules on pods that train together: how the others continue when one is lost, and where they meet.

Sources: jobset v0.12, ``pkg/webhooks/jobset_webhook.go``, ``pkg/controllers/in_place_restart.go``,
``cmd/in-place-restart-agent``; PyTorch 2.15, ``torch/distributed/elastic/rendezvous``; kubeflow/trainer v1.9,
``pkg/controller.v1/pytorch/elastic.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

from spotwright.kinds import volcano
from spotwright.kinds.jobset import IN_PLACE, has_agent
from spotwright.linter.rule import ON_SPOT, SHIELDS, Checks, Problem, Rule, Severity
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import (
    KubeObject,
    Pods,
    is_whole,
    items_of,
    mapping_at,
    mapping_of,
    pods_of,
)
from spotwright.placing.environment import (
    SHARES_ITS_STORE,
    TORCHRUN_REASON,
    TORCHRUN_VARIABLE,
    c10d_endpoint,
    restarts_ranks,
)

__all__ = ["RULES"]

_MOST = 2**31 - 1  # of an int32
_NAME = TORCHRUN_VARIABLE["name"]


def _elastic(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    """An elastic job without a master, or a TrainJob with a c10d rendezvous: all ranks share one template, on spot."""
    if subject.record.hands_down:
        yield from _of_trainer(subject, settings)
    if "spec.elasticPolicy" not in subject.record.retries.types or not subject.mapping("spec", "elasticPolicy"):
        return
    backend = str(subject.get("spec", "elasticPolicy", "rdzvBackend", default="c10d"))
    roles = subject.mapping("spec", "pytorchReplicaSpecs")
    tolerations = mapping_at(roles, "Worker", "template", "spec").get("tolerations")
    if (
        backend == "c10d"
        and "Master" not in roles
        and tolerations
        and not subject.get("spec", "elasticPolicy", "rdzvHost")
    ):
        text = f"{subject.label} meets at worker 0, which is on spot: if its node is reclaimed, every pod starts again"
        yield Problem(subject.at("spec", "elasticPolicy"), text)


def _of_trainer(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    trainer, nodes = subject.mapping("spec", "trainer"), subject.get("spec", "trainer", "numNodes")
    is_gang = is_whole(nodes) and nodes > 1
    if (
        is_gang
        and c10d_endpoint(trainer)
        and any(isinstance(one, Pods) and one.asks_for_spot for one in pods_of(subject, settings))
    ):
        yield Problem(
            subject.at("spec", "trainer"),
            f"{subject.label} meets at one of its {nodes} pods, which share one template and go to spot together",
            "Give the rendezvous a separate replicated job with one pod in a runtime of yours, keep it on on-demand, and set "
            "--rdzv-endpoint to it.",
        )


def _shared_template(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Pods of one template with a c10d rendezvous at one of them."""
    owner = pods.owner
    if not pods.asks_for_spot or owner is None or not pods.are_several or owner.mapping("spec", "elasticPolicy"):
        return
    others = [name for name in _roles(owner) if name != pods.role]
    for container in pods.containers:
        endpoint = c10d_endpoint(container.value)
        if endpoint and not any(f"-{name.lower()}-" in endpoint for name in others):
            yield Problem(
                container.path,
                f"{pods.label} meets at {endpoint}, one of its pods, and they share one template on spot",
            )
            return


def _roles(owner: KubeObject) -> list[str]:
    """The names of the replicated jobs or the roles of an object."""
    jobs = owner.items(*owner.record.top, "replicatedJobs")
    names = [str(mapping_of(one).get("name")) for one in jobs]
    return names or [str(name) for name in owner.mapping("spec", "pytorchReplicaSpecs")]


def _shared_store(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if not pods.asks_for_spot:
        return
    for container in pods.containers:
        meets = bool(c10d_endpoint(container.value))
        if not meets and not restarts_ranks(container.value):
            continue
        given = [mapping_of(one) for one in items_of(container.value.get("env"))]
        value = next((one.get("value") for one in given if one.get("name") == _NAME), None)
        if value != TORCHRUN_VARIABLE["value"]:
            what = "has no" if value is None else f"has {value} as"
            yield Problem(
                (*container.path, "env"),
                f"{pods.label} {'meets by c10d' if meets else 'restarts its ranks'} and {what} {_NAME}: {SHARES_ITS_STORE}",
            )
            return


def _in_place(subject: KubeObject) -> list[tuple[tuple[str | int, ...], str]]:
    """The replicated jobs of a set whose pods restart in place: their paths, and their names."""
    at = subject.record.top
    if subject.get(*at, "failurePolicy", "restartStrategy") != IN_PLACE:
        return []
    jobs = subject.items(*at, "replicatedJobs")
    return [((*at, "replicatedJobs", index), str(mapping_of(one).get("name"))) for index, one in enumerate(jobs)]


def _refused_in_place(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    for path, name in _in_place(subject):
        spec = subject.mapping(*path, "template", "spec")
        counts = spec.get("completions"), spec.get("parallelism")
        wrong = [
            *([f"backoffLimit {_MOST}"] if spec.get("backoffLimit") != _MOST else []),
            *(["podReplacementPolicy Failed"] if spec.get("podReplacementPolicy") != "Failed" else []),
            *(["completions equal to parallelism"] if counts[0] is None or counts[0] != counts[1] else []),
        ]
        if wrong:
            where = subject.at(*path, "template", "spec")
            yield Problem(where, f"{subject.label} {name} restarts in place, and JobSet wants {', '.join(wrong)} there")


def _without_agent(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    for path, name in _in_place(subject):
        pod = (*path, "template", "spec", "template", "spec")
        if not has_agent(subject.mapping(*pod)):
            text = f"{subject.label} {name} restarts in place, and none of its containers is JobSet's agent"
            yield Problem(subject.at(*pod), text)


def _restarts_all(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    """Volcano Jobs that restart all pods of a task when one is lost, though they may run with fewer."""
    if subject.record not in volcano.KINDS or not subject.record.places:
        return
    top = subject.record.places[0].steps[:-3]  # above tasks.*.template
    depth = len(subject.base) + len(top) + 2
    every = (pods for pods in pods_of(subject, settings) if isinstance(pods, Pods))
    on_spot = {pods.spec[:depth] for pods in every if pods.asks_for_spot}
    for index, text in volcano.restarts_all(subject.mapping(*top)):
        path = subject.at(*top, "tasks", index)
        if path in on_spot:
            yield Problem(path, f"{subject.label} {subject.get(*top, 'tasks', index, 'name')}: {text}")


def _a_set(container: str = "", *, policy: str = "", job: str = "", pod: str = "", leader: bool = False) -> str:
    """A JobSet with four workers on spot."""
    head = "  - name: leader\n    template:\n      spec:\n        backoffLimit: 0\n        template:\n          spec:\n"
    head += "            restartPolicy: Never\n            containers:\n            - {name: main, image: trainer:1}\n"
    return (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: train}\nspec:\n"
        + indent(policy or "failurePolicy: {maxRestarts: 5}\n", "  ")
        + "  replicatedJobs:\n"
        + (head if leader else "")
        + "  - name: workers\n    template:\n      spec:\n        parallelism: 4\n        completions: 4\n"
        + indent(job or "backoffLimit: 0\n", " " * 8)
        + f"        template:\n          metadata:\n            {SHIELDS}          spec:\n"
        + indent(("" if job else "restartPolicy: Never\n") + ON_SPOT + pod, " " * 12)
        + "            containers:\n            - name: main\n              image: trainer:1\n"
        + indent(container, " " * 14)
    )


_VARIABLE = f'env: [{{name: {_NAME}, value: "1"}}]\n'
_TORCHRUN = "command: [torchrun, --rdzv-backend=c10d, --rdzv-endpoint=train-{job}-0-0.train:29400, train.py]\n"
_IN_PLACE = f"failurePolicy: {{maxRestarts: 5, restartStrategy: {IN_PLACE}}}\n"
_AS_DEMANDED = f"backoffLimit: {_MOST}\npodReplacementPolicy: Failed\n"
_AGENT = (
    "initContainers:\n- name: agent\n  image: in-place-restart-agent:1\n  restartPolicy: Always\n  restartPolicyRules:\n"
    "  - {action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0]}}\n"
)

_VOLCANO = (
    "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: batch}}\nspec:\n  schedulerName: volcano\n"
    "  minAvailable: 1\n  policies: [{{event: PodEvicted, action: {action}}}]\n  tasks:\n  - name: worker\n    replicas: 40\n"
    "    template:\n      metadata:\n        "
    + SHIELDS.replace("{", "{{").replace("}", "}}")
    + "      spec:\n"
    + indent(ON_SPOT, "        ").replace("{", "{{").replace("}", "}}")
    + "        containers: [{{name: main, image: 'trainer:1'}}]\n"
)

RULES = (
    Rule(
        id="rendezvous-on-spot",
        severity=Severity.WARNING,
        title="Training that meets at a pod on spot",
        why="With c10d one pod keeps the rendezvous. If its node is reclaimed, all others start again, not only the pod "
        "that was lost; and where all ranks have one template, that pod cannot be on on-demand alone.",
        fix="Give the rendezvous separate pods on on-demand and name them in the endpoint: a Master with rdzvHost, or a "
        "replicated job leader with one pod that runs the same command (--rdzv-endpoint JOBSET-leader-0-0.JOBSET:29400).",
        fails=_a_set(_VARIABLE + _TORCHRUN.format(job="workers")),
        passes=_a_set(_VARIABLE + _TORCHRUN.format(job="leader"), leader=True),
        checks=Checks(objects=_elastic, pods=_shared_template),
        place_says=True,
        source="kubeflow/trainer#1638",
    ),
    Rule(
        id="torchrun-shares-store",
        severity=Severity.NOTE,
        title=f"torchrun that meets by c10d or restarts ranks, without {_NAME}",
        why=f"{SHARES_ITS_STORE[0].upper()}{SHARES_ITS_STORE[1:]}. place and the controller set the variable where torchrun is "
        f"visibly started, so that {TORCHRUN_REASON}; a value that is there stays.",
        fix=f'Set {_NAME} to "1" in the container that starts torchrun, and leave out --master-port, --master-addr and '
        "--node-rank: with them torchrun does not read it.",
        fails=_a_set(_TORCHRUN.format(job="leader"), leader=True),
        passes=_a_set(_VARIABLE + _TORCHRUN.format(job="leader"), leader=True),
        checks=Checks(pods=_shared_store),
        source="PyTorch 2.15, torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
    ),
    Rule(
        id="in-place-restart-refused",
        severity=Severity.ERROR,
        title="A set that restarts in place, with fields that JobSet refuses",
        why="JobSet's webhook refuses the set: its Jobs must replace a failed pod without end, and only when it has failed. It "
        f"refuses every such set where its feature gate {IN_PLACE} is off, which is the default.",
        fix=f"Write backoffLimit: {_MOST}, podReplacementPolicy: Failed and equal completions and parallelism, or leave "
        "restartStrategy out: then the whole set restarts.",
        fails=_a_set(policy=_IN_PLACE, job="backoffLimit: 6\npodReplacementPolicy: Failed\n", pod=_AGENT),
        passes=_a_set(policy=_IN_PLACE, job=_AS_DEMANDED, pod=_AGENT),
        checks=Checks(objects=_refused_in_place),
        source="jobset v0.12, pkg/webhooks/jobset_webhook.go",
    ),
    Rule(
        id="one-loss-restarts-all",
        severity=Severity.WARNING,
        title="One lost pod restarts all pods that could go on without it",
        why="With minAvailable below its pods the others need not stop. RestartTask and RestartJob stop them, and each "
        "interruption costs the work of all.",
        fix="Write action RestartPod for PodEvicted and PodFailed, or leave the policies to place.",
        fails=_VOLCANO.format(action="RestartTask"),
        passes=_VOLCANO.format(action="RestartPod"),
        checks=Checks(objects=_restarts_all),
        source="volcano-sh/volcano v1.15.1, pkg/controllers/job",
    ),
    Rule(
        id="in-place-restart-without-agent",
        severity=Severity.WARNING,
        title="A set that restarts in place, without the agent that does it",
        why="JobSet's controller starts no containers again: its agent in each pod does, and lets the training begin when all "
        "pods are there. Without it the lost pod alone is made again, and the others wait for it or fail.",
        fix="Add the agent with its restartPolicyRules and the right to patch pods (Kubernetes 1.35 or newer), or leave "
        "restartStrategy out: then the whole set restarts.",
        fails=_a_set(policy=_IN_PLACE, job=_AS_DEMANDED),
        passes=_a_set(policy=_IN_PLACE, job=_AS_DEMANDED, pod=_AGENT),
        checks=Checks(objects=_without_agent),
        place_says=True,
        source="jobset v0.12, site/static/examples/in-place-restart",
    ),
)
"""The rules of this module."""
