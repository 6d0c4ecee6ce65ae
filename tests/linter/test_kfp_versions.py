"""What a target's KFP does with retries, by its version."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in

from spotwright.linter.rule import kfp


@pytest.mark.parametrize(
    ("target", "is_void"),
    [
        ("{kfp: '2.17'}", True),
        ("{kfp: '2.17', kfp_retries: always}", False),
        ("{kfp: '2.16'}", False),
        ("{kfp: '2.3'}", True),
        ("{kubernetes: '1.33'}", False),
    ],
)
def test_retries_that_the_target_does_not_make_are_found(target: str, is_void: bool) -> None:
    found = {finding.rule for finding in found_in(kfp(), f"version: 1\ntarget: {target}\n")}

    assert found == ({"kfp-retries-void"} if is_void else set())
