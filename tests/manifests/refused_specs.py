"""Pod specs that the API server refuses, with the sentence that every command says of each."""

from __future__ import annotations

from typing import Any

__all__ = ["REFUSED", "Spec", "asks", "in_pipeline", "prefers", "requires", "tolerates"]

Spec = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def tolerates(**fields: Any) -> Spec:
    return {"tolerations": [{"key": "a", **fields}]}


def requires(*terms: Any) -> Spec:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def prefers(weight: Any, **condition: Any) -> Spec:
    wish = {"weight": weight, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists", **condition}]}}
    return {"affinity": {"nodeAffinity": {PREFERRED: [wish]}}}


def asks(**condition: Any) -> Spec:
    return requires({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"], **condition}]})


REFUSED: dict[str, tuple[Spec, str]] = {
    "boolean in a selector": ({"nodeSelector": {"disk": True}}, 'must be a string, got the boolean true: write "true"'),
    "number in a selector": ({"nodeSelector": {"disk": 1}}, "must be a string, got the number 1: write it in quotes"),
    "odd value in a selector": ({"nodeSelector": {"disk": "a b"}}, "'a b' is not a valid label value"),
    "odd key in a selector": ({"nodeSelector": {"a/b/c": "x"}}, "'a/b/c' is not a valid label key"),
    "boolean in a toleration": (
        tolerates(operator="Equal", value=True, effect="NoSchedule"),
        'value: must be a string, got the boolean true: write "true"',
    ),
    "other case of an operator": (
        tolerates(operator="equal", value="x", effect="NoSchedule"),
        "the operator is Equal or Exists, not equal",
    ),
    "other case of an effect": (
        tolerates(operator="Exists", effect="noschedule"),
        "the effect is NoSchedule, PreferNoSchedule or NoExecute, not noschedule",
    ),
    "value beside Exists": (tolerates(operator="Exists", value="x"), "with operator Exists it has no value"),
    "seconds as a string": (
        tolerates(operator="Exists", effect="NoExecute", tolerationSeconds="30"),
        'tolerationSeconds: must be a number, got the string "30": write 30',
    ),
    "seconds of another effect": (
        tolerates(operator="Exists", effect="NoSchedule", tolerationSeconds=30),
        "tolerationSeconds needs the effect NoExecute",
    ),
    "no key": (tolerates(key=None, value="x"), "without a key the operator is Exists"),
    "null as a toleration": ({"tolerations": [None]}, "expected a mapping, found None"),
    "no alternatives": (requires(), "the API server refuses required node affinity without a term"),
    "required and nothing in it": (
        {"affinity": {"nodeAffinity": {REQUIRED: {}}}},
        "the API server refuses required node affinity without a term",
    ),
    "unknown operator": (asks(operator="in"), "the operator is In, NotIn, Exists, DoesNotExist, Gt or Lt, not in"),
    "no values": (asks(values=[]), "the operator In needs values"),
    "null as values": (asks(values=None), "the operator In needs values"),
    "values beside Exists": (asks(operator="Exists"), "with the operator Exists it has no values"),
    "number as a value": (asks(values=[1]), "values: must be a string, got the number 1: write it in quotes"),
    "two values for a bound": (asks(operator="Gt", values=["1", "2"]), "the operator Gt needs one value"),
    "seconds without an effect": (
        tolerates(operator="Exists", tolerationSeconds=30),
        "tolerationSeconds needs the effect NoExecute",
    ),
    "endless seconds": (
        tolerates(operator="Exists", effect="NoExecute", tolerationSeconds=float("inf")),
        "tolerationSeconds: must be a whole number",
    ),
    "a mapping of tolerations": ({"tolerations": {"key": "a"}}, "expected a list, found {'key': 'a'}"),
    "a mapping of conditions": (requires({"matchExpressions": {"key": "a"}}), "expected a list, found {'key': 'a'}"),
    "a text of values": (asks(values="x"), "expected a list, found 'x'"),
    "a text as a term": (requires("x"), "expected a mapping, found 'x'"),
    "a text as a selector": ({"nodeSelector": "x"}, "expected a mapping, found 'x'"),
    "two nodes in a field": (
        requires({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}),
        "a field has the operator In or NotIn, and one value",
    ),
    "no weight": (prefers(None), "its weight (1 to 100) is missing"),
    "weight 0": (prefers(0), "its weight must be 1 to 100, not 0"),
    "weight as a string": (prefers("5"), 'weight: must be a number, got the string "5": write 5'),
    "odd preference": (prefers(1, operator="exists"), "the operator is In, NotIn, Exists, DoesNotExist, Gt or Lt, not"),
}
"""What the API server refuses in a pod spec, and what every command says of it."""


def in_pipeline(fields: Spec) -> dict[str, Any]:
    """The same as a task of KFP says it, in JSON."""

    def constant(value: Any) -> dict[str, Any]:
        return {"runtimeValue": {"constant": value}}

    return {
        "tolerations": [{"tolerationJson": constant(one)} for one in fields.get("tolerations", ())],
        **(
            {"nodeSelector": {"nodeSelectorJson": constant(fields["nodeSelector"])}} if "nodeSelector" in fields else {}
        ),
        **(
            {"nodeAffinity": [{"nodeAffinityJson": constant(fields["affinity"]["nodeAffinity"])}]}
            if "affinity" in fields
            else {}
        ),
    }
