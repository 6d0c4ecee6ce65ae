"""The table of true verdicts: what it says of each script is what happens when the script is killed again and again.

``rehearse`` has no part in it. benchmarks/rehearsals.py holds the verdicts of ``rehearse`` against this table.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from tests.rehearsal.truth.lives import Proof, pod_prefix
from tests.rehearsal.truth.table import Truth, Verdict, can_import, read

TABLE = read()
SCRIPTS = Path(__file__).parent / "scripts"


SAMPLE = {truth.verdict: name for name, truth in reversed(list(TABLE.items())) if not truth.modules}
"""The first script of each verdict: `make test-long`. All of them take an hour of two processors: `-m many`."""


def prove(truth: Truth, folder: Path) -> None:
    if pod_prefix() is None:
        pytest.skip("users of this machine may not make mount namespaces")
    if not all(map(can_import, truth.modules)):
        pytest.skip("needs the group `torch`: make torch")
    evidence = Proof(truth, folder).evidence()

    assert evidence.verdict == truth.verdict, evidence.because


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLE.values())
def test_what_the_table_says_of_a_script_of_each_verdict_is_what_happens(name: str, tmp_path: Path) -> None:
    prove(TABLE[name], tmp_path)


@pytest.mark.many
@pytest.mark.parametrize("name", TABLE)
def test_what_the_table_says_of_each_script_is_what_happens(name: str, tmp_path: Path) -> None:
    prove(TABLE[name], tmp_path)


def test_the_table_has_enough_scripts_of_each_verdict() -> None:
    count = Counter(truth.verdict for truth in TABLE.values())
    undecided = count.pop(Verdict.UNDECIDED)

    assert count.pop(Verdict.RESUMES) >= 25
    assert sum(count.values()) >= 25
    assert min(count.values()) >= 3
    assert undecided >= 10


def test_each_script_has_its_line() -> None:
    started = {name for truth in TABLE.values() for name in truth.files}
    named = {truth.source.name for truth in TABLE.values() if truth.source.parent == SCRIPTS}

    assert {path.name for path in SCRIPTS.iterdir() if path.is_file()} == named | started


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_says_what_it_does(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
