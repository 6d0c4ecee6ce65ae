"""Read a pod spec's requests and its constraints on nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotwright.clouds import providers
from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.rules.placeholders import is_placeholder, without_unknown
from spotwright.manifests.yamltext.documents import Path
from spotwright.manifests.yamltext.edits import value_at
from spotwright.model.pools import Resources
from spotwright.model.quantities import parse_resource
from spotwright.model.scheduling_terms import Constraints, Expression, Preference, Term, Toleration

__all__ = [
    "PREFERRED_TERMS",
    "REQUIRED_TERMS",
    "PodSpecError",
    "pod_constraints",
    "pod_requests",
    "read_constraints",
    "read_requests",
    "truth_values",
]

REQUIRED_TERMS = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
PREFERRED_TERMS = ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")


_CONSTRAINING = frozenset({"affinity", "nodeSelector", "tolerations"})
_ANYWHERE = Constraints()


class PodSpecError(ValueError):
    """A quantity of a pod spec that cannot be read; ``path`` leads to it inside the spec."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(text)
        self.path = path


def read_requests(ctx: PlaceContext, spec: Path) -> Resources:
    """:func:`pod_requests` of the pod spec at a path of the object."""
    try:
        return pod_requests(_spec(ctx, spec))
    except PodSpecError as error:
        raise ctx.problem((*spec, *error.path), str(error)) from error


def read_constraints(ctx: PlaceContext, spec: Path) -> Constraints:
    """:func:`pod_constraints` of the pod spec at a path of the object, as far as they can be checked before it runs."""
    given = pod_constraints(_spec(ctx, spec))
    return without_unknown(ctx, given, (*spec, "nodeSelector"), (*spec, *REQUIRED_TERMS))


def _spec(ctx: PlaceContext, path: Path) -> Mapping[str, Any]:
    spec = ctx.editor.get(path)
    return spec if isinstance(spec, dict) else {}


def pod_requests(spec: Mapping[str, Any]) -> Resources:
    """The requests of a pod: the sum of its containers, or the largest init container. A limit counts as a request.

    A quantity that is a placeholder (``${...}``, ``{{...}}``) counts as one GPU, or as none of another resource. Source:
    Kubernetes, "Resource Management for Pods and Containers". Raises :class:`PodSpecError`.
    """
    running: dict[str, int] = {}
    for index, container in enumerate(spec.get("containers") or ()):
        for name, amount in _container(("containers", index), container).items():
            running[name] = running.get(name, 0) + amount
    for index, container in enumerate(spec.get("initContainers") or ()):
        for name, amount in _container(("initContainers", index), container).items():
            running[name] = max(running.get(name, 0), amount)
    return running


def _container(path: Path, container: Any) -> dict[str, int]:
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return {}
    amounts: dict[str, int] = {}
    for kind in ("limits", "requests"):  # a request overrides a limit
        given = resources.get(kind)
        for name, value in given.items() if isinstance(given, dict) else ():
            if is_placeholder(value):
                if providers.is_accelerator(str(name)):
                    amounts[str(name)] = 1
                continue
            try:
                amounts[str(name)] = parse_resource(str(name), value)
            except (ValueError, TypeError) as error:
                raise PodSpecError((*path, "resources", kind, name), str(error)) from error
    return amounts


def pod_constraints(spec: Mapping[str, Any]) -> Constraints:
    """A pod's own tolerations, node selector and node affinity."""
    if _CONSTRAINING.isdisjoint(spec):
        return _ANYWHERE
    selector = spec.get("nodeSelector") or {}
    required = value_at(spec, REQUIRED_TERMS) or ()
    preferred = value_at(spec, PREFERRED_TERMS) or ()
    return Constraints(
        tolerations=tuple(_toleration(t) for t in spec.get("tolerations") or () if isinstance(t, dict)),
        selector={str(key): _text(value) for key, value in selector.items()} if isinstance(selector, dict) else {},
        required=tuple(_term(term) for term in required),
        preferred=tuple(Preference(_weight(p.get("weight")), _term(p.get("preference") or {})) for p in preferred),
    )


def truth_values(selector: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a node selector whose values are truth values, which the API server refuses, and what to write."""
    for key, value in selector.items():
        if isinstance(value, bool):
            word = _text(value)
            yield key, f'{word} is a truth value, and labels are texts: write "{word}" in quotes'


def _text(value: Any) -> str:
    """A value of a label or taint; a truth value without quotes as YAML writes it, which is what was meant."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _weight(given: Any) -> int:
    return given if isinstance(given, int) else 1


def _toleration(given: Mapping[str, Any]) -> Toleration:
    seconds = given.get("tolerationSeconds")
    return Toleration(
        key=str(given.get("key") or ""),
        operator=str(given.get("operator") or "Equal"),
        value="" if given.get("value") is None else _text(given["value"]),
        effect=str(given.get("effect") or ""),
        seconds=int(seconds) if isinstance(seconds, int) else None,
    )


def _term(given: Mapping[str, Any]) -> Term:
    return Term(_expressions(given.get("matchExpressions")), _expressions(given.get("matchFields")))


def _expressions(given: Any) -> tuple[Expression, ...]:
    return tuple(
        Expression(str(e.get("key")), str(e.get("operator")), tuple(_text(value) for value in e.get("values") or ()))
        for e in given or ()
    )
