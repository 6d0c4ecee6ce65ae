"""The context in which a kind's module places an object: its editor, the policy, the other objects, and the findings.

A module of :mod:`spotwright.kinds` touches neither text nor files. It reads through the editor, asks for the policy
of a role, calls the shared rules (:mod:`spotwright.placing.pods`), adds what its kind needs, and reports findings
to the user.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from spotwright.config import Config
from spotwright.errors import ConfigError
from spotwright.model.not_judged import NotJudged, Subject
from spotwright.model.policy import (
    Layer,
    Policy,
    Spot,
    lost_deadline,
    parse_policy,
    resolve_layers,
    without_deadlines,
)
from spotwright.placing.documents import Document, ManifestError, Path
from spotwright.placing.enforcement import (
    BY_QUOTA,
    IN_A_QUEUE,
    IN_A_REVERSED_QUEUE,
    PODS_ONLY,
    Anchor,
    Enforced,
    Mechanism,
    resolve_fact,
)
from spotwright.placing.patch import Editor

__all__ = [
    "MOST_RETRIES",
    "RETRIES_STAY",
    "Finding",
    "Group",
    "Level",
    "OwnRetries",
    "PlaceContext",
    "PlaceOptions",
    "RoleReport",
    "hook_of",
    "name_of",
    "own_layer",
]


SPOT_LABEL = "spotwright.dev/spot"
POLICY_ANNOTATION = "spotwright.dev/policy"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

DEFAULT_QUEUE = "default"
"""The LocalQueue of work that names none, where its namespace has one of this name. Source: Kueue, "Setup default LocalQueue"."""

_FIRST_DEFAULTED = (0, 12)  # of Kueue: the feature LocalQueueDefaulting is on since this release

_HOOKS: Mapping[str, str] = {"helm.sh/hook": "Helm", "argocd.argoproj.io/hook": "Argo CD"}
"""Annotations of objects that a tool runs at a release and waits for. Sources: Helm, "Chart Hooks"; Argo CD, "Resource Hooks"."""


RETRIES_STAY = "its retries stay as they are (--only)"
"""The effect of an interruption if the group of retries is not written."""


class Level(StrEnum):
    """The severity of a finding. An object that cannot be placed is an error, not a finding.

    A value of the policy that does not hold is a warning if the user set it, and a note if it is built in.
    """

    NOTE = "note"  # information: an addition, something left as it is, advice; what the user asked for holds
    WARNING = "warning"  # what the user asked for does not hold, costs work or fails, unless they change something


class Finding(NamedTuple):
    """A message for the user about a line of a manifest. Findings with one ``group`` differ only in the name of the object.

    ``to_do``: it must be done in the cluster before the placed file works as written. ``not_judged``: what could not be judged,
    if that is the message.
    """

    level: Level
    file: str
    line: int
    path: Path
    text: str
    group: str = ""
    to_do: bool = False
    not_judged: NotJudged | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.level}: {self.text}"


MOST_RETRIES = 10_000
"""The most retries counted for a workload's controller; unlimited retries count as this many."""


class OwnRetries(NamedTuple):
    """How often the controller of a role's pods tries them again after an error, whatever the policy says.

    ``name`` names the field for people (``its own backoffLimit``). ``is_default``: the field is unset, and this is the
    controller's default.
    """

    times: int
    name: str
    is_default: bool = False

    @property
    def layer(self) -> Layer:
        """The retries as values of a policy."""
        return Layer(self.name, {"errors.retries": min(self.times, MOST_RETRIES)})


class Group(StrEnum):
    """A group of changes, which ``place --only`` names."""

    PLACEMENT = "placement"  # tolerations, affinity, grace period, pull secrets, labels and annotations of the pod
    RETRIES = "retries"  # what is retried, how often and how long
    CHECKPOINT = "checkpoint"  # variables, volumes and the library for checkpoints and notices


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """Options of ``place`` beside the policy.

    ``pod_paths``: patterns of further pod specs, with ``*`` for any item or key. ``may_add``: whether documents may be added in
    front of others. ``only_explain``: the placed text is not written anywhere, and the roles say who enforces every value.
    ``only``: the groups of changes that are written. ``has_webhook``: each pod gets its attempt's rung at creation and the
    budgets hold there, so the limits of the object alone need no warning.
    """

    replace_retries: bool = False
    pod_paths: tuple[Path, ...] = ()
    may_add: bool = True
    only_explain: bool = False
    only: frozenset[Group] = frozenset(Group)
    has_webhook: bool = False


@dataclass(slots=True)
class RoleReport:
    """One role's facts for ``explain``: its pools in order, why others are refused, and the effect of an interruption.

    ``frozen``: what the API server does not let you change on a live object. ``notes``: settings ready to paste, printed once
    for all roles that have them. ``on_demand_reason``: why the role is kept on on-demand without the user's word.
    ``queue``: what Kueue decides, for work in one of its queues; ``is_queue_reversed``: the queue has on-demand before spot.

    ``torchrun``: the variable for torchrun in its pods, if they start it.

    ``mechanism``: how the kind retries, which decides who enforces the policy. ``anchors``: the parts of the object that hold
    the fields, by their names in the table of enforcement.

    ``identity``: the work, run and index of the role's pods, as :class:`~spotwright.placing.pods.Role` has them. ``tasks``: the
    paths of all tasks that share the role, if several. ``own_retries`` names the source of values that the policy takes from
    the role's controller. ``not_judged`` are pools of which it is unknown whether the role fits.
    """

    name: str
    policy_path: str
    line: int
    policy: Policy
    pools: tuple[str, ...]
    refusals: Mapping[str, str]
    after_interruption: str = ""
    frozen: str = ""
    notes: tuple[str, ...] = ()
    torchrun: str = ""
    queue: str = ""
    is_queue_reversed: bool = False
    on_spot: bool = False
    on_demand_reason: str = ""
    mechanism: Mechanism = PODS_ONLY
    anchors: dict[str, Anchor] = field(default_factory=dict)
    enforcement: Mapping[str, Enforced] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    own_retries: str = ""
    not_judged: Sequence[NotJudged] = ()

    @property
    def maybe(self) -> Mapping[str, str]:
        """The pools of which it is unknown whether the role fits, each with the reason."""
        return {one.name: one.why for one in self.not_judged if one.subject is Subject.POOL}

    def anchor(self, name: str, editor: Editor, path: Path) -> None:
        """Name a part of the object: its path in the document of an editor."""
        self.anchors[name] = Anchor(path, editor.get, editor.document.get)

    def enforced(self, name: str) -> Enforced:
        """Who enforces a field of the policy in the object, with all edits so far."""
        if self.queue and (name, self.policy.spot) == ("spot", Spot.PREFER):
            return IN_A_REVERSED_QUEUE if self.is_queue_reversed else IN_A_QUEUE
        if self.queue and self.on_spot and name in ("fall_back_after", "pending_timeout"):
            return BY_QUOTA
        return resolve_fact(self.mechanism.facts, name, self.policy, self.anchors, on_spot=self.on_spot)

    def settle(self, names: Iterable[str]) -> None:
        """Keep who enforces these fields, and release the object."""
        self.enforcement = {name: self.enforced(name) for name in names}
        self.anchors.clear()


FindObject = Callable[[str, str, str | None], Document | None]
"""Finds a document by kind, name and namespace, in the same input and in the files of ``--with``."""

AddDocument = Callable[[Mapping[str, Any]], bool]
"""Adds a document in front of the current one. False if another one of its name was already added with different content."""

FindAll = Callable[[str], Sequence[Document]]
"""Finds every document of a kind, in the same input and in the files of ``--with``: for objects that others refer to."""


def _find_none(_kind: str) -> Sequence[Document]:
    return ()


def _is_never_queued(_api_version: str, _kind: str) -> bool:
    return False


def _is_no_input(_document: Document) -> bool:
    return False


@dataclass(slots=True)
class PlaceContext:
    """One object while it is placed.

    ``base`` is its path in the document: ``()``, or that of a Katib trial. ``owner`` is the policy path of the object around it
    (an experiment), ``outer`` that object's context. ``reported`` has this object's findings, so that none is reported twice.
    ``is_input``: whether the command places a document too. ``add`` is ``None`` where no documents can be added.
    ``is_queued``: whether Kueue assigns an apiVersion and kind the default queue of its namespace.
    """

    editor: Editor
    config: Config
    find: FindObject
    options: PlaceOptions = field(default_factory=PlaceOptions)
    base: Path = ()
    owner: str = ""
    findings: list[Finding] = field(default_factory=list)
    reported: set[Finding] = field(default_factory=set)
    roles: list[RoleReport] = field(default_factory=list)
    find_all: FindAll = _find_none
    is_input: Callable[[Document], bool] = _is_no_input
    add: AddDocument | None = None
    is_queued: Callable[[str, str], bool] = _is_never_queued
    outer: PlaceContext | None = None

    def at(self, *steps: str | int) -> Path:
        """The document's path for steps inside the object."""
        return (*self.base, *steps)

    def get(self, *steps: str | int, default: Any = None) -> Any:
        """The value at steps inside the object, with all edits so far."""
        return self.editor.get(self.at(*steps), default)

    def nested(self, *steps: str | int, owner: str = "") -> PlaceContext:
        """The context of an object inside this one; findings and reports are shared."""
        return replace(self, base=self.at(*steps), owner=owner or self.owner, outer=self)

    def embedded(self, editor: Editor, owner: str = "") -> PlaceContext:
        """The context of an object whose YAML is a text in this one; findings and reports are shared."""
        return replace(self, editor=editor, base=(), owner=owner or self.owner, outer=self, add=None)

    @property
    def name(self) -> str:
        """The object's name in policies, else its owner's."""
        own = name_of(self.get("metadata", default={}))
        return own or self.owner or str(self.get("kind", default="object")).lower()

    @property
    def hook(self) -> str:
        """Why the object, or the object around it, is kept on on-demand as a release hook; empty if it is not a hook.

        It is empty too if the hook has its own policy, or one in ``policy.tasks``.
        """
        tool = hook_of(self.get("metadata", default=None))
        if not tool:
            return "" if self.outer is None else self.outer.hook
        default, tasks = self.config.layers_for(self.name)
        if any(layer.values.get("spot") for layer in (*self._own_policy(), *tasks)):
            return ""
        is_placed = any(layer.values.get("spot") for layer in default)
        return f"it is a hook of {tool}, and an interruption would fail the release" if is_placed else ""

    @property
    def queue(self) -> str:
        """The Kueue queue that admits the object: by its label, else the default one; empty without one."""
        labels = self.get("metadata", "labels", default=None) or {}
        return str(labels.get(QUEUE_LABEL) or "") or (DEFAULT_QUEUE if self.default_queue is not None else "")

    @property
    def default_queue(self) -> Document | None:
        """The LocalQueue that admits the object if it names none; ``None`` if the files have no such queue."""
        labels = self.get("metadata", "labels", default=None) or {}
        found = None if labels.get(QUEUE_LABEL) else self.find("LocalQueue", DEFAULT_QUEUE, self.namespace)
        if found is None or not str(found.get(("apiVersion",), "")).startswith("kueue.x-k8s.io/"):
            return None
        if self.namespace and found.get(("metadata", "namespace"), None) != self.namespace:
            return None
        is_queued = self.is_queued(str(self.get("apiVersion")), str(self.get("kind")))
        return found if is_queued and _defaults_queues(self.config.target) else None

    @property
    def namespace(self) -> str | None:
        """The namespace of the object, else of the object around it; ``None`` if neither has one."""
        own = self.get("metadata", "namespace", default=None)
        if own is None and self.outer is not None:
            return self.outer.namespace
        return own if isinstance(own, str) else None

    def others(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """The fields of every given object of a kind."""
        return (value for one in self.find_all(kind) if isinstance(value := one.get(()), dict))

    def writes(self, group: Group) -> bool:
        """Whether the changes of a group are written."""
        return group in self.options.only

    def add_finding(self, level: Level, path: Path, text: str, *, to_do: bool = False) -> None:
        """Report a finding at a path of the document; the same text at the same line is reported once."""
        finding = Finding(level, self.editor.document.file, self.editor.document.line(path), path, text, to_do=to_do)
        if finding not in self.reported:
            self.reported.add(finding)
            self.findings.append(finding)

    def problem(self, path: Path, text: str) -> ManifestError:
        """An error at a path of the document."""
        return self.editor.problem(path, text)

    def policy(
        self,
        path: str,
        *,
        on_demand_reason: str = "",
        own: Sequence[Layer] | None = None,
        kfp: Layer | None = None,
        is_pinned: bool = False,
        retries: OwnRetries | None = None,
    ) -> Policy:
        """The policy of one role by its path (``mnist/worker``).

        Precedence: ``policy.tasks``, then the object's own policy (label ``spotwright.dev/spot``, annotation
        ``spotwright.dev/policy``, also of an object around it), then ``on_demand_reason`` (why a role is kept on on-demand),
        then ``policy.default``. The reason counts only if the default policy sets ``spot``. ``own`` replaces the object's own
        policy; ``kfp`` has KFP's settings of a task, which are weaker than both. ``is_pinned``: the reason is stronger
        than the object's own policy. ``retries`` are the retries of the role's controller: written ones are stronger than
        ``policy.default``, as KFP's own settings are, unless ``--replace-retries`` replaces them; a default is weaker.
        """
        default, tasks = self.config.layers_for(path)
        own = self._own_policy() if own is None else own
        if retries is not None and self.options.replace_retries and not retries.is_default:
            retries = None
        inherited = [retries.layer] if retries is not None and retries.is_default else []
        layers: list[Layer] = [*inherited, *default, *(own if is_pinned else ())]
        if on_demand_reason and any(layer.values.get("spot") for layer in layers):
            layers.append(Layer(on_demand_reason, {"spot": Spot.NEVER}))
        written = None if retries is None or retries.is_default else retries.layer
        layers += [one for one in (kfp, written) if one is not None]
        layers += [*(() if is_pinned else own), *tasks]
        if self.options.has_webhook:
            lost, layers = lost_deadline(layers), without_deadlines(layers)
            if lost:
                self.add_finding(Level.WARNING, (), lost)
        policy, problems = resolve_layers(layers, kfp, written)
        if problems and not on_demand_reason:
            raise ConfigError(f"policy of {path}: {problems[0]}")
        self._name_overridden(own, tasks, policy)
        for name in policy.ladder or ():
            if name not in self.config.pools:
                text = f"ladder ({policy.sources['ladder']}) names the pool {name!r}, which is not configured"
                raise ConfigError(f"policy of {path}: {text}; the pools are {', '.join(self.config.pools)}")
        return policy

    def _name_overridden(self, own: Sequence[Layer], tasks: Sequence[Layer], policy: Policy) -> None:
        """Report what ``policy.tasks`` of the configuration overrides in an object's own policy."""
        for layer in own if tasks else ():
            for key, value in layer.values.items():
                source = policy.sources.get(key)
                stronger = next((each for each in tasks if each.source == source), None)
                if stronger is not None and stronger.values.get(key) not in (None, value):
                    text = f"its own policy says {key}: {value}, which does not count: {source} says {stronger.values[key]}"
                    self.add_finding(Level.WARNING, self.at("metadata"), text)

    @property
    def has_own_policy(self) -> bool:
        """Whether a label or an annotation of the object sets a policy."""
        return bool(self._own_policy())

    def asks_itself(self, path: str, field: str) -> bool:
        """Whether the object itself or ``policy.tasks`` sets a field of the role's policy; the default does not count."""
        _, tasks = self.config.layers_for(path)
        return any(layer.values.get(field) is not None for layer in (*self._own_policy(), *tasks))

    def _own_policy(self) -> list[Layer]:
        """The policy in the labels and annotations of the objects around this one and of this one."""
        outer = self.outer._own_policy() if self.outer is not None else []  # noqa: SLF001 (its own class)
        labels, annotations = self._metadata()
        document, at = self.editor.document, self.at("metadata")
        is_set = POLICY_ANNOTATION in annotations or SPOT_LABEL in labels  # most objects set none; they need no line
        try:
            layer = own_layer(labels, annotations, f"{document.file}:{document.line(at)}") if is_set else None
        except ValueError as error:
            raise self.problem(at, str(error)) from error
        if layer is None:
            return outer
        if POLICY_ANNOTATION in annotations:
            self._compare(labels.get(SPOT_LABEL), layer)
        return [*outer, layer]

    def _metadata(self) -> list[Mapping[str, Any]]:
        """The labels and the annotations of the object. Raises :class:`ManifestError` if they are not mappings."""
        metadata = self.get("metadata")
        found = [
            (metadata.get(name) if isinstance(metadata, dict) else None) or {} for name in ("labels", "annotations")
        ]
        for name, given in zip(("labels", "annotations"), found, strict=True):
            if not isinstance(given, dict):
                raise self.problem(self.at("metadata", name), f"expected a mapping, found {given!r:.60}")
        return found

    def _compare(self, label: str | None, layer: Layer) -> None:
        """Report a label that differs from the annotation beside it, which alone counts."""
        said = layer.values.get("spot")
        if label is not None and label != said:
            text = f"the label {SPOT_LABEL}: {label} does not count: the annotation {POLICY_ANNOTATION} says "
            text += f"spot: {said}" if said is not None else "no policy about spot, and it alone counts"
            self.add_finding(Level.WARNING, self.at("metadata"), text)


def own_layer(labels: Mapping[str, Any], annotations: Mapping[str, Any], source: str) -> Layer | None:
    """The policy that an object's annotation sets, or its label; ``None`` if it has neither. The annotation alone counts.

    ``source`` names the object in messages. Raises :class:`ValueError` for a policy that cannot be read.
    """
    if POLICY_ANNOTATION not in annotations and SPOT_LABEL not in labels:
        return None
    key, policy = SPOT_LABEL, {"spot": labels.get(SPOT_LABEL)}
    if POLICY_ANNOTATION in annotations:
        key, policy = POLICY_ANNOTATION, _from_json(annotations[POLICY_ANNOTATION])
    try:
        return parse_policy(policy, source)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def _from_json(text: Any) -> Any:
    """The policy in an annotation. Raises :class:`ValueError` for invalid JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except TypeError:
        where = f"it must be a string, not {text!r:.60}"
    except (RecursionError, ValueError):
        where = "it is nested too deeply, or has a number that is too long"
    raise ValueError(f'{POLICY_ANNOTATION} is not JSON ({where}): write it as {{"spot": "prefer"}}')


def _defaults_queues(target: Mapping[str, str]) -> bool:
    """Whether Kueue gives work a default queue. ``target`` may have the release of Kueue."""
    release = str(target.get("kueue", "")).split(".")[:2]
    return len(release) < 2 or tuple(map(int, release)) >= _FIRST_DEFAULTED


def hook_of(metadata: Any) -> str:
    """The tool that runs an object as a hook, and when (``Helm (pre-upgrade)``); empty for other objects.

    Argo CD never applies a hook with the annotation to skip it.
    """
    annotations = (metadata.get("annotations") if isinstance(metadata, dict) else None) or {}
    for key, tool in _HOOKS.items() if isinstance(annotations, dict) else ():
        when = annotations.get(key)
        if when and when != "Skip":
            return f"{tool} ({when})"
    return ""


def name_of(metadata: Any) -> str:
    """The name in an object's metadata, or its ``generateName`` without the dash at the end."""
    if not isinstance(metadata, dict):
        return ""
    return str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-") or "")
