"""What a kind's module is given: the object's editor, the policy, what else is in the input, and where to say things.

A module of :mod:`spotwright.manifests.kinds` never touches text or files. It reads through the editor, asks for the policy of
a role, calls the shared rules (:mod:`spotwright.manifests.pods`) and adds what its kind needs; what a person should know it says
as a finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from spotwright.config import Config
from spotwright.errors import ConfigError
from spotwright.manifests.choices import Choices, resolved
from spotwright.manifests.documents import Document, Path
from spotwright.manifests.edits import Editor
from spotwright.manifests.nodes import ManifestError
from spotwright.model.policy import Layer, Policy, Spot
from spotwright.model.policy_values import PolicyValueError, parse_policy

__all__ = ["Context", "Finding", "Level", "Options", "RoleReport", "name_of"]

SPOT_LABEL = "spotwright.dev/spot"
POLICY_ANNOTATION = "spotwright.dev/policy"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


class Level(StrEnum):
    """How much a finding matters."""

    NOTE = "note"  # good to know
    WARNING = "warning"  # something will not be as one might expect


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a person should know, with its place."""

    level: Level
    file: str
    line: int
    path: Path
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.level}: {self.text}"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for beside the policy."""

    replace_retries: bool = False
    pod_paths: tuple[Path, ...] = ()  # where objects of kinds that are not known have their pod specs
    may_add: bool = True  # documents in front of others


@dataclass(slots=True)
class RoleReport:
    """What ``explain`` says of one role: pools in order with the reason, and what an interruption does there."""

    name: str
    policy_path: str
    line: int
    policy: Policy
    pools: tuple[str, ...]
    refusals: Mapping[str, str]
    after_interruption: str = ""
    frozen: str = ""  # what the API server will not change on a live object
    notes: tuple[str, ...] = ()  # said once, whatever the number of roles that have them: settings ready to paste


Find = Callable[[str, str, str | None], Document | None]
"""Looks for a document by kind, name and namespace, in the same input and in what ``--with`` gives."""

Add = Callable[[Mapping[str, Any]], bool]
"""Puts a document in front of the one under way; false where another one of its name was added that says something else."""

FindAll = Callable[[str], Sequence[Document]]
"""Gives every document of a kind, in the same input and in what ``--with`` gives: for objects that others refer to."""


def _nothing(_kind: str) -> Sequence[Document]:
    return ()


def _never(_document: Document) -> bool:
    return False


@dataclass(slots=True)
class Context:
    """One object under way. ``base`` is where it stands in its document: ``()``, an item of a list, or a Katib trial."""

    editor: Editor
    config: Config
    choices: Choices  # shared by all that is placed with this configuration
    find: Find
    options: Options = field(default_factory=Options)
    base: Path = ()
    owner: str = ""  # the policy path of the object around it (a Katib experiment)
    findings: list[Finding] = field(default_factory=list)
    said: set[Finding] = field(default_factory=set)  # the findings of this object, to say none twice
    roles: list[RoleReport] = field(default_factory=list)
    find_all: FindAll = _nothing
    is_input: Callable[[Document], bool] = _never  # whether what was found is placed itself, by the same command
    add: Add | None = None  # where documents can be added
    around: Context | None = None  # of the object that this one stands in

    def at(self, *steps: str | int) -> Path:
        """A path inside the object."""
        return (*self.base, *steps)

    def get(self, *steps: str | int, default: Any = None) -> Any:
        """A value inside the object, edits included."""
        return self.editor.get(self.at(*steps), default)

    def inside(self, *steps: str | int, owner: str = "") -> Context:
        """The context of an object that stands inside this one; findings and reports are shared."""
        return replace(self, base=self.at(*steps), owner=owner or self.owner, around=self)

    def embedded(self, editor: Editor, owner: str = "") -> Context:
        """The context of an object whose YAML stands in this one as a text; findings and reports are shared."""
        return replace(self, editor=editor, base=(), owner=owner or self.owner, around=self, add=None)

    @property
    def name(self) -> str:
        """The object's name in policies: that of the owner where it has none of its own."""
        own = name_of(self.get("metadata", default={}))
        return own or self.owner or str(self.get("kind", default="object")).lower()

    @property
    def is_queued(self) -> bool:
        """Whether Kueue admits the object: the order of its flavors then decides where it goes."""
        return QUEUE_LABEL in (self.get("metadata", "labels", default=None) or {})

    def say(self, level: Level, path: Path, text: str) -> None:
        """Note a finding at a path of the document; the same text at the same line is said once."""
        finding = Finding(level, self.editor.document.file, self.editor.document.line(path), path, text)
        if finding not in self.said:
            self.said.add(finding)
            self.findings.append(finding)

    def problem(self, path: Path, text: str) -> ManifestError:
        """An error at a path of the document."""
        return self.editor.problem(path, text)

    def policy(
        self, path: str, *, stays: str = "", said: Sequence[Layer] | None = None, kfp: Layer | None = None
    ) -> Policy:
        """The policy of one role by its path (``mnist/worker``).

        Precedence: ``policy.tasks``, then what the object says itself (label ``spotwright.dev/spot``, annotation
        ``spotwright.dev/policy``, also of an object around it), then ``stays`` (why a role is kept on on-demand), then
        ``policy.default``. Where nobody says anything about spot, ``stays`` says nothing either. ``said`` stands in for what
        the object says itself, ``kfp`` is what KFP's own settings say of a task, weaker than both.
        """
        default, tasks = self.config.layers_for(path)
        layers: list[Layer] = [*default]
        if stays and any(layer.values.get("spot") for layer in default):
            layers.append(Layer(stays, {"spot": Spot.NEVER}))
        layers += [] if kfp is None else [kfp]
        layers += [*(self._said() if said is None else said), *tasks]
        settled = len(layers) == len(default) + len(tasks)  # the configuration says it all
        policy, problems = self.choices.policy(layers) if settled else resolved(layers, kfp)
        if problems and not stays:
            raise ConfigError(f"policy of {path}: {problems[0]}")
        for name in policy.ladder or ():
            if name not in self.config.pools:
                text = f"ladder ({policy.sources['ladder']}) names the pool {name!r}, which is not configured"
                raise ConfigError(f"policy of {path}: {text}; the pools are {', '.join(self.config.pools)}")
        return policy

    def _said(self) -> list[Layer]:
        around = self.around._said() if self.around is not None else []  # noqa: SLF001 (its own class)
        labels = self.get("metadata", "labels", default=None) or {}
        annotations = self.get("metadata", "annotations", default=None) or {}
        if POLICY_ANNOTATION not in annotations and SPOT_LABEL not in labels:
            return around
        source = f"{self.editor.document.file}:{self.editor.document.line(self.at('metadata'))}"
        try:
            if POLICY_ANNOTATION in annotations:
                return [*around, parse_policy(json.loads(annotations[POLICY_ANNOTATION]), source)]
            return [*around, parse_policy({"spot": labels[SPOT_LABEL]}, source)]
        except (PolicyValueError, ValueError) as error:
            raise self.problem(self.at("metadata"), f"{SPOT_LABEL} or {POLICY_ANNOTATION}: {error}") from error


def name_of(metadata: Any) -> str:
    """The name in an object's metadata; of a ``generateName`` what stands before the dash."""
    if not isinstance(metadata, dict):
        return ""
    return str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-") or "")
