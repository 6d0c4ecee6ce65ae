"""Each rank reads the notice file of its own node: ``{rank}`` in the variable is replaced by its rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotwright.notices.from_env import from_environment, rank_of


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"RANK": "3", "SLURM_PROCID": "0"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"PMI_RANK": "1"}, 1),
        ({"SLURM_PROCID": "0"}, 0),
        ({"RANK": ""}, None),
        ({"RANK": "-1"}, None),
        ({"RANK": "one"}, None),
        ({"RANK": "1" * 5000}, None),
        ({}, None),
    ],
)
def test_the_rank_is_what_the_launcher_says(environ: dict[str, str], rank: int | None) -> None:
    assert rank_of(environ) == rank


@pytest.mark.parametrize(("environ", "is_told"), [({"RANK": "1"}, True), ({"RANK": "0"}, False), ({}, False)])
def test_a_rank_reads_its_own_file_and_a_process_without_a_rank_none(
    environ: dict[str, str], is_told: bool, tmp_path: Path
) -> None:
    (tmp_path / "notice-1.json").write_text("{}")
    source = from_environment({"SPOTWRIGHT_NOTICE_FILE": f"{tmp_path}/notice-{{rank}}.json", **environ})

    assert source is not None
    assert (source.wait(0) is not None) == is_told
