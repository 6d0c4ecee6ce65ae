"""Rules on conditions that no node meets, whatever the pools are.

They are labels with another value or a misspelt key, labels of two clouds, conditions that exclude each other, and what the API
server refuses. They need no configuration. A label of a configured pool is never reported. The facts are in
:mod:`spotwright.clouds.label_values`. Sources: Kubernetes documentation, "Assigning Pods to Nodes", "Labels and Selectors";
kubernetes, ``pkg/apis/core/validation``, ``ValidateNodeSelectorRequirement``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.label_values import (
    NOT_SINCE,
    RENAMED,
    is_region,
    key_meant,
    label_of,
    makers_of,
    region_of,
    value_meant,
)
from spotwright.clouds.providers import ZONE
from spotwright.kube.pod import PREFERRED, TERMS, wrong_weight
from spotwright.linter.python_source import PythonFile, calls_named, keyword
from spotwright.linter.rule import ON_SPOT, PREFERS_SPOT, Checks, Mend, Problem, Rule, Severity, job
from spotwright.linter.settings import Settings
from spotwright.linter.spot_reach import alternatives, selects_pool, selects_spot, shuns_spot
from spotwright.linter.subjects import KubeObject, Pods, items_of, mapping_at, mapping_of
from spotwright.model.scheduling_terms import Expression, Taint, Term, Toleration, contradiction, is_placeholder
from spotwright.placing.documents import Path
from spotwright.placing.patch import value_at

__all__ = ["RULES", "excluding"]

_REGION = "topology.kubernetes.io/region"
_NEGATIVE = ("NotIn", "DoesNotExist")


class _Condition(NamedTuple):
    """One condition with its place. ``values`` are the places of its values; ``effect`` says what follows if no node meets it."""

    expression: Expression
    path: Path
    values: tuple[Path, ...]
    effect: str


def _conditions(pods: Pods) -> Iterator[_Condition]:
    """The conditions of the pods on labels of nodes, required and preferred."""
    for key, value in pods.constraints.selector.items():
        path, maker = pods.selected(key), pods.makers.get(key)
        effect = f"so {pods.label} stays Pending" + (f": its {maker} adds this label" if maker else "")
        yield _Condition(Expression(key, "In", (value,)), path, () if maker else (path,), effect)
    required = pods.constraints.required
    alone = f"so {pods.label} stays Pending"
    effect = alone if len(required) == 1 else f"so this alternative of {pods.label} is never met"
    for index, term in enumerate(required):
        yield from _of_term(pods, term, (*pods.terms, index), effect)
    for index, wish in enumerate(pods.constraints.preferred):
        path = pods.at(*PREFERRED, index, "preference")
        yield from _of_term(pods, wish.term, path, f"so this preference of {pods.label} has no effect")


def _of_term(pods: Pods, term: Term, path: Path, effect: str) -> Iterator[_Condition]:
    for index, expression in enumerate(term.expressions):
        # The preferred and the required terms of a compiled pipeline are in one list.
        at = pods.terms if pods.form == "K" else (*path, "matchExpressions", index)
        values = () if pods.form == "K" else tuple((*at, "values", number) for number in range(len(expression.values)))
        said = f"so it keeps {pods.label} off no node" if expression.operator in _NEGATIVE else effect
        yield _Condition(expression, at, values, said)


class _Fault(NamedTuple):
    """Why no node meets a condition: the words for what no node has, the advice, and the right values where they are certain."""

    text: str
    fix: str
    values: tuple[str, ...] = ()


def _fault(expression: Expression, settings: Settings) -> _Fault | None:
    """Why no node of a known provider meets a condition, or why a condition that excludes excludes none."""
    key = expression.key
    if is_placeholder(key) or any(key in pool.labels for pool in settings.pools.values()):
        return None
    if key in NOT_SINCE:
        since, today = NOT_SINCE[key]
        return _Fault(f"no node has the label {key} since {since}", f"Write {today}, with the name of the pool.")
    meant = key_meant(key)
    if meant is not None:
        return _Fault(f"no node has the label {key}", _spelling(meant, expression.values))
    return _value_fault(expression)


def _spelling(key: str, values: Iterable[str]) -> str:
    label = label_of(key)
    known = [] if label is None else [value_meant(label, value) or value for value in values]
    return f"Write {key}{': ' + _quoted(known[0]) if len(known) == 1 and known[0] else ''}."


def _quoted(value: str) -> str:
    """A value as YAML needs it: a boolean word is a string only in quotes."""
    return f'"{value}"' if value in ("true", "false") else value


def _value_fault(expression: Expression) -> _Fault | None:
    label = label_of(expression.key)
    if label is None or expression.operator not in ("In", "NotIn") or not expression.values:
        return None
    found = [None if is_placeholder(value) else value_meant(label, value) for value in expression.values]
    meant = [value for value in found if value is not None]
    if len(meant) < len(found):
        return None  # one of them is right, or may be
    values = " or ".join(expression.values)
    if not all(meant):
        return _Fault(f"no node has {expression.key}={values}", f"The values are {', '.join(label.values)}.")
    return _Fault(
        f"no node has {expression.key}={values}",
        f"Write {' or '.join(map(_quoted, dict.fromkeys(meant)))}.",
        tuple(meant),
    )


def _never_met(pods: Pods, settings: Settings) -> Iterator[Problem]:
    for condition in _conditions(pods):
        fault = _fault(condition.expression, settings)
        if fault is not None:
            pairs = zip(condition.values, fault.values, strict=False)
            mends = tuple(Mend("replace", path, value) for path, value in pairs) if pods.form != "K" else ()
            yield Problem(condition.path, f"{fault.text}, {condition.effect}", fault.fix, mends)
    for path in _topology_keys(pods):
        key = value_at(pods.document.get(()), path)
        meant = key_meant(key) if isinstance(key, str) else None
        if meant is not None and not any(key in pool.labels for pool in settings.pools.values()):
            yield Problem(path, f"no node has the label {key}, so the rule by it holds for none", f"Write {meant}.")


def _topology_keys(pods: Pods) -> Iterator[Path]:
    """The paths of the topology keys that keep pods together or apart."""
    for kind in ("podAffinity", "podAntiAffinity"):
        for name, inner in (
            ("requiredDuringSchedulingIgnoredDuringExecution", ()),
            ("preferredDuringSchedulingIgnoredDuringExecution", ("podAffinityTerm",)),
        ):
            for index, term in enumerate(items_of(mapping_at(pods.value, "affinity", kind).get(name))):
                if mapping_at(term, *inner).get("topologyKey") is not None:
                    yield (*pods.at("affinity"), kind, name, index, *inner, "topologyKey")
    for index, rule in enumerate(items_of(pods.value.get("topologySpreadConstraints"))):
        if mapping_of(rule).get("topologyKey") is not None:
            yield pods.at("topologySpreadConstraints", index, "topologyKey")


_MAKERS_OF_NODES = ("NodePool", "NodeClaim", "Provisioner")


def _never_made(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    """Requirements of Karpenter's pools, and labels of Kueue's flavors, that no node meets."""
    if subject.group == "karpenter.sh" and subject.kind in _MAKERS_OF_NODES:
        inner = ("template", "spec") if subject.kind == "NodePool" else ()
        for index, one in enumerate(subject.items("spec", *inner, "requirements")):
            given = mapping_of(one)
            values = tuple(str(value) for value in items_of(given.get("values")))
            fault = _fault(Expression(str(given.get("key")), str(given.get("operator")), values), settings)
            if fault is not None:
                path = subject.at("spec", *inner, "requirements", index)
                yield Problem(path, f"{fault.text}, so {subject.label} makes none by it", fault.fix)
    if subject.record.is_of_nodes:
        for key, value in subject.mapping("spec", "nodeLabels").items():
            fault = _fault(Expression(key, "In", (str(value),)), settings)
            if fault is not None:
                path = subject.at("spec", "nodeLabels", key)
                yield Problem(path, f"{fault.text}, so pods of {subject.label} stay Pending", fault.fix)


def _never_met_in_python(file: PythonFile, settings: Settings) -> Iterator[Problem]:
    """The same in calls of kfp 1 and the Kubernetes client; current calls are checked with their tasks' pods."""
    for expression, line in _conditions_in(file):
        fault = _fault(expression, settings)
        if fault is not None:
            effect = "it excludes none" if expression.operator in _NEGATIVE else "none meets this condition"
            yield Problem((), f"{fault.text}, so {effect}", fault.fix, line=line)


def _conditions_in(file: PythonFile) -> Iterator[tuple[Expression, int]]:
    for call in calls_named(file, "add_node_selector_constraint"):
        yield from _literal(keyword(call, "label_name", 0), "In", [keyword(call, "value", 1)], call.lineno)
    for call in calls_named(file, "V1NodeSelectorRequirement"):
        operator, values = _text(keyword(call, "operator", 1)), keyword(call, "values", 2)
        items = list(values.elts) if isinstance(values, ast.List | ast.Tuple) else []
        yield from _literal(keyword(call, "key", 0), operator or "", items, call.lineno)


def _literal(
    key: ast.expr | None, operator: str, values: Iterable[ast.expr | None], line: int
) -> Iterator[tuple[Expression, int]]:
    """A condition whose key is a literal in the file; any other value counts as a placeholder."""
    name = _text(key)
    if name is not None:
        yield Expression(name, operator, tuple(_text(value) or "{{}}" for value in values)), line


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _together(pods: Pods) -> list[tuple[Path, list[Expression]]]:
    """The alternatives of the pods, each with its place."""
    found = alternatives(pods.constraints)
    if not pods.constraints.required:
        return [(pods.selector, found[0])]
    paths = [pods.terms if pods.form == "K" else (*pods.terms, index) for index in range(len(found))]
    return list(zip(paths, found, strict=True))


def _is_met_by_a_pool(pods: Pods, settings: Settings) -> bool:
    return any(selects_pool(pods.constraints, pool, {}) for pool in settings.pools.values())


def _of_several_clouds(pods: Pods, settings: Settings) -> Iterator[Problem]:
    found = [(path, _mixed(expressions)) for path, expressions in _together(pods)]
    path, mixed = found[0]
    if all(one for _, one in found) and not _is_met_by_a_pool(pods, settings):
        yield Problem(path, f"{pods.with_maker(*mixed)} selects {_enumerated(mixed)}, and no node has all of them")
    for index, wish in enumerate(pods.constraints.preferred):
        mixed = _mixed(list(wish.term.expressions))
        if mixed:
            path = pods.terms if pods.form == "K" else pods.at(*PREFERRED, index)
            yield Problem(path, f"{pods.label} prefers {_enumerated(mixed)}, and no node has all of them")


def _mixed(expressions: Sequence[Expression]) -> dict[str, frozenset[str]]:
    """The labels without a common maker, each with its makers; empty if one maker has all."""
    asked = [one for one in expressions if one.operator in ("In", "Exists", "Gt", "Lt")]
    makers = {one.key: who for one in asked if (who := makers_of(one.key, one.values))}
    common = frozenset.intersection(*makers.values()) if makers else frozenset("-")
    return {} if common else makers


def _enumerated(makers: dict[str, frozenset[str]]) -> str:
    words = [f"{key} (of {_short(who)})" for key, who in makers.items()]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _short(makers: frozenset[str]) -> str:
    """Who makes nodes with a label, in common words: Karpenter only if no one else does."""
    others = sorted(one for one in makers if " on " not in one)  # prefer the cloud to Karpenter on it
    return " or ".join(others or (sorted(makers) if len(makers) == 1 else [min(makers).partition(" on ")[0]]))


def _contradiction(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """A selector with required terms that are contradictory in every alternative."""
    found = [(path, excluding(expressions, settings)) for path, expressions in _together(pods)]
    path, first = found[0]
    if first and all(words for _, words in found):
        yield Problem(path, f"{pods.label} asks for {first} at once, so no node fits")


def excluding(expressions: Iterable[Expression], settings: Settings) -> str:
    """Two conditions that no node meets together, in words; empty without them, or if one is known only at run time."""
    known = [one for one in expressions if not any(map(is_placeholder, (one.key, *one.values)))]
    pair = contradiction(known)
    if pair is None:
        spot = next((one for one in known if selects_spot(one, settings)), None)
        other = next((one for one in known if one.operator == "In" and shuns_spot(one)), None)
        pair = (spot, other) if spot is not None and other is not None else _zone_elsewhere(known)
    return "" if pair is None else f"{_words(pair[0])} and for {_words(pair[1])}"


def _zone_elsewhere(expressions: list[Expression]) -> tuple[Expression, Expression] | None:
    """A zone and a region that the zone is not in, by the names that clouds give them."""
    zones = [one for one in expressions if RENAMED.get(one.key, one.key) == ZONE and one.operator == "In"]
    regions = [one for one in expressions if RENAMED.get(one.key, one.key) == _REGION and one.operator == "In"]
    for zone in zones:
        for region in regions:
            of_zones = {region_of(value) for value in zone.values}
            if None not in of_zones and all(map(is_region, region.values)) and of_zones.isdisjoint(region.values):
                return zone, region
    return None


def _words(one: Expression) -> str:
    if one.operator == "In" and len(one.values) == 1:
        return f"{one.key}={one.values[0]}"
    return " ".join([one.key, one.operator, ", ".join(one.values)]).rstrip()


def _renamed(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    found: list[tuple[object, Path]] = [(one.expression.key, one.path) for one in _conditions(pods)]
    found += [(value_at(pods.document.get(()), path), path) for path in _topology_keys(pods)]
    for key, path in found:
        if isinstance(key, str) and key in RENAMED:
            yield Problem(
                path, f"{pods.with_maker(key)} uses the label {key}, which is deprecated", f"Write {RENAMED[key]}."
            )


def _refused(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    for one in pods.refusals:
        if one.field == "affinity" and not (isinstance(one.value, str) and not one.value.isascii()):
            yield Problem(pods.at(*one.path), one.text)
    for condition in _conditions(pods):
        asked = condition.expression
        if asked.operator in ("Gt", "Lt") and len(asked.values) == 1 and asked.bound is None and not asked.is_undecided:
            text = f"no node meets this condition: {asked.operator} compares whole numbers, not {asked.values[0]}"
            yield Problem(condition.path, text)
    for index, term in enumerate(items_of(value_at(pods.value, TERMS)) if pods.form != "K" else ()):
        if not any(mapping_of(term).values()):  # a misspelt field has its own finding
            yield Problem((*pods.terms, index), f"a term without a condition matches no node, for {pods.label}")
    yield from _refused_weights(pods)


def _refused_weights(pods: Pods) -> Iterator[Problem]:
    """Weights of affinity between pods that are out of range."""
    for kind in ("podAffinity", "podAntiAffinity"):
        preferred = (kind, "preferredDuringSchedulingIgnoredDuringExecution")
        for index, wish in enumerate(items_of(mapping_at(pods.value, "affinity", kind).get(preferred[1]))):
            wrong = wrong_weight(mapping_of(wish).get("weight")) if isinstance(wish, dict) else ""
            if wrong:
                path = (*pods.at("affinity"), *preferred, index)
                yield Problem(path, f"the API server refuses this preference: {wrong}")


_SPOT_TAINTS = (Taint("kubernetes.azure.com/scalesetpriority", "spot"), Taint("cloud.google.com/gke-spot", "true"))
"""The taints of spot nodes whose whole form is known: AKS sets its own, and Google's guides set the one of GKE."""


def _without_taint(pods: Pods, settings: Settings) -> Iterator[Problem]:
    """Tolerations that are meant for the taint of spot nodes and do not match it."""
    owned = [taint for pool in settings.pools.values() for taint in providers.taints(pool)]
    for index, given in enumerate(pods.constraints.tolerations):
        key = key_meant(given.key) or given.key
        taint = next((one for one in _SPOT_TAINTS if one.key == key), None)
        if taint is None or pods.constraints.tolerates(taint) or any(map(given.tolerates, owned)):
            continue
        fault = _unlike(given, taint)
        if fault is not None:
            path = pods.at("tolerations", index)
            text, name, value = fault
            fix = f"Write {name}: {value}." if name != "key" else f"Write {value}."
            kind = "replace" if mapping_at(pods.document.get(()), *path).get(name) is not None else "add"
            mends = (Mend(kind, (*path, name), value),) if pods.form != "K" else ()
            yield Problem(path, f"{pods.label} tolerates no taint of spot nodes by this: {text}", fix, mends)


def _without_taint_in_python(file: PythonFile, settings: Settings) -> Iterator[Problem]:
    """The same in calls of the client of Kubernetes; a file that has the right toleration too is left alone."""
    owned = [taint for pool in settings.pools.values() for taint in providers.taints(pool)]
    found = [(_toleration_in(call), call.lineno) for call in calls_named(file, "V1Toleration")]
    for given, line in found:
        taint = next((one for one in _SPOT_TAINTS if one.key == (key_meant(given.key) or given.key)), None)
        if taint is None or any(other.tolerates(taint) for other, _ in found) or any(map(given.tolerates, owned)):
            continue
        fault = _unlike(given, taint)
        if fault is not None:
            text, _, value = fault
            yield Problem((), f"this tolerates no taint of spot nodes: {text}", f"Write {value}.", line=line)


def _toleration_in(call: ast.Call) -> Toleration:
    """The toleration of a call, whose values count as placeholders if they are not in its file."""

    def field(name: str, default: str = "") -> str:
        given = keyword(call, name)  # the client's class takes only keywords
        return default if given is None else _text(given) or "{{}}"

    return Toleration(field("key"), field("operator", "Equal"), field("value"), field("effect"))


def _unlike(given: Toleration, taint: Taint) -> tuple[str, str, str] | None:
    """Why a toleration does not match the taint that it means: the text, the field, and its right value."""
    if any(map(is_placeholder, given[:4])):
        return None
    if given.key != taint.key:
        return f"the key of the taint is {taint.key}, not {given.key}", "key", taint.key
    if given.operator == "Equal" and not given.value:
        return f"without a value it needs the operator Exists, and the taint is {taint}", "operator", "Exists"
    label = label_of(taint.key)
    if given.operator == "Equal" and label is not None and value_meant(label, given.value) is not None:
        return f"the value of the taint is {taint.value}, not {given.value}", "value", taint.value
    if given.effect not in ("", taint.effect):
        return f"the effect of the taint is {taint.effect}, not {given.effect}", "effect", taint.effect
    return None


_MEANT = (
    "  name: train\n",
    "  name: train\n  labels: {spotwright.dev/spot: require}\n",
)  # in examples: waiting is meant
_TERMS = (
    "affinity:\n  nodeAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n      nodeSelectorTerms:\n"
    "      - matchExpressions:\n        - {condition}\n"
)

RULES = (
    Rule(
        id="label-no-node-has",
        severity=Severity.ERROR,
        title="A label, or a value of it, that no node has",
        why="Values are compared letter by letter: spot, Spot and SPOT are three values, and each cloud has one of them. "
        "No node is found by another one, nor by a key that is a letter off, so the pods stay Pending; a condition that "
        "excludes nodes excludes none.",
        fix="Write the label as the nodes have it.",
        fails=job("nodeSelector: {kubernetes.azure.com/scalesetpriority: Spot}\n"),
        passes=job(ON_SPOT),
        checks=Checks(pods=_never_met, objects=_never_made, python=_never_met_in_python),
        mends=True,
        source="Kubernetes, Microsoft, Google, Amazon and Karpenter on the labels of nodes",
    ),
    Rule(
        id="labels-of-several-clouds",
        severity=Severity.ERROR,
        title="Selects labels of several clouds at once",
        why="The pairs of a node selector and the conditions of a term have to hold together, and a node is made by one "
        "cloud. No node has all of the labels, so the pods stay Pending.",
        fix="Write one required term for each cloud, because terms are alternatives; or give the pools of every cloud one "
        "label of your own and select it.",
        fails=job("nodeSelector: {cloud.google.com/gke-spot: 'true', eks.amazonaws.com/capacityType: SPOT}\n").replace(
            *_MEANT
        ),
        passes=job(
            _TERMS.format(condition="{key: cloud.google.com/gke-spot, operator: In, values: ['true']}")
            + "      - matchExpressions:\n"
            "        - {key: eks.amazonaws.com/capacityType, operator: In, values: [SPOT]}\n"
        ).replace(*_MEANT),
        checks=Checks(pods=_of_several_clouds),
    ),
    Rule(
        id="placement-contradiction",
        severity=Severity.ERROR,
        title="Asks for two things that no node has at once",
        why="A node selector and each required term have to hold together: spot and on-demand, two values of one label, a "
        "zone and another region. No node meets both conditions, so the pods stay Pending.",
        fix="Remove one of the two conditions.",
        fails=job(
            "nodeSelector: {karpenter.sh/capacity-type: spot}\n"
            + _TERMS.format(condition="{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}")
        ),
        passes=job(
            _TERMS.format(condition="{key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}")
        ),
        checks=Checks(pods=_contradiction),
    ),
    Rule(
        id="condition-refused",
        severity=Severity.ERROR,
        title="A condition on nodes that the API server refuses, or that no node meets",
        why="In and NotIn need values, Exists and DoesNotExist have none, Gt and Lt have one whole number, and a weight is 1 "
        "to 100: otherwise the whole object is refused. A term without conditions matches no node.",
        fix="Write key, operator and values as the operator needs them.",
        fails=job(PREFERS_SPOT.replace("operator: In, values: [spot]", "operator: In, values: []")),
        passes=job(ON_SPOT),
        checks=Checks(pods=_refused),
        source="kubernetes, pkg/apis/core/validation, ValidateNodeSelectorRequirement",
    ),
    Rule(
        id="deprecated-label",
        severity=Severity.NOTE,
        title="A deprecated label of nodes",
        why="Current nodes have it beside the label that replaced it in Kubernetes 1.14 and 1.17, and will lose it.",
        fix="Write the current label.",
        fails=job("nodeSelector: {beta.kubernetes.io/arch: amd64}\n"),
        passes=job("nodeSelector: {kubernetes.io/arch: amd64}\n"),
        checks=Checks(pods=_renamed),
        source='Kubernetes reference, "Well-Known Labels, Annotations and Taints"',
    ),
    Rule(
        id="toleration-matches-no-taint",
        severity=Severity.WARNING,
        title="A toleration that is meant for spot nodes and does not match their taint",
        why="Key, value and effect of a toleration have to match the taint, letter by letter. The pods are kept off the "
        "spot nodes as without a toleration. If you set another taint, describe it in spotwright.yaml.",
        fix="Write the taint's own key, value and effect.",
        fails=job(
            "tolerations:\n- {key: cloud.google.com/gke-spot, operator: Equal, value: 'true', effect: NoExecute}\n"
            + PREFERS_SPOT.replace("kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-spot").replace(
                "[spot]", "['true']"
            )
        ),
        passes=job(ON_SPOT),
        checks=Checks(pods=_without_taint, python=_without_taint_in_python),
        mends=True,
    ),
)
"""The rules of this module."""
