"""The reference lists every environment variable that attempts and commands read, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.make_environment_page import VARIABLES, page

import spotwright

INTERNAL = {"SPOTWRIGHT_REFUSAL", "SPOTWRIGHT_SERVICE_ACCOUNT", "SPOTWRIGHT_NO_PID_NAMESPACE"}
"""Of a container that refuses to start, of tests of the node agent, and taken out before a rehearsed command starts."""


def test_the_reference_has_every_variable_of_the_source() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(spotwright.__path__[0]).rglob("*.py"))
    used = set(re.findall(r"(?<![_A-Z])SPOTWRIGHT_[A-Z_]*[A-Z]", sources))
    listed = {name for name in (*VARIABLES["attempt"], *VARIABLES["command"]) if name.startswith("SPOTWRIGHT_")}

    assert len(used) >= 20
    assert used - INTERNAL == listed
    assert all(f"| `{name}` |" in page() for name in listed)
