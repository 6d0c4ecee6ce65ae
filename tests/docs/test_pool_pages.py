"""The commands of the pages about pools print what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import ROOT, same, walk

from spotwright.cli.pools_nodes import check_pools
from spotwright.pools import checks, node_facts

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
CHECKS = (checks, checks, checks, checks, node_facts)


@pytest.mark.parametrize(
    "page", ["how-to/pools/aks.md", "how-to/pools/gke.md", "how-to/pools/eks.md", "tutorial-gpu-pools.md"]
)
def test_the_commands_of_a_page_about_pools_print_what_it_shows(page: str, tmp_path: Path) -> None:
    steps = list(walk(DOCS / page, tmp_path))

    assert len(steps) >= 3
    for step, printed in steps:
        assert same(step.output, printed), f"line {step.line}: {step.command}\n{printed}"


def test_the_page_about_the_check_has_every_finding() -> None:
    import re

    sources = "".join(Path(str(module.__file__)).read_text() for module in CHECKS)
    codes = set(re.findall(r"Finding\(\s*\"([a-z-]+)\"", sources))
    page = (DOCS / "how-to" / "pools" / "check.md").read_text()
    assert len(codes) >= 18
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []
    assert check_pools.name == "check"
