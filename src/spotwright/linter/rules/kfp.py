"""Rules on compiled pipelines: retries that KFP does not make, affinity that it reads differently, settings of unknown executors.

Tried on KFP 2.15.0, 2.16.1 and 2.17.0 with Argo 3.7.3 and 4.0.5; docs/kinds/kfp.md says more. Sources:
kubeflow/pipelines ``argocompiler/container.go``, ``backend/src/v2/driver/k8s.go``; #13452, #14245.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spotwright.kfp.compiled import merged_executors
from spotwright.kinds.kfp_tasks import backend_of
from spotwright.linter.rule import KFP_ON_SPOT, KFP_TASK, Checks, Problem, Rule, Severity, kfp
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import Pipeline, Task, is_whole, items_of, mapping_at, mapping_of, pipeline_pods
from spotwright.model.quantities import parse_duration
from spotwright.placing.document_pair import EXECUTORS, PLATFORMS

__all__ = ["RULES"]


_FIRST_RETRIES = (2, 5)
_SHORTEST_WINDOW = 24 * 3600
"""Seconds in which all attempts of a task should have room; the SDK's default is 3600."""


def _on_spot(pipeline: Pipeline, settings: Settings) -> set[str]:
    """The labels of the executors whose pods ask for spot nodes, by themselves or by their policy."""
    every = pipeline_pods(pipeline, settings)
    return {pods.role for pods in every if pods.asks_for_spot or pods.wish in ("prefer", "require")}


def _retries(task: Task) -> int:
    count: Any = (task.retry or {}).get("maxRetryCount")
    is_number = is_whole(count) or (isinstance(count, float) and count.is_integer())
    return int(count) if is_number or (isinstance(count, str) and count.isdecimal()) else 0


def _window(pipeline: Pipeline, settings: Settings) -> Iterator[Problem]:
    labels = _on_spot(pipeline, settings)
    for task in pipeline.tasks():
        if task.retry is None or not _retries(task) or task.label not in labels:
            continue
        given = task.retry.get("backoffMaxDuration", "3600s")
        try:
            seconds = parse_duration(given)
        except ValueError:
            continue  # compile and run refuse it
        if seconds < _SHORTEST_WINDOW:
            text = f"{task.name} may be retried only until {seconds:g} s after its first start, and a later "
            text += "attempt is killed then"
            path = (
                (*task.path, "retryPolicy", "backoffMaxDuration")
                if "backoffMaxDuration" in task.retry
                else (*task.path, "retryPolicy")
            )
            yield Problem(path, text)


def _factor(pipeline: Pipeline, _settings: Settings) -> Iterator[Problem]:
    for task in pipeline.tasks():
        factor = (task.retry or {}).get("backoffFactor")
        if isinstance(factor, float) and not factor.is_integer():
            yield Problem(
                (*task.path, "retryPolicy", "backoffFactor"), f"{task.name} has the backoff factor {factor:g}"
            )


def _not_retried(pipeline: Pipeline, settings: Settings) -> Iterator[Problem]:
    asking = {pods.role for pods in pipeline_pods(pipeline, settings) if pods.asks_for_spot and not pods.wish}
    for task in pipeline.tasks():
        if task.label in asking and not _retries(task) and not task.inherits:
            yield Problem(task.path, f"{task.name} runs on spot without retries, so a drained node fails the pipeline")


def _void(pipeline: Pipeline, settings: Settings) -> Iterator[Problem]:
    """Retries that the target's backend does not make: old ones none at all, new ones not in their stock configuration."""
    backend = backend_of(settings.target)
    is_old = backend.version < _FIRST_RETRIES
    if backend.is_assumed or not (is_old or backend.is_stock):
        return
    labels = _on_spot(pipeline, settings)
    tasks = [task for task in pipeline.tasks() if _retries(task) and task.label in labels]
    if tasks:
        names = ", ".join(task.name for task in tasks[:3]) + (" and others" if len(tasks) > 3 else "")
        which = "" if is_old else " as its manifests install it"
        text = f"KFP {settings.target['kfp']}{which} does not make the retries of {names}"
        fix = "Upgrade the backend: 2.5 is the first that reads retries." if is_old else ""
        yield Problem((*tasks[0].path, "retryPolicy"), text, fix)


def _ored(pipeline: Pipeline, _settings: Settings) -> Iterator[Problem]:
    """Several required affinities of one executor, each of which is a separate alternative."""
    for label in pipeline.executors:
        path = (*pipeline.settings_at(label), "nodeAffinity")
        given = items_of(mapping_at(pipeline.platforms, *EXECUTORS, label).get("nodeAffinity"))
        required = [index for index, one in enumerate(given) if _is_required(one)]
        if len(required) > 1:
            yield Problem(
                (*path, required[1]),
                f"the {pipeline.noun} {label} has {len(required)} required node affinities, of which one is enough",
            )


def _is_required(entry: Any) -> bool:
    one = mapping_of(entry)
    return "nodeAffinityJson" not in one and not one.get("weight") and bool(one.get("matchExpressions"))


def _merged(pipeline: Pipeline, _settings: Settings) -> Iterator[Problem]:
    for merged in merged_executors(pipeline.value):
        path = (0, "components", merged.components[0], "executorLabel")
        those = " and ".join(merged.components)
        text = f"the components {those} share the executor {merged.label}, and {', '.join(merged.unused)} is left over"
        yield Problem(path, text)


def _unheard(pipeline: Pipeline, _settings: Settings) -> Iterator[Problem]:
    """A platform document without the part that KFP knows: KFP then reads it as the pipeline itself."""
    if pipeline.platforms and "kubernetes" not in pipeline.platforms:
        names = ", ".join(pipeline.platforms)
        yield Problem(
            PLATFORMS, f"the platform document has {names} and no kubernetes, so KFP takes it for the pipeline"
        )


def _orphans(pipeline: Pipeline, _settings: Settings) -> Iterator[Problem]:
    """Settings of Kubernetes for an executor that the pipeline does not have."""
    known = pipeline.executors
    for label in mapping_at(pipeline.platforms, "kubernetes", "deploymentSpec", "executors"):
        if known and label not in known:
            yield Problem(
                pipeline.settings_at(label),
                f"there are settings for the executor {label}, which the pipeline does not have",
            )


_SHORT = "retryPolicy: {maxRetryCount: 3, backoffDuration: 60s, backoffFactor: 2, backoffMaxDuration: 3600s}\n"
_TWO = KFP_ON_SPOT.partition("nodeAffinity")[0] + (
    "nodeAffinity:\n"
    "- matchExpressions:\n  - {key: kubernetes.azure.com/scalesetpriority, operator: In, values: [spot]}\n"
    "- matchExpressions:\n  - {key: kubernetes.azure.com/agentpool, operator: In, values: [gpu]}\n"
)
_ONE = _TWO.replace(
    "- matchExpressions:\n  - {key: kubernetes.azure.com/agentpool", "  - {key: kubernetes.azure.com/agentpool"
)
_META = ("podMetadata:\n", "podMetadata:\n  labels: {spotwright.dev/spot: require}\n")

RULES = (
    Rule(
        id="kfp-no-retries",
        severity=Severity.WARNING,
        title="A task on spot without retries",
        why="A drain or a delete of its pod fails the task and the run. (A node that goes without a word is another "
        "matter: the backend makes that pod again, uncounted.)",
        fix="task.set_retry(num_retries=5, backoff_duration='60s', backoff_max_duration='30d').",
        fails=kfp(task=""),
        passes=kfp(),
        checks=Checks(pipelines=_not_retried),
    ),
    Rule(
        id="kfp-retry-window",
        severity=Severity.WARNING,
        title="Retries that end an hour after the first start",
        why="backoffMaxDuration does not limit one wait: it counts from the first start of the task. After it no "
        "attempt begins, and a running one is killed. The SDK writes 3600s by default.",
        fix="set_retry(..., backoff_max_duration='30d'); before kfp 2.17 the SDK cuts it to an hour.",
        fails=kfp(_SHORT),
        passes=kfp(),
        checks=Checks(pipelines=_window),
        source="kubeflow/pipelines#14245, #13452",
    ),
    Rule(
        id="kfp-backoff-factor",
        severity=Severity.ERROR,
        title="A backoff factor that is not a whole number",
        why="Argo reads the factor as a whole number and ends the task with an error at its first retry.",
        fix="Write 1, 2 or another whole number.",
        fails=kfp(KFP_TASK.replace("backoffFactor: 2", "backoffFactor: 1.5")),
        passes=kfp(),
        checks=Checks(pipelines=_factor),
        place_says=True,
        source="argo-workflows, util/intstr",
    ),
    Rule(
        id="kfp-retries-void",
        severity=Severity.WARNING,
        title="Retries that this KFP does not make",
        why="The manifests of KFP 2.17 merge retryPolicy OnError into every template: errors of the code and drained "
        "pods are then not retried, whatever the pipeline says (seen on 2.17.0). On 2.16 they are. Backends before 2.5 "
        "read no retries at all.",
        fix="Let the admin set COMPILED_PIPELINE_SPEC_PATCH as spotwright explain prints it, then write "
        "target.kfp_retries: always.",
        fails=kfp(),
        passes=kfp(platform=""),
        checks=Checks(pipelines=_void),
        place_says=True,
        config="version: 1\ntarget: {kfp: '2.17'}\n",
        source="kubeflow/pipelines#13485, #9950; tried on 2.16.1 and 2.17.0",
    ),
    Rule(
        id="kfp-affinities-ored",
        severity=Severity.ERROR,
        title="Several required node affinities of one task",
        why="Each call of add_node_affinity becomes a separate term, and terms are alternatives: the pod also goes "
        "to nodes that meet only one of them.",
        fix="Give all conditions to one call: add_node_affinity(task, match_expressions=[..., ...]).",
        fails=kfp(platform=_TWO.replace(*_META)),
        passes=kfp(platform=_ONE.replace(*_META)),
        checks=Checks(pipelines=_ored),
        place_says=True,
        source="kubeflow/pipelines, backend/src/v2/driver/k8s.go",
    ),
    Rule(
        id="kfp-executors-merged",
        severity=Severity.ERROR,
        title="Two components that the compiler gave one executor",
        why="The SDK mixes up executors of nested pipelines, at random: a component then runs with the image, "
        "resources and settings of another.",
        fix="Compile again (spotwright compile does it until it is right), or give the functions distinct names.",
        fails=kfp()
        .replace(
            "  comp-train: {executorLabel: exec-train}\n",
            "  comp-train: {executorLabel: exec-train}\n  comp-train-2: {executorLabel: exec-train}\n",
        )
        .replace("pipelineInfo:", "    exec-train-2: {container: {image: python:3.12}}\npipelineInfo:"),
        passes=kfp(),
        checks=Checks(pipelines=_merged),
        place_says=True,
    ),
    Rule(
        id="kfp-platform-alone",
        severity=Severity.ERROR,
        title="A platform document without kubernetes",
        why="The API server of KFP recognizes the second document by platforms.kubernetes; without it, it takes it for "
        "the pipeline itself.",
        fix="Keep platforms.kubernetes beside every other platform.",
        fails=kfp(platform="").partition("platforms:")[0] + "platforms:\n  other: {deploymentSpec: {}}\n",
        passes=kfp(),
        checks=Checks(pipelines=_unheard),
    ),
    Rule(
        id="kfp-executor-unknown",
        severity=Severity.WARNING,
        title="Settings for an executor that the pipeline does not have",
        why="They have no effect: the labels of executors change when a pipeline is compiled again.",
        fix="Compile the pipeline again, with its settings in Python.",
        fails=kfp(platform="{}\n").replace("        exec-train:\n          {}\n", "        exec-training: {}\n"),
        passes=kfp(),
        checks=Checks(pipelines=_orphans),
    ),
)
"""The rules of this module."""
