"""Lint: documents a second on one core, among manifests of every kind, with pools configured."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import Bench
from results import Judged, Row

from lines.manifests import HERE, mixed_manifests
from spotwright.config import load
from spotwright.linter.linting import RULES, lint_text
from spotwright.linter.settings import settings_of


def lint(bench: Bench) -> Iterator[Row]:
    """The documents of the line about placing."""
    config = load(HERE / "examples" / "charmed" / "spotwright.yaml")
    settings, text = settings_of(config), mixed_manifests(config)
    rates, count = [], 0
    for _ in range(bench.times(5, 2)):
        before = time.process_time()
        count = lint_text(text, "mixed.yaml", settings).documents
        rates.append(count / (time.process_time() - before))
    yield Row(
        "lint", f"{count} documents of mixed kinds linted by {len(RULES)} rules", rates, "documents/s", Judged.VALUE, 200,
        at_least=True,
    )  # fmt: skip
