"""Write findings as admission warnings, which kubectl shows to whoever creates the object.

Kubernetes asks for warnings of at most 256 characters and of 4096 in all, and cuts off what is longer. So a long finding becomes
several warnings, and what does not fit is counted. Sources: Kubernetes documentation, "Dynamic Admission Control", Response;
``staging/src/k8s.io/apiserver/pkg/endpoints/filters/warning.go``, which counts characters.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from spotwright.manifests.rules.context import Finding, Level
from spotwright.manifests.yamltext.documents import show

__all__ = ["MAX_ALL", "MAX_EACH", "as_warnings", "warnings_of"]

MAX_EACH = 255
"""The longest warning, in characters."""

MAX_ALL = 4096
"""The characters of all warnings of one answer together."""

_PREFIX = "spotwright: "
_MORE = "{count} more warnings do not fit here; spotwright explain FILE shows all"


def warnings_of(findings: Iterable[Finding]) -> list[str]:
    """The warnings for findings of level warning; notes tell nothing that the user has to change."""
    texts = []
    for finding in findings:
        if finding.level is Level.WARNING:
            field = show(finding.path)
            texts.append(f"{field}: {finding.text}" if field else finding.text)
    return as_warnings(list(dict.fromkeys(texts)))


def as_warnings(texts: Sequence[str]) -> list[str]:
    """Texts as warnings within both limits."""
    warnings: list[str] = []
    room = MAX_ALL - MAX_EACH  # the last one may have to say how many are left out
    for index, text in enumerate(texts):
        lines = textwrap.wrap(text, MAX_EACH - len(_PREFIX) - 2, break_on_hyphens=False)
        marked = [
            _PREFIX + line for line in (*lines[:1], *(f"… {line}" for line in lines[1:]))
        ]  # a blank text has none
        if sum(map(len, marked)) > room:
            return [*warnings, _PREFIX + _MORE.format(count=len(texts) - index)]
        room -= sum(map(len, marked))
        warnings += marked
    return warnings
