"""Rules on values that the API server refuses or takes for something else, and on versions that it does not serve.

Sources: Kubernetes, "Deprecated API Migration Guide"; Kubernetes API reference (labels, annotations and environment variables are
texts).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.lint.examples import ON_SPOT, job
from spotwright.lint.rule import Checks, Mend, Problem, Rule, Severity
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.objects import KubeObject
from spotwright.lint.subjects.pods import Pods
from spotwright.lint.subjects.shapes import items_of, mapping_at, mapping_of
from spotwright.manifests.kinds import SERVED
from spotwright.manifests.yamltext.documents import Path

__all__ = ["RULES"]

_CURLY = "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\xab\xbb"
_DASHES = ("\u2014", "\u2013", "\u2212")
_GONE: Mapping[tuple[str, str], tuple[str, str]] = {
    ("batch/v1beta1", "CronJob"): ("batch/v1", "Kubernetes 1.25"),
    ("batch/v2alpha1", "CronJob"): ("batch/v1", "Kubernetes 1.21"),
    ("policy/v1beta1", "PodDisruptionBudget"): ("policy/v1", "Kubernetes 1.25"),
    ("extensions/v1beta1", "Deployment"): ("apps/v1", "Kubernetes 1.16"),
    ("apps/v1beta1", "Deployment"): ("apps/v1", "Kubernetes 1.16"),
    ("apps/v1beta2", "Deployment"): ("apps/v1", "Kubernetes 1.16"),
    ("apps/v1beta1", "StatefulSet"): ("apps/v1", "Kubernetes 1.16"),
    ("apps/v1beta2", "StatefulSet"): ("apps/v1", "Kubernetes 1.16"),
    ("extensions/v1beta1", "DaemonSet"): ("apps/v1", "Kubernetes 1.16"),
    ("kubeflow.org/v1beta2", "TFJob"): ("kubeflow.org/v1", "the training operator 1.0"),
    ("kubeflow.org/v1beta2", "PyTorchJob"): ("kubeflow.org/v1", "the training operator 1.0"),
    ("kubeflow.org/v1alpha3", "Experiment"): ("kubeflow.org/v1beta1", "Katib 0.10"),
    ("kubeflow.org/v2alpha1", "TrainJob"): ("trainer.kubeflow.org/v1alpha1", "Trainer 2.0"),
    ("jobset.x-k8s.io/v1alpha1", "JobSet"): ("jobset.x-k8s.io/v1alpha2", "JobSet 0.2"),
}
"""Versions that are not served any more: the version of today, and who removed them."""

_SAME_FIELDS = frozenset({("batch/v1beta1", "CronJob"), ("policy/v1beta1", "PodDisruptionBudget")})


def _not_texts(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    for name in ("labels", "annotations"):
        yield from _numbers(subject, ("metadata", name))


def _numbers(subject: KubeObject, path: Path) -> Iterator[Problem]:
    for key, value in subject.mapping(*path).items():
        if _is_no_text(value):
            yield _quoted(subject.at(*path, key), key, value)


def _is_no_text(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _quoted(path: Path, key: str, value: Any) -> Problem:
    word = str(value).lower() if isinstance(value, bool) else str(value)
    return Problem(path, f"{key}: {word} is no text", f'Write "{word}" in quotes.', (Mend("replace", path, word),))


def _pods_not_texts(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    for key, value in mapping_of(pods.value.get("nodeSelector")).items():
        if _is_no_text(value) and pods.form != "K":
            yield _quoted((*pods.selector, key), key, value)
    if pods.form == "T" and pods.owner is not None and len(pods.spec) > len(pods.owner.base) + 1:
        for name in ("labels", "annotations"):
            for key, value in mapping_of(pods.metadata.get(name)).items():
                if _is_no_text(value):
                    yield _quoted((*pods.spec[:-1], "metadata", name, key), key, value)
    for container in pods.containers:
        for index, variable in enumerate(items_of(container.value.get("env"))):
            value = mapping_of(variable).get("value")
            if _is_no_text(value) and pods.form != "K":
                yield _quoted((*container.path, "env", index, "value"), str(mapping_of(variable).get("name")), value)


def _typography(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """Quotes and dashes of a word processor, which YAML takes for letters."""
    if subject.outer is not None or not any(sign in subject.document.text for sign in (*_CURLY, *_DASHES)):
        return
    yield from _typography_in(subject.value, subject.base)


def _typography_in(value: Any, path: Path) -> Iterator[Problem]:
    if isinstance(value, dict):
        for key, child in value.items():
            if key.lstrip().startswith(_DASHES):
                text = f"{key.strip()} begins with a dash of a word processor, so it is a key and no item of a list"
                yield Problem((*path, key), text, "Write - (a hyphen) and a space.")
            yield from _typography_in(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _typography_in(child, (*path, index))
    elif isinstance(value, str) and len(value) > 1 and value[0] in _CURLY and value[-1] in _CURLY:
        inner = value.strip(_CURLY)
        text = f"{value} has the quotes of a word processor, which are part of the value"
        yield Problem(
            path, text, f'Write "{inner}".', (Mend("replace", path, inner),) if isinstance(path[-1], str) else ()
        )


def _old_version(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    found = _GONE.get((subject.api_version, subject.kind))
    if found is not None:
        new, gone = found
        path = subject.at("apiVersion")
        mends = (Mend("replace", path, new),) if (subject.api_version, subject.kind) in _SAME_FIELDS else ()
        text = f"{subject.kind} of {subject.api_version} is gone since {gone}"
        yield Problem(path, text, f"Write {new}{'' if mends else ', and compare the fields'}.", mends)
    elif subject.kind in SERVED and not subject.api_version:
        yield Problem(
            subject.at("kind"), f"{subject.label} has no apiVersion", f"Write apiVersion: {SERVED[subject.kind]}."
        )


def _dashless_name(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    name = mapping_at(subject.value, "metadata").get("generateName")
    if isinstance(name, str) and name and not name.endswith(("-", ".")) and "{" not in name:
        path = subject.at("metadata", "generateName")
        text = f"generateName {name} has no dash at its end, so names read {name}x7k2p"
        yield Problem(path, text, f"Write {name}-.", (Mend("replace", path, f"{name}-"),))


RULES = (
    Rule(
        id="text-expected",
        severity=Severity.ERROR,
        title="A number or a truth value where Kubernetes takes texts only",
        why="Values of labels, annotations, node selectors and environment variables are texts; the API server refuses "
        "the object.",
        fix="Write the value in quotes.",
        fails=job("nodeSelector: {pool: 1}\n"),
        passes=job('nodeSelector: {pool: "1"}\n'),
        checks=Checks(objects=_not_texts, pods=_pods_not_texts),
        mends=True,
    ),
    Rule(
        id="typographic-quotes",
        severity=Severity.ERROR,
        title="Quotes or dashes of a word processor",
        why="YAML takes them for letters: the quotes become a part of the value, which then is no valid label and "
        "matches no node, and a long dash begins a key instead of an item.",
        fix='Write " and -.',
        fails=job("nodeSelector: {pool: “true”}\n"),
        passes=job('nodeSelector: {pool: "true"}\n'),
        checks=Checks(objects=_typography),
        mends=True,
    ),
    Rule(
        id="api-version-gone",
        severity=Severity.ERROR,
        title="A version of the API that no server has any more",
        why="The API server refuses the object.",
        fix="Write the version of today.",
        fails="apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata:\n  name: train\nspec:\n  "
        "maxUnavailable: 1\n",
        passes="apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata:\n  name: train\nspec:\n  "
        "maxUnavailable: 1\n",
        checks=Checks(objects=_old_version),
        mends=True,
    ),
    Rule(
        id="generate-name-dash",
        severity=Severity.NOTE,
        title="A generateName without a dash at its end",
        why="Kubernetes appends five letters to it, and without a dash nobody sees where the name ends. Such an object "
        "needs kubectl create, because apply wants a name.",
        fix="End it with a dash.",
        fails=job(ON_SPOT).replace("  name: train\n", "  generateName: train\n"),
        passes=job(ON_SPOT).replace("  name: train\n", "  generateName: train-\n"),
        checks=Checks(objects=_dashless_name),
        mends=True,
    ),
)
"""The rules of this module."""
