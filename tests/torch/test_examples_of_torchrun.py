"""The examples of several ranks under the real torchrun: killed or noticed, they end with the weights of a quiet training."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.torch.torchrun_attempts import STEPS, Attempt, finished
from tests.torch.training_scripts import EXAMPLES

pytestmark = pytest.mark.long  # each attempt imports PyTorch three times


@pytest.fixture(scope="module", params=["ddp", "fsdp", "dcp"])
def script(request: pytest.FixtureRequest) -> Path:
    return EXAMPLES / f"train_{request.param}.py"


@pytest.fixture(scope="module")
def quiet(script: Path, pids: set[int], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of an uninterrupted training."""
    return finished(tmp_path_factory.mktemp("quiet"), script, pids, [0])


def test_killed_with_torchrun_it_goes_on_from_its_last_save(
    script: Path, quiet: bytes, pids: set[int], tmp_path: Path
) -> None:
    attempt = Attempt(tmp_path, script, pids, SPOTWRIGHT_INTERRUPT_EVERY="1")
    attempt.until(20)
    attempt.kill()

    assert finished(tmp_path, script, pids, range(1, STEPS)) == quiet


def test_after_a_notice_at_one_rank_it_goes_on_from_a_step_of_both(
    script: Path, quiet: bytes, pids: set[int], tmp_path: Path
) -> None:
    attempt = Attempt(tmp_path, script, pids, SPOTWRIGHT_INTERRUPT_EVERY="inf")
    attempt.until(2)
    before = attempt.newest_save()
    attempt.notice(1, seconds=120)
    attempt.until_saved_after(before)
    if script.stem == "train_dcp":  # this loop leaves then
        assert attempt.end() != 0
        assert "exitcode  : 143" in attempt.log()
    else:
        attempt.kill()
    assert not (tmp_path / "weights.pt").exists()

    assert finished(tmp_path, script, pids, range(1, STEPS)) == quiet


def test_after_sigterm_to_torchrun_it_goes_on_without_the_loss_of_a_step(
    script: Path, quiet: bytes, pids: set[int], tmp_path: Path
) -> None:
    attempt = Attempt(tmp_path, script, pids, SPOTWRIGHT_INTERRUPT_EVERY="inf")
    attempt.until(10)
    attempt.process.send_signal(signal.SIGTERM)
    assert attempt.end() != 0
    assert not (tmp_path / "weights.pt").exists()

    done = attempt.steps()  # the step after which they have left is saved, and may not be reported
    assert finished(tmp_path, script, pids, [done, done + 1]) == quiet
