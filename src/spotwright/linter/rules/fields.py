"""Rules on fields that the API server drops in silence, and on what lint could not check.

Fields of a pod at a wrong level, or of an older release of the Trainer, have no effect. The levels come from the table of
kinds: a pod's field belongs in the pod spec, not in an object around it. An unreadable value is a finding too, because what
depends on it was not checked; the rest is left to schema validators. Sources: the Kubernetes API reference; the custom resource
definitions that :mod:`spotwright.kinds.kind` names; kubeflow/trainer v2.0 to v2.3,
``pkg/apis/trainer/v1alpha1/trainjob_types.go``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from spotwright.kinds.kind import PodPlace, Retry, matching, placed_kind
from spotwright.kinds.situation import pod_groups
from spotwright.kinds.unknown import likely_pods, unjudged
from spotwright.kube.admission import unreadable
from spotwright.linter.api_types import (
    AFFINITY_PLACES,
    POD_TYPES,
    RESOURCES,
    RETRY_WORDS,
    Misspelt,
    misspelt_in,
    nearly,
)
from spotwright.linter.rule import ON_SPOT, PREFERS_SPOT, Checks, Mend, Problem, Rule, Severity, job, training_job
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import Container, KubeObject, Pods, init_containers, items_of, mapping_of
from spotwright.model.not_judged import NotJudged
from spotwright.placing.context import POLICY_ANNOTATION, SPOT_LABEL, own_layer
from spotwright.placing.documents import Path, show
from spotwright.placing.patch import value_at
from spotwright.placing.pod_spec import JOB_FIELDS, POD_FIELDS

__all__ = ["REFUSED", "RULES", "WRONG_SHAPE"]

_RUN_POLICY = frozenset(
    {
        "activeDeadlineSeconds",
        "backoffLimit",
        "cleanPodPolicy",
        "schedulingPolicy",
        "suspend",
        "ttlSecondsAfterFinished",
    }
)
_OWN: Mapping[tuple[str, str], frozenset[str]] = {
    ("batch.volcano.sh", "spec"): frozenset({"schedulerName", "volumes", "priorityClassName"}),
    ("jobset.x-k8s.io", "spec"): frozenset({"ttlSecondsAfterFinished", "successPolicy"}),
    ("trainer.kubeflow.org", "spec"): frozenset({"ttlSecondsAfterFinished", "successPolicy"}),
}
"""Fields of a kind that look like a pod's or a Job's, by its group and the last step of their level."""

_DEADLINE = "activeDeadlineSeconds"  # a field of Jobs and of pods
_SKIPPED = frozenset({"machinelearning.seldon.io", "sparkoperator.k8s.io", "argoproj.io", "tekton.dev"})
_ARGO_NONE = frozenset({"nodeName", "restartPolicy", "terminationGracePeriodSeconds", "topologySpreadConstraints"})
_CURLY = "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\xab\xbb"
_DASHES = ("\u2014", "\u2013", "\u2212")


class _Level(NamedTuple):
    """A level of a kind at which fields do not belong: its path, the fields, and where they belong."""

    at: Path
    names: Collection[str]
    target: Path


def _wrong_level(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    said: set[Path] = set()
    for path, name, fix in (*_at_levels(subject), *_retries_elsewhere(subject)):
        if path not in said:
            said.add(path)
            yield Problem(subject.at(*path), f"the API server drops {name} here", fix)


def _at_levels(subject: KubeObject) -> Iterator[Misspelt]:
    for level in _levels(subject):
        for name in subject.mapping(*level.at):
            if name in level.names:
                yield Misspelt((*level.at, name), name, f"Write it under {show((*level.target, name))}.")


def _homes(subject: KubeObject) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The levels of an object at which retries may be written, each with its fields."""
    for level, own in subject.record.retries.levels.items():
        for at in matching(subject.value, tuple(level.split("."))):
            yield at, own


def _retries_elsewhere(subject: KubeObject) -> Iterator[Misspelt]:
    """Retry fields that the kind does not have there: from another system, or from another level."""
    for at, own in _homes(subject):
        for name in subject.mapping(*at):
            if name in RETRY_WORDS and name not in own:
                yield Misspelt((*at, name), name, _retry_fix(subject, at, name))


def _retry_fix(subject: KubeObject, at: Path, name: str) -> str:
    home = subject.record.retries.home
    if not home:
        return "Make the Pod the template of a Job: a bare Pod is not recreated."
    steps: list[str] = []
    for step in home.split("."):
        plain = step.removesuffix("[]")
        steps.append(step if plain == step else f"{plain}[{_index(subject, at, (*steps, plain))}]")
        if plain == name:
            return f"Write it as {'.'.join(steps)}."
    is_part = steps[-1] == "retryStrategy" and name in ("retryPolicy", "backoff")
    return f"Write {'it under ' if is_part else ''}{'.'.join(steps)}."


def _index(subject: KubeObject, at: Path, to: tuple[str, ...]) -> str:
    """The index of the list item around a level; for a task of Argo, its template's; empty outside lists."""
    if subject.group == "argoproj.io" and ("dag" in at or "steps" in at):
        return str(_template_indexes(subject, to).get(subject.mapping(*at).get("template"), ""))
    return str(at[len(to)]) if at[: len(to)] == to and len(at) > len(to) else ""


def _template_indexes(subject: KubeObject, to: tuple[str, ...]) -> dict[Any, int]:
    """The index of each template of a workflow by its name; of two with one name, the first."""
    names = [mapping_of(one).get("name") for one in subject.items(*to)]
    return {name: index for index, name in reversed(list(enumerate(names))) if isinstance(name, str)}


def _levels(subject: KubeObject) -> Iterator[_Level]:
    if subject.group == "argoproj.io":
        yield from _argo_levels(subject)
    if subject.group == "sparkoperator.k8s.io":
        yield from _spark_levels(subject)
    if subject.group == "tekton.dev":
        yield from _tekton_levels(subject)
    if subject.group in _SKIPPED:
        return
    if subject.group == "kubeflow.org" and subject.kind.endswith("Job"):
        yield from _operator_levels(subject)
    for place in subject.record.places:
        if place.form == "T" and place.steps:
            yield from _levels_of(subject, place)
    if subject.record.hands_down:
        yield _Level(("spec",), POD_FIELDS, ("spec", "runtimePatches"))
        yield _Level(("spec", "trainer"), POD_FIELDS, ("spec", "runtimePatches"))
        runtime = ("TrainingRuntime", "spec", "template", "spec")
        yield _Level(("spec",), JOB_FIELDS | {"failurePolicy"}, runtime)
    if subject.record.makes_trials:
        trial = ("spec", "trialTemplate", "trialSpec", "spec", "template", "spec")
        yield _Level(("spec",), POD_FIELDS, trial)
        yield _Level(("spec", "trialTemplate"), POD_FIELDS, trial)


def _levels_of(subject: KubeObject, place: PodPlace) -> Iterator[_Level]:
    """The levels from the object's spec down to the pod template, if present."""
    job = len(place.steps) - place.job if place.job else 0
    for length in range(1, len(place.steps) + 1):
        steps = place.steps[:length]
        for at in matching(subject.value, steps):
            target = (*at, *("0" if step == "*" else step for step in place.steps[length:]), "spec")
            own = _OWN.get((subject.group, steps[-1]), frozenset())
            yield _Level(
                at, POD_FIELDS - own - _words_at(subject, steps), tuple(step for step in target if step != "0")
            )
            if job and length != job:
                below = tuple(step for step in place.steps[length:job] if step != "*")
                names = (JOB_FIELDS | {_DEADLINE}) - own
                yield _Level(at, names, (*at, *below) if length < job else at[: job - length])
    if job:
        for at in matching(subject.value, (*place.steps, "spec")):
            yield _Level(at, JOB_FIELDS, at[:-2])


def _words_at(subject: KubeObject, steps: tuple[str, ...]) -> set[str]:
    """The fields of the kind's own retries at a level."""
    here = (path.rpartition(".") for path, *_ in subject.record.retries.values)
    return {name for above, _, name in here if above == ".".join(steps)}


def _operator_levels(subject: KubeObject) -> Iterator[_Level]:
    spec = subject.mapping("spec")
    own = _words_at(subject, ("spec",))
    yield _Level(("spec",), _RUN_POLICY - own, ("spec", "runPolicy"))
    for name in spec:
        if name.endswith("ReplicaSpecs"):
            for role in mapping_of(spec[name]):
                at: Path = ("spec", name, role)
                yield _Level(at, {"spec", "metadata"}, (*at, "template"))
                yield _Level(at, _RUN_POLICY, ("spec", "runPolicy"))
                yield _Level(("spec",), {"restartPolicy"}, at)
                yield _Level(("spec", "runPolicy"), {"restartPolicy"}, at)
                yield _Level((*at, "template", "spec"), _RUN_POLICY - {"activeDeadlineSeconds"}, ("spec", "runPolicy"))


_ARGO_OF_PODS = frozenset({"affinity", "nodeSelector", "priorityClassName", "tolerations"})
_OF_HOLDERS = frozenset({"affinity", "nodeSelector", "tolerations"})


def _argo_levels(subject: KubeObject) -> Iterator[_Level]:
    if subject.record.retry is not Retry.STEP:
        return
    top = subject.record.top
    if len(top) > 1:
        yield _Level(("spec",), {*_OF_HOLDERS, "entrypoint", "templates", "podSpecPatch"}, top)
    yield _Level(top, _ARGO_NONE, (*top, "podSpecPatch"))
    indexes = _template_indexes(subject, (*top, "templates"))
    for index in range(len(subject.items(*top, "templates"))):
        at: Path = (*top, "templates", index)
        yield _Level(at, _ARGO_NONE, (*at, "podSpecPatch"))
        for inner in (("container",), ("script",), ("containerSet", "containers", "*")):
            for container in matching(subject.mapping(*at), inner, at):
                yield _Level(container, _ARGO_OF_PODS, at)
                yield _Level(container, _ARGO_NONE - {"restartPolicy"}, (*at, "podSpecPatch"))
        for inner in (("dag", "tasks", "*"), ("steps", "*", "*")):
            for task in matching(subject.mapping(*at), inner, at):
                named = value_at(subject.value, (*task, "template"))
                home = (indexes[named],) if isinstance(named, str) and named in indexes else ()
                target: Path = (*top, "templates", *home)
                yield _Level(task, {*_ARGO_OF_PODS, "activeDeadlineSeconds", "podSpecPatch"}, target)


def _spark_levels(subject: KubeObject) -> Iterator[_Level]:
    top = subject.record.top
    if not subject.record.retries.home:
        return
    if len(top) > 1:
        names = {*_OF_HOLDERS, "driver", "executor", "restartPolicy", "terminationGracePeriodSeconds"}
        yield _Level(("spec",), names, top)
    # The application has a nodeSelector, which holds for the driver and the executors.
    yield _Level(top, {"affinity", "tolerations", "terminationGracePeriodSeconds"}, (*top, "executor"))
    for role in ("driver", "executor"):
        yield _Level((*top, role), {"restartPolicy"}, top)


def _tekton_levels(subject: KubeObject) -> Iterator[_Level]:
    old = subject.api_version == "tekton.dev/v1beta1"
    record = subject.record
    if record.leaves_pods:
        yield _Level(("spec",), _OF_HOLDERS, ("spec", "podTemplate"))
    if record.makes:
        of_run: Path = ("spec",) if old else ("spec", "taskRunTemplate")
        yield _Level(("spec",), _OF_HOLDERS, (*of_run, "podTemplate"))
        yield _Level(("spec", "taskRunTemplate"), _OF_HOLDERS, (*of_run, "podTemplate"))
        for at in matching(subject.value, ("spec", "taskRunSpecs", "*")):
            yield _Level(at, _OF_HOLDERS, (*at, "taskPodTemplate" if old else "podTemplate"))
            if not old:
                yield _Level(at, {"taskPodTemplate"}, at)
        if not old:
            yield _Level(("spec",), {"podTemplate"}, of_run)
    for group in ("tasks", "finally") if not record.leaves_pods else ():
        for at in matching(subject.value, (*record.top, group, "*")):
            yield _Level(at, _OF_HOLDERS, ("spec", "taskRunSpecs", 0, "podTemplate"))
            yield _Level((*at, "taskSpec"), _OF_HOLDERS, ("spec", "taskRunSpecs", 0, "podTemplate"))


def _in_container(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Fields of the pod in one of its containers."""
    if pods.form not in ("T", "S"):
        return
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(items_of(pods.value.get(kind))):
            for name in mapping_of(container):
                if name in POD_FIELDS | {_DEADLINE} and name != "restartPolicy":
                    text = f"the API server drops {name} here, in a container"
                    yield Problem(
                        pods.at(kind, index, name), text, f"Write it into the pod spec: {show(pods.at(name))}."
                    )


_PLACING = (
    "activeDeadlineSeconds",
    "affinity",
    "nodeSelector",
    "restartPolicy",
    "retryStrategy",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
)
_OF_CONTAINER = ("resources", "volumeMounts")


def _misspelt_fields(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Fields of affinity, tolerations and resources that the API does not have."""
    if pods.form == "K":
        return  # the SDK writes them
    for name, value in pods.value.items():
        if name in POD_TYPES:
            yield from _problems(misspelt_in(value, POD_TYPES[name], pods.at(name)))
        elif name in AFFINITY_PLACES:
            fix = f"Write it under {show((*pods.at(*AFFINITY_PLACES[name]), name))}."
            yield Problem(pods.at(name), f"the API server drops {name} here", fix)
        elif name not in RETRY_WORDS:
            yield from _nearly_written(name, _PLACING, pods.at(name))
    for container in (*pods.containers, *init_containers(pods)):
        yield from _misspelt_container(container)


def _misspelt_container(container: Container) -> Iterator[Problem]:
    for name, value in container.value.items():
        path = (*container.path, name)
        if name == "resources":
            yield from _problems(misspelt_in(value, RESOURCES, path))
        elif name in RESOURCES:
            fix = f"Write it under {show((*container.path, 'resources', name))}."
            yield Problem(path, f"the API server drops {name} here", fix)
        else:
            yield from _nearly_written(name, _OF_CONTAINER, path, 0.9)


def _nearly_written(name: str, names: Collection[str], path: Path, alike: float = 0.82) -> Iterator[Problem]:
    meant = nearly(name, names, alike)
    if meant is not None:
        yield Problem(path, f"the API server drops {name} here", f"Write {meant}.")


def _problems(found: Iterable[Misspelt]) -> Iterator[Problem]:
    for one in found:
        text = f"the API server drops {one.name} here" if one.name else "this has another shape, so it is refused"
        yield Problem(one.path, text, one.fix)


def _misspelt_retries(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """Fields of retries that the kind does not have, and names that resemble fields of its retries or pods."""
    said = {path for path, _, _ in (*_at_levels(subject), *_retries_elsewhere(subject))}
    for path, fields in subject.record.retries.types.items():
        for at in matching(subject.value, tuple(path.split("."))):
            found = misspelt_in(subject.get(*at), fields, at)
            fresh = (one._replace(path=subject.at(*one.path)) for one in found if one.path not in said)
            yield from _problems(fresh)
    wanted: dict[Path, set[str]] = {}
    for at, own in _homes(subject):
        wanted.setdefault(at, set()).update(own)
    for at, field in _next_steps(subject):
        wanted.setdefault(at, set()).add(field)
    for at, names in wanted.items():
        for name in subject.mapping(*at):
            if (*at, name) not in said:
                yield from _nearly_written(name, sorted(names), subject.at(*at, name))


def _next_steps(subject: KubeObject) -> Iterator[tuple[Path, str]]:
    """The levels above the pods of an object, each with the field that leads to them."""
    for place in subject.record.places:
        for length, step in enumerate(place.steps):
            if step != "*":
                for at in matching(subject.value, place.steps[:length]):
                    yield at, step


def _no_template(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """A place for pods that is present but has no pod spec."""
    for place in subject.record.places:
        if place.form != "T" or not place.steps or subject.group in _SKIPPED:
            continue
        for at in matching(subject.value, place.steps):
            template = subject.mapping(*at)
            is_moved = any(name in POD_FIELDS for name in template)
            if not isinstance(template.get("spec"), dict) and not is_moved:
                text = f"{subject.label} has no pod spec under {show(at)}"
                yield Problem(subject.at(*at), text, f"Write the pod under {show((*at, 'spec'))}.")


def _other_release(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """Fields of a TrainJob that older releases of the Trainer had."""
    for name in subject.record.old_fields:
        if subject.get("spec", name) is not None:
            text = f"{subject.label} has {name}, which Trainer 2.2 and later silently drop"
            yield Problem(subject.at("spec", name), text, "Write it as runtimePatches.")


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


def _no_object(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    if subject.value.keys() >= {"version", "pools"}:  # our own spotwright.yaml, which is read as the settings
        return
    whole = subject.document.get((), None)
    text = ""
    if not isinstance(whole, dict):
        words = "a list" if isinstance(whole, list) else "a text"
        text = f"this is {words} and not a Kubernetes object, so it was not checked"
    elif not subject.kind and not subject.api_version and subject.outer is None:
        keys = ", ".join(list(subject.value)[:3])
        text = f"this has no kind, so it is not a Kubernetes object and was not checked ({keys})"
    if text:
        yield Problem(subject.base, text, not_judged=_unjudged(subject, subject.base))


def _unknown_kind(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    """Pods of an unknown kind, which no rule has checked."""
    if subject.record.is_known or any(True for _ in pod_groups(subject.value, settings.pod_paths)):
        return
    for path in likely_pods(subject.value) if subject.kind and subject.api_version else ():
        text = f"{subject.label} ({subject.api_version}): its kind is not known, so its pods were not checked"
        left = _unjudged(subject, subject.at(*path))
        yield Problem(subject.at(*path), text, f"{left.remedy[0].upper()}{left.remedy[1:]}.", not_judged=left)
        return


def _unjudged(subject: KubeObject, path: Path) -> NotJudged:
    return unjudged(subject.value, subject.document.file, subject.document.line(path))


def _unreadable(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """An unreadable version or policy of the object."""
    placed = placed_kind(subject.kind)
    if placed is not None and not subject.api_version:
        text = f"{subject.label} has no apiVersion, so it was not checked"
        yield Problem(subject.at("kind"), text, f"Write apiVersion: {placed.api_version}.")
    for wrong in unreadable(subject.value):
        text = f"{subject.label} does not apply to pods, because it cannot be read: {show(wrong.path)}: {wrong.text}"
        yield Problem(subject.at(*wrong.path), text)
    labels, annotations = subject.mapping("metadata", "labels"), subject.mapping("metadata", "annotations")
    try:
        own_layer(labels, annotations, subject.label)
    except ValueError as error:
        place = ("annotations", POLICY_ANNOTATION) if POLICY_ANNOTATION in annotations else ("labels", SPOT_LABEL)
        yield Problem(subject.at("metadata", *place), str(error))


def _refused_selector(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    for one in pods.refusals:
        if one.field == "nodeSelector" and not (isinstance(one.value, str) and not one.value.isascii()):
            yield Problem(pods.at(*one.path), one.text)


_TRAINJOB = (
    "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata:\n  name: train\nspec:\n"
    "  runtimeRef: {name: torch-distributed}\n"
)
_TOLERATIONS = "[{key: sku, value: gpu, effect: NoSchedule}]"
_OLD = f"  podSpecOverrides:\n  - targetJobs: [{{name: node}}]\n    tolerations: {_TOLERATIONS}\n"
_NEW = (
    "  runtimePatches:\n  - manager: example.com/spot\n    trainingRuntimeSpec:\n      template:\n        spec:\n"
    "          replicatedJobs:\n          - name: node\n            template:\n              spec:\n              "
    "  template:\n"
    f"                  spec:\n                    tolerations: {_TOLERATIONS}\n"
)

_UNKNOWN = (
    "apiVersion: example.com/v1\nkind: Trainer\nmetadata: {name: train}\nspec:\n  template:\n    spec:\n"
    "      nodeSelector: {cloud.google.com/gke-spot: 'true'}\n      containers: [{name: main, image: 'trainer:1'}]\n"
)

WRONG_SHAPE = Rule(
    id="wrong-shape",
    severity=Severity.ERROR,
    title="A field that is missing, or has a value that cannot be read",
    why="A list, a mapping or a truth value where another one belongs, an object without apiVersion, a label or an annotation of "
    "Spotwright that is not a policy: the API server refuses the object, or place does, and what depends on it was not checked.",
    fix="Write the field as the message says.",
    fails=job(ON_SPOT.replace("- {key: kubernetes.azure.com", "  {key: kubernetes.azure.com")),
    passes=job(ON_SPOT),
    checks=Checks(objects=_unreadable, pods=_refused_selector),
    source="Kubernetes API reference, PodSpec",
)

REFUSED = Rule(
    id="place-refuses",
    severity=Severity.ERROR,
    title="An object that place would refuse",
    why="No pool of the configuration admits its pods under its policy, or the object contradicts itself; place then does not "
    "write. If another rule has found the reason, only that rule reports it.",
    fix="Correct the object, its policy or the pools, as the message says; spotwright explain shows every pool with its reason.",
    fails=job(container="resources: {requests: {memory: 400Gi}}\n"),
    passes=job(),
    checks=Checks(),
    config="version: 1\npools:\n  regular: {capacity: on-demand, provider: aks, node: {cpu: 4, memory: 16Gi}}\n"
    "  spot: {capacity: spot, provider: aks, node: {cpu: 4, memory: 16Gi}}\n"
    "policy: {default: {spot: prefer}}\n",
)

RULES = (
    Rule(
        id="field-at-wrong-level",
        severity=Severity.ERROR,
        title="A field at a level where the API server drops it",
        why="Unknown fields are dropped in silence, so the object is there and does not do what it says: a node "
        "selector in the spec of a Job has no effect, a role without template has no pods.",
        fix="Move the field to the level that the message names.",
        fails=training_job("", role="restartPolicy: ExitCode\nnodeSelector: {gpu: 'true'}\n"),
        passes=training_job(
            "nodeSelector: {gpu: 'true'}\nschedulerName: volcano\n", role="restartPolicy: ExitCode\n"
        ).replace(
            "            image: training:1\n",
            "            image: training:1\n            resources: {limits: {nvidia.com/gpu: 1}}\n",
        ),
        checks=Checks(objects=_wrong_level, pods=_in_container),
    ),
    Rule(
        id="field-unknown",
        severity=Severity.ERROR,
        title="A field of affinity, of resources or of retries that the API does not have",
        why="The API server drops a misspelt field in silence, or refuses the object. A term whose conditions are dropped "
        "matches no node; a dropped retry does not happen.",
        fix="Write the field as the API has it.",
        fails=job(PREFERS_SPOT.replace("matchExpressions", "matchExpression")),
        passes=job(ON_SPOT),
        checks=Checks(pods=_misspelt_fields, objects=_misspelt_retries),
        source="Kubernetes API reference; the custom resource definitions of the kinds",
    ),
    Rule(
        id="pod-template-empty",
        severity=Severity.ERROR,
        title="A pod template without a pod spec",
        why="There is no pod to run; most API servers refuse the object.",
        fix="Write the pod under template.spec.",
        fails=job().replace(
            "    spec:\n      restartPolicy: Never\n      containers:\n      - name: main\n        image: trainer:1\n",
            "",
        ),
        passes=job(ON_SPOT),
        checks=Checks(objects=_no_template),
    ),
    Rule(
        id="trainer-other-release",
        severity=Severity.ERROR,
        title="A field of a TrainJob that Trainer 2.2 and later drop",
        why="Trainer 2.2 and later have runtimePatches, in place of podSpecOverrides and podTemplateOverrides under the same "
        "apiVersion. The API server drops the older two in silence, so the pods get no tolerations.",
        fix="Write them as runtimePatches.",
        fails=_TRAINJOB + _OLD,
        passes=_TRAINJOB + _NEW,
        checks=Checks(objects=_other_release),
    ),
    Rule(
        id="typographic-quotes",
        severity=Severity.ERROR,
        title="Quotes or dashes of a word processor",
        why="YAML takes them for letters: the quotes become a part of the value, which then is not a valid label and "
        "matches no node, and a long dash begins a key instead of an item.",
        fix='Write " and -.',
        fails=job("nodeSelector: {pool: “true”}\n"),
        passes=job('nodeSelector: {pool: "true"}\n'),
        checks=Checks(objects=_typography),
        mends=True,
    ),
    WRONG_SHAPE,
    REFUSED,
    Rule(
        id="no-object",
        severity=Severity.NOTE,
        title="A document that is not a Kubernetes object",
        why="Without apiVersion and kind its kind is unknown: a fragment of a manifest, the values of a chart, a "
        "patch. It is not checked.",
        fix="Write the whole object; render charts and patches first (helm template, kustomize build).",
        fails="Worker:\n  nodeSelector: {pool: spot}\n",
        passes=job(ON_SPOT),
        checks=Checks(objects=_no_object),
    ),
    Rule(
        id="pods-not-checked",
        severity=Severity.NOTE,
        title="Pods of a kind that is not known",
        why="Where the pods of such an object are is not known, so no rule has looked at them, and place leaves them.",
        fix="Name the path of the pod spec with --pod-path, which place has too.",
        fails=_UNKNOWN,
        passes=job(ON_SPOT),
        checks=Checks(objects=_unknown_kind),
    ),
)
"""The rules of this module."""
