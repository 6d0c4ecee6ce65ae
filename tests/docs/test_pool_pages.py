"""The commands of the pages about pools print what the pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts.make_cluster_reference import FINDINGS
from tests.docs.pages import ROOT, same, walk

from spotwright import pools

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    "page", ["how-to/pools/aks.md", "how-to/pools/gke.md", "how-to/pools/eks.md", "tutorial-gpu-pools.md"]
)
def test_the_commands_of_a_page_about_pools_print_what_it_shows(page: str, tmp_path: Path) -> None:
    steps = list(walk(DOCS / page, tmp_path))

    assert len(steps) >= 3
    for step, printed in steps:
        assert same(step.output, printed), f"line {step.line}: {step.command}\n{printed}"


def test_the_reference_has_every_finding_of_the_check() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(str(pools.__path__[0])).rglob("*.py"))
    codes = set(re.findall(r"Finding\(\s*\"([a-z-]+)\"", sources))

    assert len(codes) >= 18
    assert codes - FINDINGS.keys() == set()
    assert [code for code in FINDINGS if f'"{code}"' not in sources] == []
