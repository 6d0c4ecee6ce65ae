"""SIGTERM where it hurts: in the first step, an accumulation, an evaluation, a save, at the end of an epoch."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.torch.frameworks import FRAMEWORKS, Framework
from tests.torch.training_scripts import EXAMPLES, Forge

HUGGINGFACE, LIGHTNING, ACCELERATE = FRAMEWORKS

HEAD = """
import json, os, signal, time
def interrupt(here):
    if here != os.environ.get("INTERRUPTED_AT"):
        return
    if os.environ.get("BY") == "a notice":
        notice = os.environ["SPOTWRIGHT_NOTICE_FILE"]
        with open(notice + ".tmp", "w") as file:
            json.dump({"goes_at": time.time() + 60, "why": "taken"}, file)
        os.rename(notice + ".tmp", notice)
        time.sleep(0.6)  # until it is seen here
    else:
        os.kill(os.getpid(), getattr(signal, os.environ.get("BY", "SIGTERM")))
if "APART" in os.environ:
    os.environ["SPOTWRIGHT_CHECKPOINT"] += os.environ["RANK"]
"""
"""Before each script: it interrupts itself where a variable says."""

HUGGINGFACE_CALLBACK = """
from transformers import TrainerCallback
class Interrupt(TrainerCallback):
    def on_step_begin(self, args, state, control, **_): interrupt(f"step {state.global_step}")
    def on_substep_end(self, args, state, control, **_): interrupt(f"substep {state.global_step}")
    def on_prediction_step(self, args, state, control, **_): interrupt(f"evaluation {state.global_step}")
    def on_epoch_end(self, args, state, control, **_): interrupt(f"epoch end {state.global_step}")
    def on_save(self, args, state, control, **_): interrupt(f"save {state.global_step}")
from transformers import Trainer
save_optimizer = Trainer._save_optimizer_and_scheduler
def interrupted(self, folder):
    interrupt(f"writing {self.state.global_step}")
    save_optimizer(self, folder)
Trainer._save_optimizer_and_scheduler = interrupted
"""

LIGHTNING_CALLBACK = """
from lightning.pytorch import Callback
class Interrupt(Callback):
    def on_train_batch_start(self, trainer, module, batch, index): interrupt(f"batch {trainer.global_step} {index}")
    def on_train_batch_end(self, trainer, *_): interrupt(f"step {trainer.global_step}")
    def on_validation_batch_start(self, trainer, *_): interrupt(f"evaluation {trainer.global_step}")
    def on_train_epoch_end(self, trainer, module): interrupt(f"epoch end {trainer.global_step}")
    def on_save_checkpoint(self, trainer, *_): interrupt(f"save {trainer.global_step}")
"""

CHANGES = {
    "huggingface": [
        ("set_seed(7)", f"{HUGGINGFACE_CALLBACK}\nset_seed(7)"),
        ("save_steps=8", "save_steps=8, gradient_accumulation_steps=2, eval_strategy='epoch'"),
        ("train_dataset=data, callbacks=[", "train_dataset=data, eval_dataset=data[:16], callbacks=[Interrupt(), "),
    ],
    "lightning": [
        ("seed_everything(7)", f"{LIGHTNING_CALLBACK}\nseed_everything(7)"),
        ("    def conf", "    def validation_step(self, batch): self.training_step(batch)\n\n    def conf"),
        ("logger=False", "logger=False, accumulate_grad_batches=2, val_check_interval=10"),
        ("callbacks=[", "callbacks=[Interrupt(), "),
        ("trainer.fit(model, data,", "trainer.fit(model, data, DataLoader(data.dataset, batch_size=40),"),
    ],
    "accelerate": [
        ("        with acc", "        interrupt(f'batch {spot.step} {accelerator.sync_gradients}')\n        with acc"),
        ("        spot.s", "        interrupt(f'end {spot.step} {accelerator.sync_gradients}')\n        spot.s"),
    ],
}

DAYS = [
    (HUGGINGFACE, "step 0"),
    (HUGGINGFACE, "substep 7"),
    (HUGGINGFACE, "evaluation 12"),
    (HUGGINGFACE, "epoch end 12"),
    (HUGGINGFACE, "step 11"),
    (HUGGINGFACE, "writing 16"),
    (HUGGINGFACE, "save 16"),
    (LIGHTNING, "batch 0 0"),
    (LIGHTNING, "batch 7 15"),
    (LIGHTNING, "step 9"),
    (LIGHTNING, "step 10"),
    (LIGHTNING, "evaluation 5"),
    (LIGHTNING, "evaluation 10"),
    (LIGHTNING, "epoch end 10"),
    (LIGHTNING, "save 1"),
    (ACCELERATE, "batch 0 True"),
    (ACCELERATE, "batch 7 False"),
    (ACCELERATE, "end 11 True"),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("scripts")
    return {name: changed(folder, name, changes) for name, changes in CHANGES.items()}


def changed(folder: Path, name: str, changes: list[tuple[str, str]]) -> Path:
    """An example with other text here and there."""
    text = (EXAMPLES / f"train_{name}.py").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    script = folder / f"train_{name}.py"
    script.write_text(HEAD + text)
    return script


@pytest.fixture(scope="module")
def quiet(trainings: Forge, scripts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The weights of each training without an interruption."""
    weights = {}
    for each in FRAMEWORKS:
        folder = tmp_path_factory.mktemp(each.name)
        trainings.run(scripts[each.name], folder)
        weights[each.name] = (folder / each.output).read_bytes()
    return weights


@pytest.mark.long
@pytest.mark.parametrize(("framework", "here"), DAYS, ids=[f"{each.name}, {here}" for each, here in DAYS])
def test_sigterm_anywhere_costs_no_step(
    framework: Framework,
    here: str,
    trainings: Forge,
    scripts: dict[str, Path],
    quiet: dict[str, bytes],
    tmp_path: Path,
) -> None:
    training = trainings.start(scripts[framework.name], tmp_path, pace=0, INTERRUPTED_AT=here)
    assert training.end() == [143], training.log()
    assert framework.steps(tmp_path)[-1] == round(training.progress() * 48) < 48, training.log()

    trainings.run(scripts[framework.name], tmp_path)
    assert (tmp_path / framework.output).read_bytes() == quiet[framework.name]


@pytest.mark.long
@pytest.mark.parametrize(
    ("framework", "here", "step"),
    [
        (HUGGINGFACE, "step 0", 1),
        (HUGGINGFACE, "substep 20", 21),
        (HUGGINGFACE, "evaluation 20", 21),
        (HUGGINGFACE, "writing 16", 17),
        (LIGHTNING, "batch 0 0", 1),
        (LIGHTNING, "batch 21 3", 22),
        (LIGHTNING, "evaluation 20", 21),
        (LIGHTNING, "save 1", 2),
        (ACCELERATE, "batch 0 True", 1),
        (ACCELERATE, "batch 21 False", 22),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_notice_anywhere_saves_the_next_step_once(
    framework: Framework,
    here: str,
    step: int,
    trainings: Forge,
    scripts: dict[str, Path],
    quiet: dict[str, bytes],
    tmp_path: Path,
) -> None:
    script = tmp_path / f"train_{framework.name}.py"
    every_four = ("eval_strategy='epoch'", "eval_strategy='steps', eval_steps=4")
    script.write_text(scripts[framework.name].read_text().replace(*every_four))
    training = trainings.start(script, tmp_path, pace=0.02, INTERRUPTED_AT=here, BY="a notice")
    training.until((step + 3) / 48)
    training.send(signal.SIGKILL)
    training.end()
    saved = [each for each in framework.steps(tmp_path) if each % 8]  # those of eight are of save_steps
    assert saved[-1] in (step, step + 1), training.log()

    trainings.run(script, tmp_path)
    assert (tmp_path / framework.output).read_bytes() == quiet[framework.name]


@pytest.mark.long
def test_the_last_whole_checkpoint_is_there_until_the_next_is_whole(
    trainings: Forge, scripts: dict[str, Path], quiet: dict[str, bytes], tmp_path: Path
) -> None:
    script = tmp_path / "train_huggingface.py"
    script.write_text(scripts["huggingface"].read_text().replace("save_total_limit=2", "save_total_limit=1"))
    training = trainings.start(script, tmp_path, pace=0, INTERRUPTED_AT="writing 16", BY="SIGKILL")
    assert training.end() == [-9]
    assert HUGGINGFACE.steps(tmp_path) == [8]

    again = trainings.run(script, tmp_path)
    assert "checkpoint-16 is torn (its save did not finish)" in again.log()
    assert HUGGINGFACE.steps(tmp_path) == [48]
    assert (tmp_path / HUGGINGFACE.output).read_bytes() == quiet["huggingface"]


@pytest.mark.long
def test_each_of_two_notices_is_a_reason_to_save(trainings: Forge, tmp_path: Path) -> None:
    for framework in FRAMEWORKS:
        folder = tmp_path / framework.name
        training = trainings.start(framework.script, folder, pace=0.1)
        newest = 0
        for number in (1, 2):
            training.until(10 * number / 48)
            training.notice(60 * number)
            training.until(training.progress() + 3 / 48)
            assert framework.steps(folder)[-1] > newest
            newest = max(framework.steps(folder)[-1], 10 * number)
        training.send(signal.SIGKILL)
        training.end()


OTHER = "this checkpoint's model has other parameters"


@pytest.mark.long
@pytest.mark.parametrize(
    ("framework", "old", "new", "words"),
    [
        (
            HUGGINGFACE,
            "n_embd=32",
            "n_embd=16",
            f"checkpoint-48: {OTHER} (transformer.h.0.attn.c_attn.bias is [96] there and [48] here;",
        ),
        (
            LIGHTNING,
            "Linear(32, 2)",
            "Linear(32, 3)",
            f"step-0000000048.ckpt: {OTHER}: name another place, or remove this file",
        ),
        (
            ACCELERATE,
            "optimizer = torch",
            "model = torch.compile(model, backend='eager')\noptimizer = torch",
            f"checkpoint-48: {OTHER} (0.bias is [32] there and missing here; 0.weight is [32, 8] there and missing here;",
        ),
        (
            ACCELERATE,
            "Linear(32, 2)",
            "Linear(32, 3)",
            f"checkpoint-48: {OTHER} (3.bias is [2] there and [3] here; 3.weight is [2, 32] there and",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_checkpoint_of_another_model_is_refused_and_kept(
    framework: Framework, old: str, new: str, words: str, trainings: Forge, tmp_path: Path
) -> None:
    trainings.run(framework.script, tmp_path)
    before = contents(tmp_path / "place")
    training = trainings.start(changed(tmp_path, framework.name, [(old, new)]), tmp_path)

    assert training.end() == [1]
    assert words in training.log()
    assert before.items() <= contents(tmp_path / "place").items()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_fewer_processes_go_on_and_say_what_differs(framework: Framework, trainings: Forge, tmp_path: Path) -> None:
    training = trainings.start(framework.script, tmp_path, *framework.of_two, ranks=2)
    training.until(10 / 48)
    training.send(signal.SIGTERM)
    assert training.end() == [143, 143], training.log()

    again = trainings.run(framework.script, tmp_path)
    assert "saved by 2 processes, and 1 are running now" in again.log()


@pytest.mark.long
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
@pytest.mark.parametrize("sizes", [(2, 1, 2), (1, 2, 1)], ids=["2-1-2", "1-2-1"])
def test_each_attempt_may_have_another_number_of_processes(
    framework: Framework, sizes: tuple[int, int, int], trainings: Forge, tmp_path: Path
) -> None:
    done = 0
    for number, ranks in enumerate(sizes):
        training = trainings.start(framework.script, tmp_path, *framework.of_two, ranks=ranks, pace=0.02)
        if number < 2:
            training.until(0)  # what is done is another share for another number of processes
            training.until(training.progress() + 12 / 48)
            training.send(signal.SIGTERM)
        assert training.end() == [0 if number == 2 else 143] * ranks, training.log()
        if number < 2:
            assert framework.steps(tmp_path)[-1] == done + (tmp_path / "steps").stat().st_size
            done = framework.steps(tmp_path)[-1]
        said = f"saved by {sizes[number - 1]} processes, and {ranks} are running now" if number else "no other number"
        assert (said in training.log()) == (number > 0)
    assert training.progress() == 1.0


@pytest.mark.long
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_ranks_without_a_common_place_do_not_resume_apart(
    framework: Framework, scripts: dict[str, Path], trainings: Forge, tmp_path: Path
) -> None:
    script = scripts[framework.name]
    training = trainings.start(script, tmp_path, *framework.of_two, ranks=2, APART="yes")
    training.until(10 / 48)
    training.send(signal.SIGKILL)
    training.end()
    again = trainings.start(script, tmp_path, *framework.of_two, ranks=2, APART="yes")

    assert again.end() == [1, 1]
    assert again.log().count("the ranks see checkpoints of different steps there") == 2


@pytest.mark.long
def test_a_loader_with_a_position_of_its_own_goes_on_there(trainings: Forge, tmp_path: Path) -> None:
    stateful = ("data_seed=7", "data_seed=7, use_stateful_dataloader=True")
    script = changed(tmp_path, "accelerate", [*CHANGES["accelerate"], stateful])
    quiet, taken = tmp_path / "quiet", tmp_path / "taken"
    trainings.run(script, quiet)
    assert trainings.start(script, taken, pace=0, INTERRUPTED_AT="batch 7 False").end() == [143]
    trainings.run(script, taken)

    assert (taken / ACCELERATE.output).read_bytes() == (quiet / ACCELERATE.output).read_bytes()


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("enable_jit_checkpoint=True", "it ends an interrupted training with exit 0, which counts as a success"),
        ("save_only_model=True", "without the optimizer's state, training cannot resume"),
        ("output_dir='s3://bucket/model'", "output_dir=s3://bucket/model: transformers would create a local folder"),
    ],
)
def test_arguments_with_which_no_training_resumes_are_refused(
    trainings: Forge, tmp_path: Path, argument: str, words: str
) -> None:
    replaced = "output_dir=options.output" if argument.startswith("output_dir") else "save_strategy='steps'"
    changes = [("save_steps=8", "save_steps=8, save_strategy='steps'"), (replaced, argument)]
    script = changed(tmp_path, "huggingface", changes)
    training = trainings.start(script, tmp_path)

    assert training.end() == [1]
    assert words in training.log()


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_an_object_store_as_the_place_is_refused_with_the_way_out(
    framework: Framework, trainings: Forge, tmp_path: Path
) -> None:
    training = trainings.start(framework.script, tmp_path, SPOTWRIGHT_CHECKPOINT="s3://bucket/work")

    assert training.end() == [1]
    assert (
        "s3://bucket/work: this framework saves into folders, not into object stores: mount a volume and name a folder "
        "there, or write your own training loop with spotwright.checkpoint.Checkpoint"
    ) in training.log()


def test_an_absolute_output_folder_is_used_where_the_place_is_an_object_store(trainings: Forge, tmp_path: Path) -> None:
    output = tmp_path / "volume" / "model"
    training = trainings.run(
        HUGGINGFACE.script, tmp_path, "--output", str(output), SPOTWRIGHT_CHECKPOINT="s3://bucket/work"
    )

    assert f"checkpoints are saved in {output}, which must be on such a volume" in training.log()
    assert (output / "checkpoint-48" / "spotwright-whole.json").exists()


def test_a_trainer_without_the_callback_is_as_before(trainings: Forge, tmp_path: Path) -> None:
    script = changed(tmp_path, "huggingface", [("callbacks=[SpotCallback()]", "callbacks=[]")])
    training = trainings.start(script, tmp_path)

    assert training.end() == [1]
    assert "No valid checkpoint found in output directory" in training.log()


def test_a_loader_that_cannot_be_ordered_again_is_refused(trainings: Forge, tmp_path: Path) -> None:
    script = changed(tmp_path, "accelerate", [("use_seedable_sampler=True, data_seed=7", "")])
    training = trainings.start(script, tmp_path)

    assert training.end() == [1]
    assert "DataLoaderConfiguration(use_seedable_sampler=True)" in training.log()


def test_a_script_with_the_name_of_lightning_is_told_to_take_another(tmp_path: Path) -> None:
    script = tmp_path / "lightning.py"
    script.write_text("import lightning\nimport spotwright.checkpoint.lightning\n")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert f"{script}: this file hides Lightning's package" in ended.stderr
