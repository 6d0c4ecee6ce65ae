"""Lint a text in tests, with or without a configuration."""

from __future__ import annotations

from spotwright import config
from spotwright.linter.linting import LintedFile, lint_text
from spotwright.linter.rule import Finding
from spotwright.linter.settings import Settings, settings_of

__all__ = ["found_in", "linted", "settings"]


def settings(text: str = "") -> Settings:
    """The settings of a configuration; without a text those without a file."""
    return settings_of(config.parse(text) if text else config.built_in())


def linted(text: str, configuration: str = "", *, python: bool = False) -> LintedFile:
    """A linted text."""
    return lint_text(text, "pipeline.py" if python else "work.yaml", settings(configuration))


def found_in(text: str, configuration: str = "", *, python: bool = False) -> list[Finding]:
    """The findings in a text."""
    return linted(text, configuration, python=python).findings
