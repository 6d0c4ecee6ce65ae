"""Print findings for people on the error output; findings that many objects share are one line with their number."""

from __future__ import annotations

from collections.abc import Iterable

import click

from spotwright.manifests.rules.context import Finding

__all__ = ["print_findings"]

_MANY = 4
"""As many equal findings are one line with their number."""


def print_findings(findings: Iterable[Finding], *, with_lines: bool = True) -> None:
    """Print each finding, and findings that many objects share once, with their number.

    ``with_lines`` is false for a text that is kept nowhere, so that its lines lead nowhere.
    """
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.level, finding.group or finding.text), []).append(finding)
    for group in groups.values():
        few = group if len(group) < _MANY else group[:1]
        for finding in few:
            text = str(finding) if with_lines else f"{finding.level}: {finding.text}"
            more = "" if few is group else f" (and {len(group) - 1} more like it)"
            click.echo(f"{text}{more}", err=True)
