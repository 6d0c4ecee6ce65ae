"""Training frameworks that end with exit code 0 at SIGTERM are found in files, in components and in commands; others are not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.linter.linting import found_in

from spotwright.linter.rule import ON_SPOT, job, kfp

JIT, LIGHTNING = "jit-checkpoint-exits-with-0", "lightning-exits-with-0"
FIT = "trainer.fit(model)\n"


def rules_in(text: str, *, python: bool = True) -> list[tuple[str, int]]:
    return [(finding.rule, finding.line) for finding in found_in(text, python=python) if "exits-with-0" in finding.rule]


@pytest.mark.parametrize(
    "line",
    [
        'args = TrainingArguments(output_dir="out", enable_jit_checkpoint=True)',
        'args = TrainingArguments(**{"enable_jit_checkpoint": True})',
        "args.enable_jit_checkpoint = True",
    ],
)
def test_a_just_in_time_checkpoint_that_is_switched_on_is_found(line: str) -> None:
    assert rules_in(f"from transformers import TrainingArguments\n{line}\n") == [(JIT, 2)]


@pytest.mark.parametrize(
    "line",
    [
        "args = TrainingArguments(enable_jit_checkpoint=False)",
        "args = TrainingArguments()  # enable_jit_checkpoint=True",
        "if args.enable_jit_checkpoint: raise SystemExit",
    ],
)
def test_a_just_in_time_checkpoint_that_is_off_is_not_found(line: str) -> None:
    assert rules_in(f"from transformers import TrainingArguments\n{line}\n") == []


@pytest.mark.parametrize(
    "lines",
    [
        "import lightning as L\ntrainer = L.Trainer()\n",
        "import lightning.pytorch as pl\ntrainer = pl.Trainer()\n",
        "import pytorch_lightning\ntrainer = pytorch_lightning.Trainer()\n",
        "from lightning.pytorch import Trainer\ntrainer = Trainer(max_epochs=3)\n",
        "from pytorch_lightning import Trainer as Fitter\ntrainer = Fitter()\n",
        "from lightning import pytorch as pl\ntrainer = pl.Trainer()\n",
    ],
)
def test_a_trainer_of_lightning_without_our_callback_is_found(lines: str) -> None:
    assert rules_in(lines + FIT) == [(LIGHTNING, 2)]
    ours = "from spotwright.checkpoint.lightning import SpotCheckpoint\n"
    assert rules_in(ours + lines + FIT) == []


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import Trainer\ntrainer = Trainer()\ntrainer.train()\n",
        f"from transformers import Trainer\ntrainer = Trainer()\n{FIT}",
        "import lightning as L\nL.Trainer().predict(model)\n",
        f"import lightning as L\nfrom fits import Trainer\ntrainer = Trainer()\n{FIT}",
    ],
)
def test_a_trainer_of_another_library_or_without_training_is_not_found(text: str) -> None:
    assert rules_in(text) == []


COMPONENT = """
import kfp
from kfp import dsl

def train(epochs: int):
    from transformers import Trainer, TrainingArguments
    Trainer(args=TrainingArguments(enable_jit_checkpoint=True)).train()
"""


def test_the_source_of_a_component_in_a_compiled_pipeline_is_read() -> None:
    command = json.dumps(["sh", "-ec", "python3 -m kfp.dsl.executor_main", COMPONENT])
    [found] = rules_in(kfp(executor=f"command: {command}\n"), python=False)
    assert found[0] == JIT
    off = command.replace("=True", "=False")
    assert rules_in(kfp(executor=f"command: {off}\n"), python=False) == []


def test_a_component_in_a_python_pipeline_is_read() -> None:
    body = COMPONENT.replace("\ndef train", "\n@dsl.component\ndef train")
    assert [rule for rule, _ in rules_in(body)] == [JIT]


@pytest.mark.parametrize(
    ("command", "is_found"),
    [
        (["torchrun", "train.py", "--enable_jit_checkpoint"], True),
        (["torchrun", "train.py", "--enable-jit-checkpoint=true", "--fp16"], True),
        (["sh", "-c", "accelerate launch train.py --enable_jit_checkpoint True --bf16"], True),
        (["sh", "-c", "cat > t.py <<X\nTrainingArguments(enable_jit_checkpoint=True)\nX\npython t.py"], True),
        (["torchrun", "train.py", "--enable_jit_checkpoint", "False"], False),
        (["torchrun", "train.py", "--enable_jit_checkpoint=no"], False),
        (["torchrun", "train.py", "--enable_jit_checkpoints"], False),
        (["torchrun", "train.py"], False),
    ],
)
@pytest.mark.parametrize("field", ["command", "args"])
def test_an_option_of_a_command_is_found(command: list[str], field: str, *, is_found: bool) -> None:
    found = rules_in(job(ON_SPOT, container=f"{field}: {json.dumps(command)}\n"), python=False)
    assert [rule for rule, _ in found] == ([JIT] if is_found else [])


def test_pods_that_never_come_to_spot_are_left_alone() -> None:
    text = job(container="command: [torchrun, train.py, --enable_jit_checkpoint]\n")
    assert rules_in(text, python=False) == []


@given(
    st.text(st.characters(codec="ascii", min_codepoint=32))
    | st.text(alphabet="--enable_jit_checkpoint= TrueTrainer()\n")
)
def test_no_command_however_odd_stops_lint(word: str) -> None:
    rules_in(
        job(ON_SPOT, container=f"command: {json.dumps([f'Trainer {word} enable_jit_checkpoint'])}\n"), python=False
    )
