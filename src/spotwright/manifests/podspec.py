"""Pod specs read into the words of the scheduler: what the containers ask for, and where the pod says it may run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Path
from spotwright.manifests.unknowns import is_placeholder, without_unknown
from spotwright.model.placing import Constraints, Expression, Preference, Term, Toleration
from spotwright.model.pools import Resources
from spotwright.model.quantities import parse_resource
from spotwright.scheduling.ladder import is_gpu

__all__ = ["PREFERRED_TERMS", "REQUIRED_TERMS", "read_constraints", "read_requests"]

REQUIRED_TERMS = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
PREFERRED_TERMS = ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")


_SAYS_WHERE = frozenset({"affinity", "nodeSelector", "tolerations"})
_ANYWHERE = Constraints()


def read_requests(ctx: Context, spec: Path) -> Resources:
    """What a pod asks for: the sum of its containers, or the largest init container, a limit counting as a request.

    Placeholders (``${...}``, ``{{...}}``) in quantities are not known here: a GPU counts as one, the rest as none. Source:
    Kubernetes, "Resource Management for Pods and Containers".
    """
    running: dict[str, int] = {}
    for index, container in enumerate(ctx.editor.get((*spec, "containers")) or ()):
        for name, amount in _container(ctx, (*spec, "containers", index), container).items():
            running[name] = running.get(name, 0) + amount
    for index, container in enumerate(ctx.editor.get((*spec, "initContainers")) or ()):
        for name, amount in _container(ctx, (*spec, "initContainers", index), container).items():
            running[name] = max(running.get(name, 0), amount)
    return running


def _container(ctx: Context, path: Path, container: Any) -> dict[str, int]:
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return {}
    amounts: dict[str, int] = {}
    for kind in ("limits", "requests"):  # requests later: they win over limits
        given = resources.get(kind)
        for name, value in given.items() if isinstance(given, dict) else ():
            if is_placeholder(value):
                if is_gpu(str(name)):
                    amounts[str(name)] = 1
                continue
            try:
                amounts[str(name)] = parse_resource(str(name), value)
            except (ValueError, TypeError) as error:
                raise ctx.problem((*path, "resources", kind, name), str(error)) from error
    return amounts


def read_constraints(ctx: Context, spec: Path) -> Constraints:
    """The pod's own tolerations, node selector and node affinity, as far as they can be judged before it runs."""
    editor = ctx.editor
    if _SAYS_WHERE.isdisjoint(editor.get(spec) or ()):
        return _ANYWHERE
    selector = editor.get((*spec, "nodeSelector")) or {}
    required = editor.get((*spec, *REQUIRED_TERMS)) or ()
    preferred = editor.get((*spec, *PREFERRED_TERMS)) or ()
    given = Constraints(
        tolerations=tuple(_toleration(t) for t in editor.get((*spec, "tolerations")) or () if isinstance(t, dict)),
        selector={str(key): str(value) for key, value in selector.items()} if isinstance(selector, dict) else {},
        required=tuple(_term(term) for term in required),
        preferred=tuple(Preference(_weight(p.get("weight")), _term(p.get("preference") or {})) for p in preferred),
    )
    return without_unknown(ctx, given, (*spec, "nodeSelector"), (*spec, *REQUIRED_TERMS))


def _weight(given: Any) -> int:
    return given if isinstance(given, int) else 1


def _toleration(given: Mapping[str, Any]) -> Toleration:
    seconds = given.get("tolerationSeconds")
    return Toleration(
        key=str(given.get("key") or ""),
        operator=str(given.get("operator") or "Equal"),
        value=str(given.get("value") or ""),
        effect=str(given.get("effect") or ""),
        seconds=int(seconds) if isinstance(seconds, int) else None,
    )


def _term(given: Mapping[str, Any]) -> Term:
    return Term(_expressions(given.get("matchExpressions")), _expressions(given.get("matchFields")))


def _expressions(given: Any) -> tuple[Expression, ...]:
    return tuple(
        Expression(str(e.get("key")), str(e.get("operator")), tuple(str(value) for value in e.get("values") or ()))
        for e in given or ()
    )
