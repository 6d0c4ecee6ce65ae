"""The additions by which a pod runs on its pools and saves its work: one value for files, live objects and compiled pipelines.

Functions of a policy and its pools make it; each form of a pod only says where its parts are written. Terms of node affinity
are alternatives, so each of them gets a condition; a term without any matches no node, and stays so. Additions are recorded
when they are made (:class:`TermEdits`, :data:`OWN_ANNOTATION`), so that a condition of the pod's author that equals one of ours
stays the author's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spotwright.kube.object_fields import mapping, mappings
from spotwright.kube.pod import PREFERRED, TERMS, can_match
from spotwright.model.policy import BUILT_IN, Policy
from spotwright.placing.affinity import Expression
from spotwright.placing.documents import Path
from spotwright.placing.patch import Editor, value_at

__all__ = [
    "NO_CHANGE",
    "OWN_ANNOTATION",
    "ContainerChange",
    "PodChange",
    "TermEdits",
    "grace_period_of",
    "longest_grace",
    "ours_in",
    "with_terms",
    "without_conditions",
    "without_preferences",
    "write",
    "write_metadata",
]

OWN_ANNOTATION = "spotwright.dev/own"
"""Conditions that placement would add but the pod's author had written, as JSON.

``{"0": ["KEY"], "preferred": ["KEY"]}``: in the first required term, the condition on the label ``KEY``; and the preference for
it.
"""
_PREFERRED = "preferred"

_LONGEST_OWN = 4096  # characters that are read: the annotation is untrusted
_RESERVE = 5  # seconds of the notice left for the kubelet after the grace period


class TermEdits(NamedTuple):
    """The edits of required terms: each term's new conditions, in order, and the added terms."""

    added: tuple[tuple[Expression, ...], ...]
    more: tuple[Mapping[str, Any], ...] = ()

    @property
    def conditions(self) -> tuple[tuple[Expression, ...], ...]:
        """The added conditions of each resulting term; added terms come last."""
        return (*self.added, *(tuple(term["matchExpressions"]) for term in self.more))


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """The additions to one container: variables, mounts, a preStop hook, and a changed command.

    A variable replaces one of its name. ``words`` has texts by their places: ``("command", 2)``.
    """

    variables: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()
    pre_stop: Mapping[str, Any] | None = None
    words: Mapping[Path, str] = field(default_factory=dict)

    def __or__(self, other: ContainerChange) -> ContainerChange:
        """Both changes."""
        return ContainerChange(
            (*self.variables, *other.variables),
            (*self.mounts, *other.mounts),
            self.pre_stop or other.pre_stop,
            {**self.words, **other.words},
        )


@dataclass(frozen=True, slots=True)
class PodChange:
    """The additions to a pod: conditions on nodes, grace period, containers, labels and annotations.

    ``required`` must all hold, and one of ``any_of``, beside each of the pod's own alternatives. ``preferred`` have the
    greatest weight. ``is_wish``: they replace requirements, because the run decides where pods go. ``grace_period`` is in whole
    seconds (``None``: the pod keeps its own). ``containers`` are changed by their index. A pod gets the ``labels`` and
    ``annotations`` that it lacks.
    """

    tolerations: tuple[Mapping[str, str], ...] = ()
    required: tuple[Expression, ...] = ()
    any_of: tuple[Expression, ...] = ()
    preferred: tuple[Expression, ...] = ()
    grace_period: int | None = None
    is_wish: bool = False
    containers: Mapping[int, ContainerChange] = field(default_factory=dict)
    volumes: tuple[Mapping[str, Any], ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, other: PodChange) -> PodChange:
        """Both changes; where only one can hold, the first."""
        if other is NO_CHANGE:
            return self
        indexes = dict.fromkeys([*self.containers, *other.containers])
        nothing = ContainerChange()
        return PodChange(
            (*self.tolerations, *other.tolerations),
            (*self.required, *other.required),
            (*self.any_of, *other.any_of),
            (*self.preferred, *other.preferred),
            other.grace_period if self.grace_period is None else self.grace_period,
            self.is_wish or other.is_wish,
            {one: self.containers.get(one, nothing) | other.containers.get(one, nothing) for one in indexes},
            (*self.volumes, *other.volumes),
            (*self.image_pull_secrets, *other.image_pull_secrets),
            {**self.labels, **other.labels, **self.labels},
            {**self.annotations, **other.annotations, **self.annotations},
        )

    def terms(self, present: Sequence[Mapping[str, Any]]) -> TermEdits:
        """The edits of the ``present`` required terms; a term does not get a condition that it has."""
        first, others = self.any_of[:1], self.any_of[1:]
        conditions = (*self.required, *first)
        if not present:
            terms = [[*self.required, one] for one in self.any_of] or [list(self.required)]
            return TermEdits((), tuple({"matchExpressions": term} for term in terms if term))
        added = tuple(_missing(term, conditions) if can_match(term) else () for term in present)
        more = [_with(term, (*self.required, one)) for one in others for term in present if can_match(term)]
        return TermEdits(added, tuple(more))

    @property
    def preferences(self) -> list[dict[str, Any]]:
        """The preferred terms."""
        return [{"weight": 100, "preference": {"matchExpressions": [one]}} for one in self.preferred]

    def own_in(self, spec: Mapping[str, Any]) -> dict[str, list[str]]:
        """The author's conditions in a pod spec that equal ours, in the form of :data:`OWN_ANNOTATION`."""
        present = value_at(spec, TERMS) or ()
        ours = (*self.required, *self.any_of, *(self.preferred if self.is_wish else ()))
        copies = [
            term for _ in self.any_of[1:] for term in present if can_match(term)
        ]  # as terms() makes them, in front
        found = {
            str(index): [str(one["key"]) for one in ours if one in (term.get("matchExpressions") or ())]
            for index, term in enumerate([*copies, *present])
        }
        wishes = value_at(spec, PREFERRED) or ()
        found[_PREFERRED] = [
            str(one["key"]) for one, wish in zip(self.preferred, self.preferences, strict=True) if wish in wishes
        ]
        return {index: keys for index, keys in found.items() if keys}


NO_CHANGE = PodChange()
"""An empty change."""


def write(editor: Editor, spec: Path, change: PodChange, metadata: Path | None = None) -> None:
    """Write a change into the pod spec at a path of a document, or of a live object, and into the ``metadata`` of its pods."""
    editor.extend((*spec, "tolerations"), change.tolerations)
    at = (*spec, *TERMS)
    edits = change.terms(editor.get(at) or ())
    for index, added in enumerate(edits.added):
        if added:
            editor.extend((*at, index, "matchExpressions"), added)
    editor.extend(at, edits.more)
    editor.extend((*spec, *PREFERRED), change.preferences)
    if change.grace_period is not None:
        editor.add((*spec, "terminationGracePeriodSeconds"), change.grace_period)
    for index, container in change.containers.items():
        _write_container(editor, (*spec, "containers", index), container)
    if change.volumes:
        editor.extend((*spec, "volumes"), change.volumes)
    if change.image_pull_secrets:
        editor.extend((*spec, "imagePullSecrets"), [{"name": name} for name in change.image_pull_secrets])
    if metadata is not None:
        write_metadata(editor, metadata, change)


def _write_container(editor: Editor, at: Path, change: ContainerChange) -> None:
    env = enumerate(editor.get((*at, "env")) or ())
    given = {one.get("name"): index for index, one in env if isinstance(one, dict)}
    for one in change.variables:
        if one["name"] in given:
            editor.replace((*at, "env", given[one["name"]]), one)
    editor.extend((*at, "env"), [one for one in change.variables if one["name"] not in given])
    if change.mounts:
        editor.extend((*at, "volumeMounts"), change.mounts)
    if change.pre_stop is not None:
        editor.add((*at, "lifecycle", "preStop"), change.pre_stop)
    for path, text in change.words.items():
        editor.replace((*at, *path), text)


def write_metadata(editor: Editor, metadata: Path, change: PodChange) -> None:
    """Write the labels and annotations that are missing in the metadata at a path."""
    wanted = {"labels": change.labels, "annotations": change.annotations}
    _add_missing(editor, metadata, {name: values for name, values in wanted.items() if values})


def _add_missing(editor: Editor, path: Path, values: Mapping[str, Any]) -> None:
    """Add the keys of a nested mapping that are missing at a path; the user's own values stay."""
    present = editor.get(path)
    if present is None:
        if values:
            editor.add(path, values)
        return
    for key, value in values.items():
        if isinstance(value, dict):
            _add_missing(editor, (*path, key), value)
        elif present.get(key) is None:
            editor.add((*path, key), value)


def with_terms(present: Sequence[Mapping[str, Any]], change: PodChange) -> list[dict[str, Any]]:
    """The required terms after a change."""
    edits = change.terms(present)
    pairs = zip(present, edits.added, strict=True) if present else ()
    return [*(_with(term, added) if added else dict(term) for term, added in pairs), *map(dict, edits.more)]


def without_conditions(
    terms: Sequence[Mapping[str, Any]], ours: Sequence[Sequence[Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    """The required terms without ``ours``, the conditions added to each term, in order.

    Empty if a term had no other condition: then there was no requirement before.
    """
    left: list[dict[str, Any]] = []
    for index, term in enumerate(terms):
        added = ours[index] if index < len(ours) else ()
        if not added:
            left.append(dict(term))
            continue
        rest = {key: value for key, value in term.items() if key != "matchExpressions" and value}
        own = [one for one in term.get("matchExpressions") or () if one not in added]
        if own:
            rest["matchExpressions"] = own
        if not can_match(rest):
            return []
        left.append(rest)
    return left


def _own_conditions(pod: Mapping[str, Any]) -> Mapping[str, frozenset[str]]:
    """The author's conditions in a placed pod that equal ours, as recorded: the keys of their labels.

    Other annotations do not count: the pod's maker writes them, for that pod alone.
    """
    text = value_at(pod, ("metadata", "annotations", OWN_ANNOTATION))
    if not isinstance(text, str) or len(text) > _LONGEST_OWN:
        return {}
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    lists = ((index, keys) for index, keys in mapping(given).items() if isinstance(keys, list))
    return {index: frozenset(key for key in keys if isinstance(key, str)) for index, keys in lists}


def without_preferences(
    spec: Mapping[str, Any], pod: Mapping[str, Any], preferred: Iterable[Expression]
) -> dict[str, Any]:
    """A placed pod's spec without the preferences that placement has added, among those it adds to such pods."""
    own = _own_conditions(pod).get(_PREFERRED, ())
    ours = PodChange(preferred=tuple(one for one in preferred if one["key"] not in own)).preferences
    affinity = dict(mapping(mapping(spec.get("affinity")).get("nodeAffinity")))
    kept = [term for term in affinity.pop(str(PREFERRED[-1]), None) or () if term not in ours]
    if kept:
        affinity[str(PREFERRED[-1])] = kept
    return {**spec, "affinity": {**mapping(spec.get("affinity")), "nodeAffinity": affinity}}


def ours_in(pod: Mapping[str, Any], placed: Iterable[Expression]) -> list[list[Expression]]:
    """The conditions that placement has added to each required term of a pod, among those it adds to such pods."""
    own, every = _own_conditions(pod), list(placed)
    return [
        [
            one
            for one in every
            if one in (term.get("matchExpressions") or ()) and one["key"] not in own.get(str(index), ())
        ]
        for index, term in enumerate(mappings(value_at(pod, ("spec", *TERMS))))
    ]


def grace_period_of(policy: Policy, notice: float | None) -> int | None:
    """The grace period to write, in whole seconds; ``None``: the API server's default stays.

    The policy's, if set, or if it must be cut to the notice (``None``: no spot pool).
    """
    wanted = int(policy.grace_period)
    limit = wanted if notice is None else longest_grace(notice)
    is_set = policy.sources.get("grace_period") != BUILT_IN.source
    return min(wanted, limit) if is_set or limit < wanted else None


def longest_grace(notice: float) -> int:
    """The longest grace period, in whole seconds, that ends within a notice."""
    return max(1, int(notice - _RESERVE))


def _missing(term: Mapping[str, Any], conditions: Iterable[Expression]) -> tuple[Expression, ...]:
    present = term.get("matchExpressions") or ()
    return tuple(one for one in conditions if one not in present)


def _with(term: Mapping[str, Any], conditions: Iterable[Expression]) -> dict[str, Any]:
    present = list(term.get("matchExpressions") or ())
    return {**term, "matchExpressions": [*present, *(one for one in conditions if one not in present)]}
