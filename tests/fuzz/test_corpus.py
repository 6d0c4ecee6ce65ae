"""Every seed and every finding of the fuzzer goes through its target."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.fuzz.targets import TARGETS

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*/*"))


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Imports with the first input do not count."""
    for path in CORPUS:
        with contextlib.suppress(Exception):  # its own test tells
            TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_of_the_corpus_is_no_fault(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


def test_every_target_has_a_corpus() -> None:
    assert {path.parent.name for path in CORPUS} == set(TARGETS)
