"""Fields that the API does not have, or has at another level: each is named with what to write, in every kind."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.linter.linting import found_in, linted, settings
from tests.placing.placed import place

from spotwright.linter.api_types import nearly
from spotwright.linter.linting import fixed_text
from spotwright.linter.rule import Severity, job, pod

MISSPELT = "field-unknown"
MISPLACED = "field-at-wrong-level"
TERM = "matchExpressions: [{key: gpu, operator: Exists}]"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def told(text: str, *rules: str) -> list[tuple[str, str, str]]:
    """The findings of some rules: each with its field without the path of the pods, and its fix."""
    wanted = rules or (MISSPELT, MISPLACED)
    return [
        (one.rule, one.field.removeprefix("spec.template.spec."), one.fix)
        for one in found_in(text)
        if one.rule in wanted
    ]


def affinity(inner: str) -> str:
    return job(f"affinity: {{{inner}}}\n")


def required(term: str) -> str:
    return affinity(f"nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{{{term}}}]}}}}")


@pytest.mark.parametrize(
    ("text", "field", "fix"),
    [
        (required(TERM.replace("Expressions", "Expression")), "matchExpression", "Write matchExpressions."),
        (required("matchLabels: {gpu: a}"), "matchLabels", "Write matchFields."),
        (required(f"weight: 1, {TERM}"), "weight", "preferredDuringSchedulingIgnoredDuringExecution[0].weight."),
        (required(f"preference: {{{TERM}}}"), "preference", "Write its matchExpressions here"),
        (required(TERM.replace("operator", "operater")), "operater", "Write operator."),
        (required(TERM.replace("operator: Exists", "operator: In, value: [a]")), "value", "Write values."),
        (
            affinity(f"nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerm: [{{{TERM}}}]}}}}"),
            "nodeSelectorTerm",
            "Write nodeSelectorTerms.",
        ),
        (
            affinity(f"nodeAffinity: {{requiredDuringScheduling: {{nodeSelectorTerms: [{{{TERM}}}]}}}}"),
            "requiredDuringScheduling",
            f"Write {REQUIRED}.",
        ),
        (
            affinity(
                f"nodeAffinity: {{requiredDuringSchedulingRequiredDuringExecution: {{nodeSelectorTerms: [{{{TERM}}}]}}}}"
            ),
            "requiredDuringSchedulingRequiredDuringExecution",
            f"Write {REQUIRED}.",
        ),
        (
            affinity(f"nodeAffinity: {{nodeSelectorTerms: [{{{TERM}}}]}}"),
            "nodeSelectorTerms",
            f"{REQUIRED}.nodeSelectorTerms.",
        ),
        (affinity(f"{REQUIRED}: {{nodeSelectorTerms: [{{{TERM}}}]}}"), REQUIRED, f"affinity.nodeAffinity.{REQUIRED}."),
        (affinity("nodeAntiAffinity: {}"), "nodeAntiAffinity", "Write nodeAffinity with the operator NotIn."),
        (affinity("podAntiafinity: {}"), "podAntiafinity", "Write podAntiAffinity."),
        (affinity("nodeaffinity: {}"), "nodeaffinity", "Write nodeAffinity."),
        (
            affinity(f"nodeAffinity: {{{PREFERRED}: [{{weight: 1, preferences: {{{TERM}}}}}]}}"),
            "preferences",
            "Write preference.",
        ),
        (
            affinity(f"nodeAffinity: {{{PREFERRED}: [{{weight: 1, {TERM}}}]}}"),
            "matchExpressions",
            "preference.matchExpressions.",
        ),
        (
            affinity(f"podAntiAffinity: {{{REQUIRED}: [{{podAffinityTerm: {{topologyKey: a}}}}]}}"),
            "podAffinityTerm",
            "Write its fields here",
        ),
        (
            affinity(f"podAntiAffinity: {{{REQUIRED}: [{{topologykey: a, labelSelector: {{}}}}]}}"),
            "topologykey",
            "Write topologyKey.",
        ),
        (job("tolerations: [{key: a, operator: Exists, effects: NoSchedule}]\n"), "effects", "Write effect."),
        (job("toleration: [{key: a, operator: Exists}]\n"), "toleration", "Write tolerations."),
        (job("nodeselector: {a: b}\n"), "nodeselector", "Write nodeSelector."),
        (job("node_selector: {a: b}\n"), "node_selector", "Write nodeSelector."),
        (job("terminationGracePeriod: 20\n"), "terminationGracePeriod", "Write terminationGracePeriodSeconds."),
        (job("nodeAffinity: {}\n"), "nodeAffinity", "Write it under spec.template.spec.affinity.nodeAffinity."),
        (job(f"{REQUIRED}: {{}}\n"), REQUIRED, f"affinity.nodeAffinity.{REQUIRED}."),
        (
            job("topologySpreadConstraints: [{maxSkew: 1, topologyKeys: a, whenUnsatisfiable: DoNotSchedule}]\n"),
            "topologyKeys",
            "Write topologyKey.",
        ),
        (job(container="resource: {limits: {nvidia.com/gpu: 1}}\n"), "resource", "Write resources."),
        (job(container="limits: {nvidia.com/gpu: 1}\n"), "limits", "resources.limits."),
        (job(container="resources: {limit: {nvidia.com/gpu: 1}}\n"), "limit", "Write limits."),
    ],
)
def test_a_misspelt_field_of_a_pod_is_found_with_the_right_one(text: str, field: str, fix: str) -> None:
    [(rule, at, advice)] = told(text)

    assert rule == MISSPELT
    assert at.rpartition(".")[2] == field
    assert fix in advice


def test_a_mapping_where_a_list_belongs_is_refused() -> None:
    [finding] = [
        one for one in found_in(affinity(f"podAffinity: {{{REQUIRED}: {{topologyKey: a}}}}")) if one.rule == MISSPELT
    ]
    assert finding.text == "this has another shape, so it is refused"
    assert finding.fix == "Write a list: begin each item with a hyphen."
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    "text",
    [
        job("activeDeadlineSeconds: 5\npriorityClassName: a\npreemptionPolicy: Never\nhostUsers: false\n"),
        job(
            "nodeName: a\nreadinessGates: []\nresources: {limits: {cpu: 1}}\nresourceClaims: []\nschedulingGates: []\n"
        ),
        affinity(
            f"podAntiAffinity: {{{PREFERRED}: [{{weight: 1, podAffinityTerm: {{topologyKey: a, matchLabelKeys: [b], "
            "mismatchLabelKeys: [c], namespaceSelector: {}, labelSelector: {matchLabels: {a: b}}}}]}"
        ),
        job("tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]\n"),
        job(container="resources: {limits: {cpu: 1}, requests: {cpu: 1}, claims: []}\nresizePolicy: []\n"),
        pod("affinity: {}\n", kind="StatefulSet"),
    ],
)
def test_fields_that_the_api_has_are_no_finding(text: str) -> None:
    assert told(text) == []


def test_a_text_where_a_mapping_belongs_is_refused() -> None:
    [(rule, _, fix)] = told(of_kind("SparkApplication", "spec", "{restartPolicy: OnFailure}"))
    assert rule == MISSPELT
    assert fix.startswith("Write a mapping with type, onFailureRetries")
    assert told(workflow("{retryStrategy: '{{inputs.parameters.retry}}'}")) == []


def test_names_are_near_only_where_they_are_nearly_equal() -> None:
    assert nearly("nodeSelectors", ["nodeSelector"]) == "nodeSelector"
    assert nearly("node-selector", ["nodeSelector"]) == "nodeSelector"
    assert nearly("nodeSelector", ["nodeSelector"]) is None
    assert nearly("nodeName", ["nodeSelector"]) is None
    assert nearly("x" * 10_000, ["nodeSelector"]) is None


def workflow(template: str = "", spec: str = "", task: str = "", *, cron: bool = False) -> str:
    inner = {
        "entrypoint": "main",
        **yaml.safe_load(spec or "{}"),
        "templates": [
            {"name": "main", "dag": {"tasks": [{"name": "a", "template": "work", **yaml.safe_load(task or "{}")}]}},
            {
                "name": "work",
                "container": {"image": "a:1", "command": ["a"]},
                **yaml.safe_load(template or "{}"),
            },
        ],
    }
    kind = "CronWorkflow" if cron else "Workflow"
    body = {"schedules": ["0 3 * * *"], "workflowSpec": inner} if cron else inner
    return yaml.safe_dump(
        {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": body}, sort_keys=False
    )


@pytest.mark.parametrize(
    ("text", "rule", "field", "fix"),
    [
        (
            workflow("{retryStrategy: {limit: 3}, retryPolicy: Always}"),
            MISPLACED,
            "retryPolicy",
            "Write it under spec.templates[1].retryStrategy.",
        ),
        (
            workflow("{retryStrategy: {limit: 3}, backoff: {duration: 1m}}"),
            MISPLACED,
            "backoff",
            "Write it under spec.templates[1].retryStrategy.",
        ),
        (
            workflow(spec="{retryPolicy: Always}"),
            MISPLACED,
            "retryPolicy",
            "Write it under spec.templates[].retryStrategy.",
        ),
        (
            workflow(task="{retryStrategy: {limit: 3}}"),
            MISPLACED,
            "retryStrategy",
            "Write it as spec.templates[1].retryStrategy.",
        ),
        (workflow(task="{retries: 3}"), MISPLACED, "retries", "Write spec.templates[1].retryStrategy."),
        (
            workflow(task="{nodeSelector: {a: b}}"),
            MISPLACED,
            "nodeSelector",
            "Write it under spec.templates[1].nodeSelector.",
        ),
        (
            workflow("{container: {image: a, tolerations: []}}"),
            MISPLACED,
            "tolerations",
            "Write it under spec.templates[1].tolerations.",
        ),
        (
            workflow("{container: {image: a, retryStrategy: {limit: 1}}}"),
            MISPLACED,
            "retryStrategy",
            "Write it as spec.templates[1].retryStrategy.",
        ),
        (workflow("{backoffLimit: 4}"), MISPLACED, "backoffLimit", "Write spec.templates[1].retryStrategy."),
        (workflow("{retryStrategy: {limit: 3, retryOn: Always}}"), MISSPELT, "retryOn", "Write retryPolicy."),
        (workflow("{retryStrategy: {limit: 3, maxDuration: 1m}}"), MISSPELT, "maxDuration", "backoff.maxDuration."),
        (workflow("{retryStrategy: {retries: 3}}"), MISSPELT, "retries", "Write limit."),
        (workflow("{retryStrategy: {limits: 3}}"), MISSPELT, "limits", "Write limit."),
        (workflow("{retryStrategy: {limit: 3, backoff: {interval: 1m}}}"), MISSPELT, "interval", "Write duration."),
        (
            workflow("{retryStrategy: {affinity: {nodeAffinity: {}}}}"),
            MISSPELT,
            "nodeAffinity",
            "Write nodeAntiAffinity.",
        ),
        (workflow("{retrystrategy: {limit: 3}}"), MISSPELT, "retrystrategy", "Write retryStrategy."),
        (workflow("{affinity: {nodeAntiAffinity: {}}}"), MISSPELT, "nodeAntiAffinity", "Write nodeAffinity with"),
        (
            workflow("{retryPolicy: Always}", cron=True),
            MISPLACED,
            "retryPolicy",
            "Write it under spec.workflowSpec.templates[1].retryStrategy.",
        ),
    ],
)
def test_retries_of_argo_at_a_wrong_level_or_misspelt_are_found(text: str, rule: str, field: str, fix: str) -> None:
    found = [one for one in told(text) if one[1].rpartition(".")[2] == field]

    assert [one[0] for one in found] == [rule]
    assert fix in found[0][2]


def test_retries_of_argo_that_are_right_are_no_finding() -> None:
    strategy = (
        "retryStrategy: {limit: 3, retryPolicy: Always, expression: 'true', affinity: {nodeAntiAffinity: {}}, "
        "backoff: {duration: 1m, factor: 2, maxDuration: 1h, cap: 5m}}"
    )
    for text in (workflow(f"{{{strategy}}}"), workflow(spec=f"{{{strategy}}}"), workflow(f"{{{strategy}}}", cron=True)):
        assert told(text) == []
    assert told(workflow("{containerSet: {retryStrategy: {retries: 3}, containers: [{name: a, image: a}]}}")) == []


POD = "{spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}"
KINDS = {
    "Job": ("batch/v1", "{template: %s}"),
    "CronJob": ("batch/v1", "{schedule: '0 3 * * *', jobTemplate: {spec: {template: %s}}}"),
    "Pod": ("v1", "{containers: [{name: a, image: a}]}"),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        "{failurePolicy: {maxRestarts: 1}, replicatedJobs: [{name: w, template: {spec: {template: %s}}}]}",
    ),
    "PyTorchJob": ("kubeflow.org/v1", "{pytorchReplicaSpecs: {Worker: {replicas: 1, template: %s}}}"),
    "Volcano": ("batch.volcano.sh/v1alpha1", "{tasks: [{name: w, replicas: 1, template: %s}]}"),
    "RayJob": (
        "ray.io/v1",
        "{rayClusterSpec: {headGroupSpec: {template: %s}, workerGroupSpecs: [{groupName: g, template: %s}]}}",
    ),
    "SparkApplication": ("sparkoperator.k8s.io/v1beta2", "{driver: {cores: 1}, executor: {cores: 1}}"),
    "ScheduledSparkApplication": (
        "sparkoperator.k8s.io/v1beta2",
        "{template: {driver: {cores: 1}, executor: {cores: 1}}}",
    ),
    "PipelineRun": (
        "tekton.dev/v1",
        "{pipelineSpec: {tasks: [{name: t, taskSpec: {steps: [{name: s, image: a}]}}]}}",
    ),
    "TaskRun": ("tekton.dev/v1", "{taskSpec: {steps: [{name: s, image: a}]}}"),
}


def of_kind(kind: str, at: str, field: str) -> str:
    """An object of a kind with one more field at a level: ``spec.tasks.0``."""
    version, body = KINDS[kind]
    value = {
        "apiVersion": version,
        "kind": "Job" if kind == "Volcano" else kind,
        "metadata": {"name": "a"},
        "spec": yaml.safe_load(body.replace("%s", POD)),
    }
    level: Any = value
    for step in at.split("."):
        level = level[int(step)] if step.isdigit() else level.setdefault(step, {})
    level.update(yaml.safe_load(field))
    return yaml.safe_dump(value, sort_keys=False)


@pytest.mark.parametrize(
    ("kind", "at", "field", "fix"),
    [
        ("Job", "spec.template.spec", "{backoffLimit: 3}", "Write it under spec.backoffLimit."),
        ("Job", "spec.template", "{backoffLimit: 3}", "Write it under spec.backoffLimit."),
        ("Job", "spec", "{retries: 3}", "Write spec.backoffLimit."),
        ("Job", "spec", "{maxRetries: 3}", "Write spec.backoffLimit."),
        ("Job", "spec.template.spec.containers.0", "{backoffLimit: 3}", "Write it as spec.backoffLimit."),
        ("CronJob", "spec", "{backoffLimit: 3}", "Write it under spec.jobTemplate.spec.backoffLimit."),
        ("CronJob", "spec.jobTemplate", "{backoffLimit: 3}", "Write it under spec.jobTemplate.spec.backoffLimit."),
        (
            "CronJob",
            "spec",
            "{activeDeadlineSeconds: 3}",
            "Write it under spec.jobTemplate.spec.activeDeadlineSeconds.",
        ),
        (
            "JobSet",
            "spec",
            "{activeDeadlineSeconds: 3}",
            "Write it under spec.replicatedJobs.template.spec.activeDeadlineSeconds.",
        ),
        ("Job", "spec.template", "{activeDeadlineSeconds: 3}", "Write it under spec.activeDeadlineSeconds."),
        ("Pod", "spec", "{backoffLimit: 3}", "Make the Pod the template of a Job: a bare Pod is not recreated."),
        ("JobSet", "spec", "{maxRestarts: 3}", "Write it as spec.failurePolicy.maxRestarts."),
        ("JobSet", "spec.replicatedJobs.0", "{failurePolicy: {maxRestarts: 3}}", "Write it as spec.failurePolicy."),
        (
            "JobSet",
            "spec.replicatedJobs.0.template.spec",
            "{maxRestarts: 3}",
            "Write it as spec.failurePolicy.maxRestarts.",
        ),
        ("PyTorchJob", "spec", "{backoffLimit: 3}", "Write it under spec.runPolicy.backoffLimit."),
        (
            "PyTorchJob",
            "spec",
            "{restartPolicy: ExitCode}",
            "Write it under spec.pytorchReplicaSpecs.Worker.restartPolicy.",
        ),
        (
            "PyTorchJob",
            "spec.runPolicy",
            "{restartPolicy: ExitCode}",
            "Write it under spec.pytorchReplicaSpecs.Worker.restartPolicy.",
        ),
        (
            "PyTorchJob",
            "spec.pytorchReplicaSpecs.Worker",
            "{backoffLimit: 3}",
            "Write it under spec.runPolicy.backoffLimit.",
        ),
        (
            "PyTorchJob",
            "spec.pytorchReplicaSpecs.Worker.template.spec",
            "{backoffLimit: 3}",
            "Write it under spec.runPolicy.backoffLimit.",
        ),
        ("Volcano", "spec", "{backoffLimit: 3}", "Write spec.maxRetry."),
        ("Volcano", "spec.tasks.0.template.spec", "{maxRetry: 3}", "Write it as spec.maxRetry."),
        ("RayJob", "spec.rayClusterSpec", "{backoffLimit: 3}", "Write it as spec.backoffLimit."),
        ("RayJob", "spec.rayClusterSpec.workerGroupSpecs.0", "{backoffLimit: 3}", "Write it as spec.backoffLimit."),
        ("SparkApplication", "spec", "{onFailureRetries: 3}", "Write it as spec.restartPolicy.onFailureRetries."),
        (
            "SparkApplication",
            "spec.executor",
            "{onFailureRetries: 3}",
            "Write it as spec.restartPolicy.onFailureRetries.",
        ),
        ("SparkApplication", "spec", "{tolerations: []}", "Write it under spec.executor.tolerations."),
        ("SparkApplication", "spec.driver", "{restartPolicy: {type: Never}}", "Write it under spec.restartPolicy."),
        ("ScheduledSparkApplication", "spec", "{tolerations: []}", "Write it under spec.template.tolerations."),
        ("PipelineRun", "spec", "{retries: 3}", "Write it as spec.pipelineSpec.tasks[].retries."),
        (
            "PipelineRun",
            "spec.pipelineSpec.tasks.0.taskSpec",
            "{retries: 3}",
            "Write it as spec.pipelineSpec.tasks[0].retries.",
        ),
        (
            "PipelineRun",
            "spec.pipelineSpec.tasks.0",
            "{retryStrategy: {}}",
            "Write spec.pipelineSpec.tasks[0].retries.",
        ),
        ("PipelineRun", "spec", "{tolerations: []}", "Write it under spec.taskRunTemplate.podTemplate.tolerations."),
        ("PipelineRun", "spec", "{podTemplate: {}}", "Write it under spec.taskRunTemplate.podTemplate."),
        ("TaskRun", "spec", "{nodeSelector: {a: b}}", "Write it under spec.podTemplate.nodeSelector."),
        ("TaskRun", "spec.taskSpec", "{retries: 3}", "Write it as spec.retries."),
    ],
)
def test_retries_and_placement_at_a_wrong_level_are_found_in_every_kind(
    kind: str, at: str, field: str, fix: str
) -> None:
    [(rule, path, advice)] = told(of_kind(kind, at, field))

    assert rule == MISPLACED
    assert path.endswith(next(iter(yaml.safe_load(field))))
    assert advice == fix


@pytest.mark.parametrize(
    ("kind", "at", "field", "fix"),
    [
        ("Job", "spec", "{backOffLimit: 3}", "Write backoffLimit."),
        ("Job", "spec", "{podFailurePolicy: {rule: []}}", "Write rules."),
        (
            "Job",
            "spec",
            "{podFailurePolicy: {rules: [{action: Ignore, onPodCondition: []}]}}",
            "Write onPodConditions.",
        ),
        ("JobSet", "spec", "{failurePolicy: {maxRestart: 3}}", "Write maxRestarts."),
        (
            "JobSet",
            "spec",
            "{failurePolicy: {backoffLimit: 3}}",
            "The fields here are maxRestarts, restartStrategy, rules.",
        ),
        ("PyTorchJob", "spec", "{runpolicy: {}}", "Write runPolicy."),
        ("PyTorchJob", "spec", "{runPolicy: {backofflimit: 3}}", "Write backoffLimit."),
        ("PyTorchJob", "spec", "{elasticPolicy: {maxRestart: 3}}", "Write maxRestarts."),
        ("Volcano", "spec", "{policies: [{evnt: PodEvicted, action: RestartJob}]}", "Write event."),
        ("Volcano", "spec.tasks.0", "{policy: []}", "Write policies."),
        ("SparkApplication", "spec", "{restartPolicy: {type: OnFailure, retries: 3}}", "Write onFailureRetries."),
        ("PipelineRun", "spec.pipelineSpec.tasks.0", "{retrys: 3}", "Write retries."),
    ],
)
def test_misspelt_retries_are_found_in_every_kind(kind: str, at: str, field: str, fix: str) -> None:
    assert [(rule, advice) for rule, _, advice in told(of_kind(kind, at, field))] == [(MISSPELT, fix)]


@pytest.mark.parametrize(
    ("kind", "at", "field"),
    [
        ("Job", "spec", "{backoffLimit: 3, activeDeadlineSeconds: 5, suspend: true, completionMode: Indexed}"),
        ("Job", "spec", "{podFailurePolicy: {rules: [{action: Count, onExitCodes: {operator: In, values: [1]}}]}}"),
        ("JobSet", "spec", "{successPolicy: {operator: All}, startupPolicy: {}, coordinator: {}}"),
        ("PyTorchJob", "spec", "{runPolicy: {backoffLimit: 3, schedulingPolicy: {queue: a}}, nprocPerNode: auto}"),
        ("Volcano", "spec", "{maxRetry: 3, plugins: {}, policies: [{events: [PodEvicted], action: RestartTask}]}"),
        ("RayJob", "spec", "{backoffLimit: 3, submitterConfig: {backoffLimit: 2}, entrypoint: a}"),
        ("SparkApplication", "spec", "{nodeSelector: {a: b}, failureRetries: 3, retryInterval: 5}"),
        ("PipelineRun", "spec.pipelineSpec.tasks.0", "{retries: 3, timeout: 1h, onError: continue}"),
        ("TaskRun", "spec", "{retries: 3}"),
    ],
)
def test_retries_where_the_kind_has_them_are_no_finding(kind: str, at: str, field: str) -> None:
    assert told(of_kind(kind, at, field)) == []


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        (
            workflow("{retryStrategy: {limit: 3, retryPolicy: OnFail}}"),
            "retryPolicy OnFail; the values are Always, OnFailure, OnError, OnTransientError",
            "Write OnFailure.",
        ),
        (
            of_kind("PyTorchJob", "spec.pytorchReplicaSpecs.Worker", "{restartPolicy: exitCode}"),
            "restartPolicy exitCode; the values are Always, OnFailure, Never, ExitCode",
            "Write ExitCode.",
        ),
        (
            of_kind("Volcano", "spec", "{policies: [{event: PodEviction, action: RestartJob}]}"),
            "event PodEviction",
            "Write PodEvicted.",
        ),
        (
            of_kind("Volcano", "spec.tasks.0", "{policies: [{events: [Evicted], action: RestartJobs}]}"),
            "action RestartJobs",
            "Write RestartJob.",
        ),
        (
            of_kind("SparkApplication", "spec", "{restartPolicy: {type: OnError}}"),
            "type OnError; the values are Never, Always, OnFailure",
            "Write one of the values that the kind has.",
        ),
        (
            of_kind("JobSet", "spec", "{failurePolicy: {rules: [{name: a, action: RestartJobset}]}}"),
            "action RestartJobset",
            "Write RestartJobSet.",
        ),
        (
            of_kind("JobSet", "spec.replicatedJobs.0.template.spec.template.spec", "{restartPolicy: Always}"),
            "restartPolicy Always, which is refused: it is OnFailure or Never",
            "Write one of the values that the kind has.",
        ),
        (
            of_kind("Volcano", "spec.tasks.0.template.spec", "{restartPolicy: onFailure}"),
            "restartPolicy onFailure, which is refused: it is Always or OnFailure or Never",
            "Write OnFailure.",
        ),
        (
            of_kind("Volcano", "spec.tasks.0.template.spec", "{restartPolicy: ExitCode}"),
            "restartPolicy ExitCode, which is refused: it is Always or OnFailure or Never",
            "Write one of the values that the kind has.",
        ),
        (pod("restartPolicy: Never\n"), "restartPolicy Never, which is refused: it is Always", "Write Always."),
    ],
)
def test_a_word_for_retries_that_the_kind_does_not_have_is_found(text: str, said: str, fix: str) -> None:
    found = [one for one in found_in(text) if one.rule == "retry-value-unknown"]

    assert any(said in one.text and one.fix == fix for one in found)


def test_fix_writes_the_word_that_was_meant() -> None:
    text = workflow("{retryStrategy: {limit: 3, retryPolicy: always}}")

    assert "retryPolicy: Always" in fixed_text(text, linted(text), settings())


CONTAINERS = "containers: [{name: main, image: i}]"
WITHOUT_PODS = {
    "a policy": ("kyverno.io/v1", f"rules: [{{name: a, validate: {{pattern: {{spec: {{{CONTAINERS}}}}}}}}}]"),
    "a schema": (
        "apiextensions.k8s.io/v1",
        f"versions: [{{schema: {{openAPIV3Schema: {{default: {{template: {{spec: {{{CONTAINERS}}}}}}}}}}}}}]",
    ),
    "values": ("argoproj.io/v1alpha1", f"source: {{helm: {{valuesObject: {{{CONTAINERS}, spec: {{{CONTAINERS}}}}}}}}}"),
    "measures": ("metrics.k8s.io/v1beta1", "template: {spec: {containers: [{name: main, usage: {cpu: 1m}}]}}"),
    "no containers": ("example.com/v1", "template: {spec: {containers: []}}"),
    "no image": ("example.com/v1", "template: {spec: {containers: [{name: main, image: i}, {name: side}]}}"),
    "other containers": ("example.com/v1", f"registry: {{{CONTAINERS}}}"),
}


def of_unknown(api_version: str, kind: str, spec: str) -> str:
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"


def notes_of_pods(text: str) -> list[str]:
    return [one.fix for one in found_in(text) if one.rule == "pods-not-checked"]


@pytest.mark.parametrize("what", WITHOUT_PODS)
def test_an_object_without_pods_has_no_note_that_they_were_not_checked(what: str) -> None:
    api_version, spec = WITHOUT_PODS[what]
    assert notes_of_pods(of_unknown(api_version, "Unknown", spec)) == []


@pytest.mark.parametrize(
    ("api_version", "kind", "spec"),
    [
        ("kueue.x-k8s.io/v1beta1", "Workload", f"podSets: [{{name: main, template: {{spec: {{{CONTAINERS}}}}}}}]"),
        ("kubeflow.org/v1beta1", "Trial", f"runSpec: {{spec: {{template: {{spec: {{{CONTAINERS}}}}}}}}}"),
    ],
)
def test_the_pods_of_another_object_are_checked_there(api_version: str, kind: str, spec: str) -> None:
    text = of_unknown(api_version, kind, spec)
    assert notes_of_pods(text) == []
    [said] = place(text).messages
    assert said.endswith(f"{kind} a ({api_version}): this kind is not placed; it stays unchanged")
    assert notes_of_pods(text.replace(f"kind: {kind}", "kind: Unknown")) != []


@pytest.mark.parametrize(
    "path",
    ["spec.template.spec", "spec.worker.podTemplate", "spec.executor.podOverrides.spec", "spec.workerSpec", "spec"],
)
@pytest.mark.parametrize("image", ["i", '"{{ .Values.image }}"', '"${IMAGE}"'])
def test_pods_of_an_unknown_kind_are_found_by_their_form(path: str, image: str) -> None:
    spec = CONTAINERS.replace("image: i", f"image: {image}")
    for step in reversed(path.split(".")[1:]):
        spec = f"{step}: {{{spec}}}"
    [fix] = notes_of_pods(of_unknown("example.com/v1", "Unknown", spec))
    assert fix == f"Name the path of the pod spec: --pod-path {path}."
