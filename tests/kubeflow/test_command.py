"""``run --on kfp``: a pipeline is placed, uploaded, started and followed, and looks like a local run."""

from __future__ import annotations

from tests.kubeflow.conftest import Folder
from tests.kubeflow.stand_in import StandIn


def test_a_run_ends_with_the_table_and_exit_code_of_a_local_run(folder: Folder, server: StandIn) -> None:
    done = folder.run()
    print(done.out, done.err)
    assert done.code == 0
    assert False
