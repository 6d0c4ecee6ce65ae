"""The pages and tables of the site that are generated from the code at build time; none of them is in the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from scripts import (
    make_budgets_page,
    make_chart,
    make_cluster_reference,
    make_config_reference,
    make_environment_page,
    make_failure_matrix,
    make_grace_page,
    make_kinds,
    make_lint_rules,
    make_pipelines_page,
    make_recorded_deaths,
    make_reference,
)

__all__ = ["BESIDE", "PAGES", "TABLES"]

ROOT = Path(__file__).resolve().parent.parent

BESIDE: Mapping[str, str] = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "testbed/README.md": "testbed.md",
}
"""Pages of the site for Markdown outside docs/."""


def _beside(path: str) -> str:
    """A page outside docs/, with its links rewritten for a page of docs/."""

    def from_docs(found: re.Match[str]) -> str:
        if "://" in found[2] or found[2].startswith("#"):
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[2]))
        return f"{found[1]}({posixpath.relpath(target, 'docs')})"

    return re.sub(r"(\]\s*)\(([^)\s]+)\)", from_docs, (ROOT / path).read_text(encoding="utf-8"))


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/cli.md": make_reference.cli_page,
    "reference/python.md": make_reference.python_page,
    "reference/json.md": make_reference.json_page,
    "reference/page-answers.md": make_reference.page_answers_page,
    "reference/checkpoint.md": make_reference.checkpoint_page,
    "reference/providers.md": make_reference.providers_page,
    "reference/configuration.md": make_config_reference.page,
    "reference/environment.md": make_environment_page.page,
    "reference/lint-rules.md": make_lint_rules.page,
    "reference/pipelines.md": make_pipelines_page.page,
    "reference/checks.md": make_cluster_reference.checks_page,
    "reference/metrics.md": make_cluster_reference.metrics_page,
    "reference/records.md": make_cluster_reference.records_page,
    "failure-matrix.md": make_failure_matrix.page,
    "failure-evidence.md": make_failure_matrix.evidence_page,
    "budgets.md": make_budgets_page.page,
    "recorded-deaths.md": make_recorded_deaths.page,
    **make_kinds.PAGES,
    **{page: partial(_beside, path) for path, page in BESIDE.items() if page != "index.md"},
}
"""The function of each page, by its path in docs/."""

TABLES: Mapping[str, Callable[[], str]] = {
    "grace": make_grace_page.table,
    "rights": make_chart.rights_tables,
}
"""The function of each table inside a page."""
