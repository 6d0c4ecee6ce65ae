"""Katib's Experiment: its trials are objects of other kinds, in the Experiment or a ConfigMap, and placed as such.

Katib never retries a trial, so only the trial's own kind can survive interruptions. Katib replaces placeholders
(``${trialParameters.x}``) in the trial's text; they are not interpreted here. Sources: kubeflow/katib v0.19.0,
``pkg/webhook/v1beta1/experiment/validator/validator.go``, ``pkg/controller.v1beta1/experiment/manifest/generator.go``.

So YAML in a string of YAML is placed here, also the manifest in a workflow's step. With template markers (``{{...}}``) it is
valid YAML only after Argo has replaced them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from spotwright.kinds.kind import Kind, Reads, Retry, holds_at, kind_of
from spotwright.kube.admission import Others
from spotwright.kube.object_fields import mapping
from spotwright.placing.context import Level, PlaceContext, RoleReport, name_of
from spotwright.placing.documents import Document, Path, parse, show
from spotwright.placing.patch import Edit, Editor, Splice, is_same, value_at
from spotwright.placing.pod_spec import METADATA, POD_FIELDS, check, refuse_misplaced
from spotwright.placing.yaml_writer import apply, in_brief, splices
from spotwright.yaml_composer import ScalarNode

__all__ = [
    "KINDS",
    "LAST_ATTEMPT_COLLECTORS",
    "NO_SIGTERM",
    "Collector",
    "collector_of",
    "documents_in",
    "parse_marked",
    "place",
]


_PRIVATE = 0xE000  # a private use area of Unicode, which YAML reads as letters
_HIDE = {code: code + _PRIVATE for code in range(0x20, 0x7F)}
_REVEAL = {hidden: code for code, hidden in _HIDE.items()}


def _without_markers(text: str) -> str:
    """The text with its markers hidden, in one pass: a pattern would search each one's end repeatedly."""
    parts, at = [], 0
    while (start := text.find("{{", at)) >= 0 and (end := text.find("}}", start + 2)) >= 0:
        parts += [text[at:start], text[start : end + 2].translate(_HIDE)]
        at = end + 2
    return "".join([*parts, text[at:]])


def parse_marked(text: str, file: str, above: int = 0) -> list[Document]:
    """Parse a text into documents; each ``{{...}}`` is a part of a scalar."""
    if "{{" not in text:
        return parse(text, file, above)
    hidden = _without_markers(text)
    documents = parse(hidden, file, above, _reveal)
    for document in documents:
        document.text = text
    return documents


def _reveal(text: str) -> str:
    return text.translate(_REVEAL)


def place(ctx: PlaceContext, path: Path, owner: str = "") -> None:
    """Place the objects in the text at ``path`` of the document (absolute: ``ctx.at(...)``), as parts of ``owner``.

    ``owner`` is the policy path of an object without a name, by default that of the context. Raises :class:`ManifestError` if
    the text is not valid YAML, or an object in it cannot be placed.
    """
    text = ctx.editor.document.get(path, None)
    if not isinstance(text, str):
        raise ctx.problem(path, "expected a text that is YAML")
    editors = [Editor(inner) for inner in documents_in(ctx.editor.document, path, text)]
    for editor in editors:
        _place_object(ctx, editor, owner)
    edited = [(editor, splices(editor.document, editor.final_edits())) for editor in editors]
    changes = [change for _, pairs in edited for _, change in pairs]
    if not changes:
        return
    _check(text, edited)
    ctx.editor.embed(path, apply(text, changes), changes)


def documents_in(document: Document, path: Path, text: str) -> list[Document]:
    """The documents in the text at a path of a document. Raises :class:`ManifestError` if it is not valid YAML."""
    return parse_marked(text, *_location(document, path))


def _location(document: Document, path: Path) -> tuple[str, int]:
    """A string's name and first line for messages: the file's in a literal block, else the string's own."""
    node = document.node(path)
    line = document.line(path)
    if isinstance(node, ScalarNode) and node.style == "|":
        return document.file, document.above + int(node.start_mark.line) + 1
    return f"{document.file}:{line}: {show(path)}", 0


def _place_object(ctx: PlaceContext, editor: Editor, owner: str) -> None:
    inner = ctx.embedded(editor, owner)
    api_version, kind = str(inner.get("apiVersion", default="")), str(inner.get("kind", default=""))
    place_object = kind_of(api_version, kind).place
    if place_object is not None:
        place_object(inner)
    elif kind:
        name = name_of(inner.get("metadata")) or inner.owner
        text = f"{kind} {name} ({api_version}): this kind is not placed; it stays unchanged"
        inner.add_finding(Level.NOTE, ("kind",), text)


def _check(text: str, edited: Sequence[tuple[Editor, Sequence[tuple[Edit, Splice]]]]) -> None:
    """Check the values of the edited text. The outer object is checked for whether unplace restores the bytes."""
    brief = apply(text, [in_brief(change) for _, pairs in edited for _, change in pairs])
    current = {document.index: document for document in parse_marked(brief, edited[0][0].document.file)}
    for editor, pairs in edited:
        document = current.get(editor.document.index)
        expected = editor.result([edit for edit, change in pairs if change.short])
        if document is None or not is_same(document.get(()), expected):
            raise editor.problem((), "cannot be placed: the edited text would not have the expected values")


_TEMPLATE: Path = ("spec", "trialTemplate")
LAST_ATTEMPT_COLLECTORS = ("StdOut", "File", "TensorFlowEvent")
"""The collectors that read a file in the pod's volume: what the last attempt wrote, once it has succeeded.

Push sends each value to Katib's database at once (katib v0.19.0, ``pkg/webhook/v1beta1/pod/utils.go``, ``getMountPath`` and
``mutateMetricsCollectorVolume``; ``cmd/metricscollector/v1beta1/file-metricscollector/main.go``, ``reportMetrics``).
"""
_FROZEN = "only parallelTrialCount, maxTrialCount and maxFailedTrialCount can be changed"
_SUGGESTION = "katib-config decides where suggestion and early stopping run; the Experiment cannot place them"


def _place_experiment(ctx: PlaceContext) -> None:
    if str(ctx.get("apiVersion")) != "kubeflow.org/v1beta1":
        text = f"Katib does not serve {ctx.get('apiVersion')}, so it is not placed: write kubeflow.org/v1beta1"
        ctx.add_finding(Level.WARNING, ctx.at("apiVersion"), text)
        return
    trial = ctx.at(*_TEMPLATE, "trialSpec")
    spec = ctx.get(*_TEMPLATE, "trialSpec")
    for level in (ctx.at("spec"), ctx.at(*_TEMPLATE)):
        refuse_misplaced(ctx, level, (*trial, "spec", "template", "spec"), POD_FIELDS)
    if isinstance(spec, dict):
        before = len(ctx.roles)
        _place_trial(ctx, spec)
        _report(ctx, ctx.roles[before:])
    else:
        _report_template(ctx)


def _place_trial(ctx: PlaceContext, spec: Mapping[str, Any]) -> None:
    """Place the trial by its own kind, as part of the experiment: a trial template has no name."""
    at = ctx.at(*_TEMPLATE, "trialSpec")
    check(ctx, (*at, "metadata"), METADATA)
    for field in ("name", "namespace"):
        if field in (spec.get("metadata") or {}):
            ctx.add_finding(
                Level.WARNING,
                (*at, "metadata", field),
                f"Katib refuses a trialSpec with a {field}: it sets one for each trial",
            )
    api_version, kind = str(spec.get("apiVersion", "")), str(spec.get("kind", ""))
    place = kind_of(api_version, kind).place
    if place is None:
        text = f"trials are {kind} ({api_version}): this kind is not placed; they stay unchanged"
        ctx.add_finding(Level.WARNING, (*at, "kind"), text)
        return
    place(ctx.nested(*_TEMPLATE, "trialSpec", owner=ctx.name))


def _report(ctx: PlaceContext, roles: list[RoleReport]) -> None:
    """Report the effect of interrupted trials on the experiment."""
    for role in roles:
        role.frozen = _FROZEN
    if not any(ctx.config.pools[pool].is_spot for role in roles for pool in role.pools):
        return
    limit = ctx.get("spec", "maxFailedTrialCount")
    counts = "maxFailedTrialCount is not set" if limit is None else f"it counts towards maxFailedTrialCount {limit}"
    text = f"Katib never retries a trial: one whose own kind gives up after interruptions has failed, and {counts}"
    ctx.add_finding(Level.NOTE, ctx.at("spec", "maxFailedTrialCount"), text)
    ctx.add_finding(Level.NOTE, ctx.at("spec", "algorithm"), _SUGGESTION)
    collector = collector_of(ctx.get("spec"))
    if not collector.kind:
        return
    level = Level.NOTE if all(role.policy.checkpoint is None for role in roles) else Level.WARNING
    at = ctx.at("spec", "metricsCollectorSpec")
    ctx.add_finding(level, at, collector.of_last_attempt)
    if not ctx.options.has_webhook:  # a webhook gives the pods a hook
        ctx.add_finding(level, at, NO_SIGTERM)


class Collector(NamedTuple):
    """A collector that reads only a trial's last attempt; ``kind`` is empty for any other collector."""

    kind: str
    path: str = ""

    @property
    def of_last_attempt(self) -> str:
        """The remedy for the metrics of a trial that resumes."""
        if self.kind == "TensorFlowEvent":
            text = "Katib reads the event files that the last attempt of a trial has written: one that resumes has to put the "
            text += "earlier files back, as a Directory in the state of spotwright.checkpoint"
        else:
            to = f" with print_to={self.path!r}" if self.kind == "File" else ""
            text = "Katib reads the metrics that the last attempt of a trial has printed: one that resumes has to print the "
            text += f"earlier ones again, as Checkpoint.print of spotwright.checkpoint does{to}"
        return f"{text}, or the best trial may be wrong"


def collector_of(spec: Any) -> Collector:
    """The metrics collector of an Experiment's ``spec``, by default StdOut."""
    kind = value_at(spec, ("metricsCollectorSpec", "collector", "kind")) or "StdOut"
    path = value_at(spec, ("metricsCollectorSpec", "source", "fileSystemPath", "path")) or "/var/log/katib/metrics.log"
    return Collector(str(kind), str(path)) if kind in LAST_ATTEMPT_COLLECTORS else Collector("")


NO_SIGTERM = (
    "Katib runs the command of a trial in a shell that passes no SIGTERM on, so saving code learns of its end only by a notice "
    "(SPOTWRIGHT_NOTICE_FILE, SPOTWRIGHT_NOTICE_URL), which the controller's webhook or a node agent gives; without them "
    "let the shell pass SIGTERM on: docs/kinds/katib.md has the line (exec does not help: Katib's own command follows)"
)
"""The effect of the shell around a trial's program (katib v0.19.0, ``wrapWorkerContainer``)."""


def _report_template(ctx: PlaceContext) -> None:
    """Report the ConfigMap with the trial template, which is placed there."""
    at = ctx.at(*_TEMPLATE, "configMap")
    given = ctx.editor.get(at)
    if not isinstance(given, dict):
        raise ctx.problem(ctx.at(*_TEMPLATE), "expected a trialSpec, or a configMap that holds one")
    name, key = str(given.get("configMapName")), str(given.get("templatePath"))
    config_map = ctx.find("ConfigMap", name, _text(given.get("configMapNamespace")))
    if config_map is None:
        text = f"the trial template is in ConfigMap {name}, which was not given: not placed; pass its file too"
        ctx.add_finding(Level.WARNING, at, text)
    elif not isinstance(config_map.get(("data", key), None), str):
        place = f"{config_map.file}:{config_map.line(('data',))}"
        raise ctx.problem((*at, "templatePath"), f"{place}: ConfigMap {name} has no {key}")
    else:
        text = f"the trial template is in ConfigMap {name} ({config_map.file}:{config_map.line(('data', key))})"
        if ctx.is_input(config_map):
            ctx.add_finding(Level.NOTE, at, f"{text}, and is placed there")
        else:
            ctx.add_finding(Level.WARNING, at, f"{text}, which is only read: pass its file to place it too")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _place_config_map(ctx: PlaceContext) -> None:
    """Place the trial templates that experiments take from a ConfigMap; everything else in it stays unchanged."""
    owners: dict[str, list[Document]] = {}
    for experiment, key in _users(ctx):
        experiments = owners.setdefault(key, [])
        names = [name_of(other.get(("metadata",), {})) for other in experiments]
        if name_of(experiment.get(("metadata",), {})) not in names:
            experiments.append(experiment)
    for key, experiments in owners.items():
        first, *others = (name_of(one.get(("metadata",), {})) for one in experiments)
        before = len(ctx.roles)
        owned = replace(ctx, outer=ctx.embedded(Editor(experiments[0])))  # its labels set the policy of its trials
        place(owned, ctx.at("data", key), owner=first)
        for role in ctx.roles[before:]:
            role.frozen = "everything can be changed; experiments that exist keep the old template"
        if others:
            text = f"placed by the policy of {first}; {', '.join(others)} use it too"
            ctx.add_finding(Level.WARNING, ctx.at("data", key), text)


def _users(ctx: PlaceContext) -> Iterator[tuple[Document, str]]:
    """The experiments that take a trial template from this ConfigMap, each with the key of the template."""
    name = str(name_of(ctx.get("metadata", default={})))
    for experiment in ctx.find_all("Experiment") if isinstance(ctx.get("data"), dict) else ():
        if name in experiment.text:  # a quick check: there may be a thousand of each
            key = _key_in(ctx.get(), experiment.get((*_TEMPLATE, "configMap"), None))
            if key:
                yield experiment, key


def _key_in(config_map: Any, given: Any) -> str:
    """The key of this ConfigMap that an experiment names as its trial template; empty without one."""
    data, metadata = value_at(config_map, ("data",)), mapping(value_at(config_map, ("metadata",)))
    if not isinstance(given, dict) or not isinstance(data, dict) or given.get("configMapName") != metadata.get("name"):
        return ""
    key = str(given.get("templatePath"))
    return key if metadata.get("namespace") in (None, given.get("configMapNamespace")) and key in data else ""


def _held_by_config_map(data: Mapping[str, Any], others: Others) -> Iterator[Path]:
    """The trial templates in a ConfigMap, each once."""
    keys = [_key_in(data, value_at(one, (*_TEMPLATE, "configMap"))) for one in others("Experiment")]
    yield from (("data", key) for key in dict.fromkeys(keys) if key)


KINDS = (
    Kind(
        group="kubeflow.org",
        name="Experiment",
        version="v1beta1",
        takes_any_version=True,
        place=_place_experiment,
        holds=holds_at("spec.trialTemplate.trialSpec"),
        retry=Retry.TRIAL,
        reads=Reads.RUNS,
        makes=("Trial",),
        page="katib",
        notes=(
            "A trial is placed like its own kind. In `policy.tasks` it has the experiment's name: `grid`, or "
            "`grid/worker`. With `trialTemplate.configMap` the trial is placed in the ConfigMap, if that is in "
            "the input.\n"
            "Katib does not retry a trial: one that its kind gives up counts towards `maxFailedTrialCount`.\n"
            "The collectors StdOut, File and TensorFlowEvent read a file in the pod, so a resumed trial loses "
            "earlier metrics, and Katib may choose a wrong best trial. Print metrics with `ckpt.print(...)` "
            "before `step_done`; for File also set `Checkpoint(print_to=FILE)`.\n"
            "Katib starts the program behind `sh -c`, which does not pass SIGTERM on. Without the controller or "
            "the node agent, use the command `sh -c \"{ trap 'kill $p; wait $p; exit 143' TERM; python3 train.py & "
            "p=$!; wait $p; }\"` (`exec` would drop the end of Katib's own command)."
        ),
        tried=("Seen on Katib 0.19.0 and Kubernetes 1.35.4, with the collectors StdOut and File."),
    ),
    Kind(
        group="kubeflow.org",
        name="Trial",
        version="v1beta1",
        retry=Retry.TRIAL,
        reads=Reads.RUNS,
        shows_pods_of_another=True,  # of the job that it makes
    ),
    Kind(
        group="kubeflow.org", name="Suggestion", makes=("Deployment",)
    ),  # with the labels of its Experiment; it serves
    Kind(group="", name="ConfigMap", place=_place_config_map, holds=_held_by_config_map),
)
