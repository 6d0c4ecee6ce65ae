"""The examples on a GPU, with the state in its memory: killed or noticed, they end with the weights of a quiet training."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tests.torch.frameworks import FRAMEWORKS, Framework
from tests.torch.torchrun_attempts import STEPS, Attempt, finished
from tests.torch.training_scripts import EXAMPLES, Forge

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")

ON_A_GPU = {"    use_cpu=True,\n": "", 'accelerator="cpu"': 'accelerator="gpu"', "    cpu=True,\n": ""}


@pytest.fixture(scope="module", params=FRAMEWORKS, ids=lambda framework: framework.name)
def framework(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Framework:
    """A framework whose example trains on the GPU."""
    of_cpu: Framework = request.param
    text = of_cpu.script.read_text()
    (old,) = [old for old in ON_A_GPU if old in text]
    it = Framework(of_cpu.name, of_cpu.output, of_cpu.newest)
    it.script = tmp_path_factory.mktemp("scripts") / of_cpu.script.name
    it.script.write_text(text.replace(old, ON_A_GPU[old]) + "print('peak', torch.cuda.max_memory_allocated())\n")
    return it


@pytest.fixture(scope="module")
def quiet(framework: Framework, trainings: Forge, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of an uninterrupted training."""
    training = trainings.run(framework.script, tmp_path_factory.mktemp("quiet"))
    (peak,) = [line.split()[1] for line in training.log().splitlines() if line.startswith("peak")]
    assert int(peak) > 0, "it has trained on the CPU"
    return (training.folder / framework.output).read_bytes()


def test_killed_it_goes_on_from_the_last_whole_checkpoint(
    framework: Framework, trainings: Forge, quiet: bytes, tmp_path: Path
) -> None:
    training = trainings.start(framework.script, tmp_path)
    training.until(20 / STEPS)
    training.send(signal.SIGKILL)
    assert training.end() == [-9]
    assert framework.steps(tmp_path)

    trainings.run(framework.script, tmp_path)
    assert (tmp_path / framework.output).read_bytes() == quiet


def test_after_a_notice_and_sigterm_it_loses_no_step(
    framework: Framework, trainings: Forge, quiet: bytes, tmp_path: Path
) -> None:
    training = trainings.start(framework.script, tmp_path)
    training.until(10 / STEPS)
    training.notice(30)
    training.until(training.progress() + 3 / STEPS)
    training.send(signal.SIGTERM)
    assert training.end() == [143], training.log()
    assert framework.steps(tmp_path)[-1] == round(training.progress() * STEPS) < STEPS

    trainings.run(framework.script, tmp_path)
    assert (tmp_path / framework.output).read_bytes() == quiet


@pytest.mark.parametrize("name", ["ddp", "fsdp", "dcp"])
def test_under_torchrun_with_nccl_it_goes_on_after_a_kill_and_after_sigterm(
    name: str, pids: set[int], tmp_path: Path
) -> None:
    """With as many ranks as there are GPUs."""
    script, ranks = EXAMPLES / f"train_{name}.py", torch.cuda.device_count()

    def end_of(place: str, begins_with: Sequence[int]) -> bytes:
        return finished(tmp_path / place, script, pids, begins_with, ranks)

    for place in ("quiet", "taken"):
        (tmp_path / place).mkdir()
    expected = end_of("quiet", [0])
    attempt = Attempt(tmp_path / "taken", script, pids, ranks, SPOTWRIGHT_INTERRUPT_EVERY="1")
    attempt.until(15)
    attempt.kill()
    attempt = Attempt(tmp_path / "taken", script, pids, ranks, SPOTWRIGHT_INTERRUPT_EVERY="inf")
    attempt.until(30)
    attempt.process.send_signal(signal.SIGTERM)
    assert attempt.end() != 0
    done = attempt.steps()

    assert end_of("taken", [done, done + 1]) == expected
