"""Read a pod's requirements on nodes by the types and rules of the API server.

Placement, lint, explanations, runs, checks of pools, the webhook and the recorder decide by these values, so that all read a
pod alike. A value that the API server would refuse is a :class:`Refusal`, with its place and the fix, without a guess at the
meaning. A placeholder, known only when the pod is made, is undecided, not refused.

Sources: Kubernetes 1.35, ``pkg/apis/core/validation/validation.go`` (``ValidateTolerations``, ``ValidateNodeSelector``,
``ValidatePreferredSchedulingTerms``) and ``staging/src/k8s.io/api/core/v1/types.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from spotwright.kube.object_fields import mapping
from spotwright.model.scheduling_terms import Constraints, Expression, Preference, Term, Toleration, is_placeholder

__all__ = [
    "PREFERRED",
    "REQUIRED",
    "TERMS",
    "Refusal",
    "can_match",
    "is_selected",
    "refusals_of",
    "scheduling_of",
    "wrong_weight",
]

_Path = tuple[str | int, ...]

REQUIRED: _Path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
"""The path of required node affinity in a pod spec."""

TERMS: _Path = (*REQUIRED, "nodeSelectorTerms")
"""The path of its terms, which are alternatives."""

PREFERRED: _Path = ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
"""The path of preferred node affinity in a pod spec."""

_FIELDS = frozenset({"affinity", "nodeSelector", "tolerations"})
_ANYWHERE = Constraints()


class Refusal(NamedTuple):
    """A value for which the API server refuses the pod.

    ``field``: its field of the pod spec. ``path`` leads to it inside the pod spec, ``text`` has the fault and the fix,
    ``value`` is the value.
    """

    field: str  # tolerations | nodeSelector | affinity
    path: _Path
    text: str
    value: object = None


def scheduling_of(spec: Mapping[str, Any]) -> Constraints:
    """The tolerations, node selector and node affinity of a pod spec.

    Values that the API server refuses (:func:`refusals_of`) are read by their most likely meaning, for better messages. Values
    of another shape count as missing.
    """
    if _FIELDS.isdisjoint(spec):
        return _ANYWHERE
    return Constraints(
        tolerations=tuple(map(_toleration, _objects(spec.get("tolerations")))),
        selector={str(key): _text(value) for key, value in mapping(spec.get("nodeSelector")).items()},
        required=tuple(map(_term, _objects(_at(spec, TERMS)))),
        preferred=tuple(
            Preference(_weight(one.get("weight")), _term(mapping(one.get("preference"))))
            for one in _objects(_at(spec, PREFERRED))
        ),
    )


def can_match(term: Mapping[str, Any]) -> bool:
    """Whether a node selector term has a condition: the API server accepts one without, and it matches no node."""
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def refusals_of(spec: Mapping[str, Any]) -> Iterator[Refusal]:
    """The fields that choose a pod's nodes and that the API server refuses, in the order of the fields."""
    if not _FIELDS.isdisjoint(spec):
        yield from _refused_selector(spec.get("nodeSelector"))
        yield from _refused_list("tolerations", ("tolerations",), spec.get("tolerations"), _refused_toleration)
        required = _at(spec, REQUIRED)
        if isinstance(required, dict) and not required.get("nodeSelectorTerms"):
            path = TERMS if "nodeSelectorTerms" in required else REQUIRED
            text = "the API server refuses required node affinity without a term: add a term, or remove it"
            yield Refusal("affinity", path, text)
        yield from _refused_list("affinity", TERMS, _at(spec, TERMS), _refused_term)
        yield from _refused_list("affinity", PREFERRED, _at(spec, PREFERRED), _refused_preference)


def _refused_selector(given: Any) -> Iterator[Refusal]:
    if wrong := _not_shape(given, dict):
        yield Refusal("nodeSelector", ("nodeSelector",), wrong)
    for key, value in mapping(given).items():
        if wrong := _not_text(value) or _not_key(key) or _not_value(value):
            yield Refusal("nodeSelector", ("nodeSelector", key), wrong, key if _is_odd(key) else value)


def _refused_list(
    field: str, path: _Path, given: Any, refused: Callable[[_Path, Mapping[str, Any]], Iterator[Refusal]]
) -> Iterator[Refusal]:
    """The refusals in a list of mappings, each of which ``refused`` checks."""
    if wrong := _not_shape(given, list):
        yield Refusal(field, path, wrong)
    for index, one in enumerate(_items(given)):
        if isinstance(one, dict):
            yield from refused((*path, index), one)
        else:
            yield Refusal(field, (*path, index), f"expected a mapping, found {one!r:.200}")


def _refused_toleration(path: _Path, given: Mapping[str, Any]) -> Iterator[Refusal]:
    if found := _wrong_toleration(given):
        field, wrong = found
        at = (*path, field) if _is_type(wrong) else path
        yield Refusal("tolerations", at, f"the API server refuses this toleration: {wrong}", given.get(field))


def _refused_preference(path: _Path, given: Mapping[str, Any]) -> Iterator[Refusal]:
    if wrong := wrong_weight(given.get("weight")):
        yield Refusal("affinity", path, f"the API server refuses this preference: {wrong}")
    term = given.get("preference")
    if wrong := _not_shape(term, dict):
        yield Refusal("affinity", (*path, "preference"), wrong)
    yield from _refused_term((*path, "preference"), mapping(term))


def _refused_term(path: _Path, given: Mapping[str, Any]) -> Iterator[Refusal]:
    for name, wrong_in in (("matchExpressions", _wrong_condition), ("matchFields", _wrong_field)):
        yield from _refused_list("affinity", (*path, name), given.get(name), partial(_refused_condition, wrong_in))


def _refused_condition(
    wrong_in: Callable[[Mapping[str, Any]], tuple[str, object]], path: _Path, given: Mapping[str, Any]
) -> Iterator[Refusal]:
    wrong, value = wrong_in(given)
    if wrong:
        yield Refusal("affinity", path, f"the API server refuses this condition: {wrong}", value)


def _not_shape(value: object, shape: type) -> str:
    """Why a value is refused where a list, or a mapping, belongs; null counts as an empty one."""
    if value is None or isinstance(value, shape) or is_placeholder(value):
        return ""
    return f"expected a {'list' if shape is list else 'mapping'}, found {value!r:.200}"


_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_TOLERATES = ("Equal", "Exists", "Lt", "Gt")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_EFFECT_NAMES = "NoSchedule, PreferNoSchedule or NoExecute"
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_WHOLE = re.compile(r"[+-]?\d{1,19}")


def _wrong_toleration(given: Mapping[str, Any]) -> tuple[str, str] | None:
    """The field for which a toleration is refused, and why."""
    for name in ("key", "operator", "value", "effect", "tolerationSeconds"):
        wrong = _not_whole(given.get(name)) if name == "tolerationSeconds" else _not_text(given.get(name))
        if wrong:
            return name, f"{name}: {wrong}"
    one = _toleration(given)
    if any(map(is_placeholder, one[:4])):
        return None
    wrongs = (
        ("operator", one.operator not in _TOLERATES and f"the operator is Equal or Exists, not {one.operator}"),
        ("value", one.operator == "Exists" and one.value and "with operator Exists it has no value"),
        ("key", one.operator != "Exists" and not one.key and "without a key the operator is Exists"),
        ("effect", one.effect and one.effect not in _EFFECTS and f"the effect is {_EFFECT_NAMES}, not {one.effect}"),
        ("tolerationSeconds", _is_bounded(one) and "tolerationSeconds needs the effect NoExecute"),
        ("key", one.key and _not_key(one.key)),
        ("value", _not_value(one.value)),
    )
    return next(((name, text) for name, text in wrongs if text), None)


def _is_bounded(one: Toleration) -> bool:
    return one.seconds is not None and one.effect != "NoExecute"


def _wrong_condition(given: Mapping[str, Any]) -> tuple[str, object]:
    """Why the API server refuses a condition on a label, or why it is never met; with the wrong value."""
    if wrong := _not_texts(given):
        return wrong, None
    key, operator, values = _parts(given)
    if any(map(is_placeholder, (key, operator, *values))):
        return "", None
    if operator not in _OPERATORS:
        return f"the operator is {', '.join(_OPERATORS[:-1])} or {_OPERATORS[-1]}, not {operator}", operator
    if operator in ("In", "NotIn") and not values:
        return f"the operator {operator} needs values", None
    if operator in ("Exists", "DoesNotExist") and values:
        return f"with the operator {operator} it has no values", None
    if operator in ("Gt", "Lt") and len(values) != 1:
        return f"the operator {operator} needs one value", None
    if wrong := _not_key(key):
        return wrong, key
    wrong_value = next((value for value in values if operator in ("In", "NotIn") and _not_value(value)), None)
    return ("", None) if wrong_value is None else (_not_value(wrong_value), wrong_value)


def _wrong_field(given: Mapping[str, Any]) -> tuple[str, object]:
    """The same for a condition on a field of the node; only its name is supported."""
    if wrong := _not_texts(given):
        return wrong, None
    key, operator, values = _parts(given)
    if any(map(is_placeholder, (key, operator, *values))):
        return "", None
    if key != "metadata.name":
        return f"the only allowed field is metadata.name, not {key}", key
    if operator not in ("In", "NotIn") or len(values) != 1:
        return "a field has the operator In or NotIn, and one value", operator
    return "", None


def wrong_weight(weight: object) -> str:
    """Why the API server refuses the weight of a preference; empty if it does not."""
    if is_placeholder(weight):
        return ""
    if weight is None:
        return "its weight (1 to 100) is missing"
    if wrong := _not_whole(weight):
        return f"weight: {wrong}"
    return "" if 1 <= int(str(weight)) <= 100 else f"its weight must be 1 to 100, not {weight}"


def _parts(given: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    key, operator = (str(given.get(name) or "") for name in ("key", "operator"))
    return key, operator, tuple(_text(value) for value in _items(given.get("values")))


def _not_texts(given: Mapping[str, Any]) -> str:
    """Why a condition is refused for the type of one of its values."""
    named = [(name, given.get(name)) for name in ("key", "operator")]
    named += [("values", value) for value in _items(given.get("values"))]
    if wrong := _not_shape(given.get("values"), list):
        return f"values: {wrong}"
    return next((f"{name}: {wrong}" for name, value in named if (wrong := _not_text(value))), "")


def _not_text(value: object) -> str:
    """Why a value is refused where a string belongs; empty for a string, and for null, which counts as missing."""
    if value is None or isinstance(value, str):
        return ""
    if isinstance(value, bool):
        return f'must be a string, got the boolean {_text(value)}: write "{_text(value)}"'
    if isinstance(value, int | float):
        return f"must be a string, got the number {value}: write it in quotes"
    return f"must be a string, got {value!r:.60}"


def _not_whole(value: object) -> str:
    """Why a value is refused where a whole number belongs; empty for one, for null, and for a placeholder."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)) or is_placeholder(value):
        return ""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return f'must be a number, got the string "{value}": write {value}'
    return f"must be a whole number, got {_text(value)!r:.60}"


def _is_type(wrong: str) -> bool:
    return ": must be " in wrong


def _is_odd(key: object) -> bool:
    return isinstance(key, str) and not key.isascii()


def _not_key(key: object) -> str:
    """Why a string is not a valid label key."""
    if is_placeholder(key):
        return ""
    domain, slash, name = str(key).rpartition("/")
    fits = _NAME.fullmatch(name) and (not slash or _DOMAIN.fullmatch(domain))
    return "" if fits else f"{str(key)!r:.200} is not a valid label key"


def _not_value(value: object) -> str:
    """Why a string is not a valid label value."""
    if not isinstance(value, str) or not value or is_placeholder(value) or _NAME.fullmatch(value):
        return ""
    return f"{value!r:.200} is not a valid label value"


def _at(spec: Mapping[str, Any], path: _Path) -> Any:
    value: Any = spec
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any) -> list[Any]:
    return [one for one in _items(value) if isinstance(one, dict)]


def _text(value: Any) -> str:
    """A value of a label or taint: a boolean as YAML writes it; null as the API server reads it, an empty string."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _weight(given: Any) -> int:
    return given if isinstance(given, int) else 1


def _toleration(fields: Mapping[str, Any]) -> Toleration:
    seconds = fields.get("tolerationSeconds")
    return Toleration(
        key=str(fields.get("key") or ""),
        operator=str(fields.get("operator") or "Equal"),
        value=_text(fields.get("value")),
        effect=str(fields.get("effect") or ""),
        seconds=int(seconds) if isinstance(seconds, int) else None,
    )


def _term(fields: Mapping[str, Any]) -> Term:
    return Term(_expressions(fields.get("matchExpressions")), _expressions(fields.get("matchFields")))


def _expressions(given: Any) -> tuple[Expression, ...]:
    return tuple(Expression(*_parts(one)) for one in map(mapping, _items(given)))


def is_selected(selector: Any, labels: Mapping[str, Any]) -> bool:
    """Whether a label selector selects pods with these labels. An empty one selects every pod, a missing one none."""
    if not isinstance(selector, Mapping):
        return False
    given = {str(key): str(value) for key, value in labels.items()}
    pairs = mapping(selector.get("matchLabels")).items()
    wanted = [Expression(str(key), "In", (str(value),)) for key, value in pairs]
    return all(one.matches(given) for one in (*wanted, *_expressions(selector.get("matchExpressions"))))
