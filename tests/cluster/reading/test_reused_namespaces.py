"""A namespace that was deleted and created again is another one: its owner cannot read the previous one's logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.reading.served import serving, spotwright


@pytest.mark.parametrize("uid", ["uid-of-the-second-team-a", ""], ids=["made again", "gone"])
def test_logs_of_the_namespace_before_are_not_found(certificates: Path, recorded: Path, uid: str) -> None:
    with serving(certificates, recorded) as served:
        other = {"metadata": {"name": "team-a", "uid": uid}}
        served.kubernetes.objects["/api/v1/namespaces/team-a"] = other
        for name in ("anna", "admin"):
            done = spotwright("logs", "job/train", *served.options(name))
            assert (done.code, done.out.replace("==> train attempt 1 <==\n", "")) == (2, "")
            assert "no run 'team-a.train-job-uid' is recorded in a namespace that the controller serves" in done.err


def test_a_namespace_that_is_not_served_any_more_keeps_nobody_from_reading_what_is_recorded(
    certificates: Path, recorded: Path
) -> None:
    with serving(certificates, recorded) as served:
        served.kubernetes.served = ("team-b",)
        assert spotwright("show", "job/train", *served.options("anna")).code == 0
        assert spotwright("logs", "job/train", *served.options("anna")).code == 2
