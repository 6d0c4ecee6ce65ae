"""Expand ``$(NAME)`` in commands, arguments and environment variables, as Kubernetes does before a container starts.

Only variables that the container declares are expanded: ``$(HOME)`` stays where no ``HOME`` is declared. ``$$`` is one ``$``.
Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/ and
``third_party/forked/golang/expansion/expand.go`` of kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["expand", "expand_environment"]

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


def expand(text: str, env: Mapping[str, str]) -> str:
    """The text with the values of declared variables; an undeclared name stays as it is."""

    def value(match: re.Match[str]) -> str:
        if match.group(1):
            return "$"
        return env.get(match.group(2), match.group(0))

    return _REFERENCE.sub(value, text) if "$" in text else text


def expand_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables expanded in the order of their declaration: each may use those before it."""
    expanded: dict[str, str] = {}
    for name, text in env.items():
        expanded[name] = expand(text, expanded)
    return expanded
