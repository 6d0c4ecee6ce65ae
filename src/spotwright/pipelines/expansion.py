"""``$(NAME)`` in commands, arguments and environment variables, as Kubernetes expands it before a container starts.

Only variables that the container declares are meant: ``$(HOME)`` stays where nobody has set ``HOME``. ``$$`` is one ``$``.
Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/ and
``third_party/forked/golang/expansion/expand.go`` of kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["expand", "expand_environment"]

_SIGN = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


def expand(text: str, env: Mapping[str, str]) -> str:
    """Put the values of declared variables into a text; a name that is not declared stays as it is written."""

    def value(match: re.Match[str]) -> str:
        if match.group(1):
            return "$"
        return env.get(match.group(2), match.group(0))

    return _SIGN.sub(value, text) if "$" in text else text


def expand_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Expand variables in the order in which they are declared: each sees those before it."""
    expanded: dict[str, str] = {}
    for name, text in env.items():
        expanded[name] = expand(text, expanded)
    return expanded
