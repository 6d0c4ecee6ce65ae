"""A rule of lint as data: what it finds, why that is bad on spot, what to do, and two examples that are its tests and its page.

A rule has a check for each sort of subject that it looks at. A check is a pure function of the subject and the settings; it
yields a problem for each place where the rule does not hold. Only the engine (:mod:`spotwright.linter.linting`) knows files,
comments that allow a finding, and severities. Examples are small complete manifests, made of the lines that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from textwrap import dedent, indent
from typing import Any, NamedTuple, TypeAlias

from spotwright.kinds.kind import kind_in
from spotwright.linter.python_source import PythonFile
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import KubeObject, Pipeline, Pods
from spotwright.model.not_judged import NotJudged
from spotwright.placing.documents import Path

__all__ = [
    "AKS_POOLS",
    "KFP_ON_SPOT",
    "KFP_TASK",
    "ON_SPOT",
    "PREFERS_SPOT",
    "SHIELDS",
    "TOLERATION",
    "Checks",
    "Finding",
    "Mend",
    "Problem",
    "Rename",
    "Rule",
    "Severity",
    "job",
    "kfp",
    "pod",
    "training_job",
]


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"  # it cannot work: the API server refuses or drops it, no node fits, or the file does not load
    WARNING = "warning"  # it works until the first interruption, or does not do what was asked for
    NOTE = "note"  # advice


class Mend(NamedTuple):
    """A safe fix of a document, as an edit of :class:`~spotwright.placing.patch.Editor`.

    ``kind`` is ``add``, ``extend`` or ``replace``.
    """

    kind: str
    path: Path
    value: Any


class Rename(NamedTuple):
    """A safe fix of a Python file: replaces ``old`` at a line (from 1) and a column (in characters, from 0)."""

    line: int
    column: int
    old: str
    new: str


class Problem(NamedTuple):
    """A place where a rule does not hold. In a document the place is a path, in a Python file a line (and no path).

    ``fix`` replaces the rule's advice where a more exact one is known. ``not_judged``: what no rule could check, if that is the
    problem.
    """

    path: Path
    text: str
    fix: str = ""
    mends: tuple[Mend, ...] = ()
    line: int = 0
    rename: Rename | None = None
    not_judged: NotJudged | None = None


class Finding(NamedTuple):
    """A problem in a file, for people and machines. ``field`` is the path of the value, empty in Python files."""

    rule: str
    severity: Severity
    file: str
    line: int
    field: str
    text: str
    fix: str
    can_fix: bool = False
    not_judged: NotJudged | None = None


class Checks(NamedTuple):
    """The functions of a rule, one for each sort of subject that it looks at."""

    pods: Callable[[Pods, Settings], Iterator[Problem]] | None = None
    objects: Callable[[KubeObject, Settings], Iterator[Problem]] | None = None
    pipelines: Callable[[Pipeline, Settings], Iterator[Problem]] | None = None
    python: Callable[[PythonFile, Settings], Iterator[Problem]] | None = None


Example: TypeAlias = str
"""The text of a small complete file: YAML, or Python if it begins with an import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. ``id`` never changes; ``why`` and ``fix`` are whole sentences for people.

    ``fails`` and ``passes`` are the examples; ``config`` is the ``spotwright.yaml`` beside them, if they need one. ``mends``:
    ``--fix`` changes the failing example. ``place_says``: ``place`` reports the same, so that placed objects are not reported
    again. ``source``: where the fact comes from.
    """

    id: str
    severity: Severity
    title: str
    why: str
    fix: str
    fails: Example
    passes: Example
    checks: Checks
    config: str = ""
    mends: bool = False
    place_says: bool = False
    source: str = ""

    @property
    def is_python(self) -> bool:
        """Whether the examples are Python files."""
        return self.checks.python is not None and self.checks.pipelines is None and self.checks.pods is None


AKS_POOLS = """\
version: 1
pools:
  spot: {capacity: spot, provider: aks}
  regular: {capacity: on-demand, provider: aks}
"""
"""A configuration with a spot pool and an on-demand pool on AKS."""

TOLERATION = """\
tolerations:
- {key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}
"""
"""Lets pods on the spot nodes of AKS."""

PREFERS_SPOT = """\
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      preference:
        matchExpressions:
        - {key: kubernetes.azure.com/scalesetpriority, operator: In, values: [spot]}
"""
"""Prefers the spot nodes of AKS."""

ON_SPOT = TOLERATION + PREFERS_SPOT
"""The lines of a pod that prefers spot nodes of AKS and may run on them."""

SHIELDS = (
    'annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: "false", karpenter.sh/do-not-disrupt: "true"}\n'
)
"""The annotations of a pod that no autoscaler may move."""

_SAFE = f"metadata:\n  {SHIELDS}"


def _lines(text: str, depth: int) -> str:
    return indent(dedent(text), " " * depth)


def job(pod_spec: str = "", *, spec: str = "", container: str = "", name: str = "train") -> str:
    """A Job: the lines of its pod spec, of its spec, and of its container."""
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\nspec:\n"
        + _lines(spec, 2)
        + "  template:\n"
        + _lines(_SAFE, 4)
        + "    spec:\n      restartPolicy: Never\n"
        + _lines(pod_spec, 6)
        + "      containers:\n      - name: main\n        image: trainer:1\n"
        + _lines(container, 8)
    )


def pod(
    pod_spec: str = "",
    *,
    kind: str = "Deployment",
    api_version: str = "apps/v1",
    container: str = "",
    image: str = "app:1",
) -> str:
    """An object with its pods under ``spec.template``."""
    return (
        f"apiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: app\nspec:\n  selector: {{matchLabels: {{app: app}}}}\n"
        "  template:\n    metadata:\n      labels: {app: app}\n    spec:\n"
        + _lines(pod_spec, 6)
        + f"      containers:\n      - name: app\n        image: {image}\n"
        + _lines(container, 8)
    )


def training_job(worker: str, *, role: str = "", kind: str = "TFJob", container: str = "tensorflow") -> str:
    """A job of the training operator with a worker: the lines of its pod spec, and of its role."""
    field = kind_in("kubeflow.org", kind).places[0].steps[1]
    return (
        f"apiVersion: kubeflow.org/v1\nkind: {kind}\nmetadata:\n  name: mnist\nspec:\n"
        f"  {field}:\n    Worker:\n      replicas: 2\n"
        + _lines(role, 6)
        + "      template:\n"
        + _lines(_SAFE, 8)
        + "        spec:\n"
        + _lines(worker, 10)
        + f"          containers:\n          - name: {container}\n            image: training:1\n"
    )


KFP_TASK = """\
retryPolicy: {maxRetryCount: 3, backoffDuration: 60s, backoffFactor: 2, backoffMaxDuration: 2592000s}
"""
"""Retries of a task that last as long as the task may."""


def kfp(task: str = KFP_TASK, *, platform: str = ON_SPOT, executor: str = "") -> str:
    """A compiled pipeline with one task: the lines of the task, of its executor, and of its settings for Kubernetes."""
    settings = platform if platform != ON_SPOT else KFP_ON_SPOT
    return (
        "components:\n  comp-train: {executorLabel: exec-train}\n"
        "deploymentSpec:\n  executors:\n    exec-train:\n      container:\n        image: python:3.12\n"
        + _lines(executor, 8)
        + "pipelineInfo: {name: train}\nroot:\n  dag:\n    tasks:\n      train:\n"
        "        componentRef: {name: comp-train}\n        taskInfo: {name: train}\n"
        + _lines(task, 8)
        + "schemaVersion: 2.1.0\nsdkVersion: kfp-2.17.0\n---\nplatforms:\n  kubernetes:\n    deploymentSpec:\n"
        "      executors:\n        exec-train:\n" + _lines(settings, 10)
    )


KFP_ON_SPOT = f"""\
podMetadata:
  {SHIELDS}tolerations:
- {{key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}}
nodeAffinity:
- weight: 100
  matchExpressions:
  - {{key: kubernetes.azure.com/scalesetpriority, operator: In, values: [spot]}}
"""
