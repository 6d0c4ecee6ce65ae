"""Steps that one interruption costs in each framework: with our line, and with the framework alone.

Each training has 48 steps of at least 150 ms. It is killed after 20 of them; or its node has a notice of 30 s, and SIGTERM comes
a second later. Then it starts again. Counted are the steps that are done twice. A training that ends with exit 0 before its work
is done loses the rest instead, because nobody starts it again. Trainings of two ranks are killed together; the notice and SIGTERM
reach the second rank alone.

Ours are the scripts of ``examples/torch``. Alone are the same scripts, with our lines replaced by what the framework's own
documentation says, saving every eighth step. Ours save when that pays: a training of a few seconds on nodes that are taken every
28 minutes saves its first step, and after a notice. Hugging Face keeps the schedule of its ``TrainingArguments``, as without us.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.torch.training_scripts import EXAMPLES, Forge, Training, forge

__all__ = ["measure"]

STEPS, KILLED_AT, NOTICE_AT = (
    48,
    20,
    13,
)  # SIGTERM comes about 6 steps after the notice, in the middle of two saves of theirs
PACE = 0.15  # seconds

_HUGGINGFACE = {
    "from spotwright.checkpoint.huggingface import SpotCallback": (
        "import os\nfrom transformers.trainer_utils import get_last_checkpoint"
    ),
    ", callbacks=[SpotCallback()]": "",
    "resume_from_checkpoint=True": (
        "resume_from_checkpoint=get_last_checkpoint(options.output) if os.path.isdir(options.output) else None"
    ),
}
ALONE: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "Hugging Face": ("huggingface", _HUGGINGFACE),
    "Hugging Face, enable_jit_checkpoint": (
        "huggingface",
        {**_HUGGINGFACE, "    use_cpu=True,": "    use_cpu=True,\n    enable_jit_checkpoint=True,"},
    ),
    "Lightning": (
        "lightning",
        {
            "from spotwright.checkpoint.lightning import SpotCheckpoint, SpotCheckpointIO": (
                "from lightning.pytorch.callbacks import ModelCheckpoint"
            ),
            "    plugins=[SpotCheckpointIO()],\n": "",
            "SpotCheckpoint()": "ModelCheckpoint(dirpath='place', every_n_train_steps=8, save_last=True)",
        },
    ),
    "accelerate": (
        "accelerate",
        {
            "from spotwright.checkpoint.accelerate import SpotState": (
                "from pathlib import Path\nfrom accelerate import skip_first_batches"
            ),
            "spot = SpotState(accelerator, total=options.epochs * len(loader) // options.accumulate)": (
                "done, position = 0, Path('state/done')"
            ),
            "spot.load()": (
                "if position.exists():\n    accelerator.load_state('state')\n    done = int(position.read_text())"
            ),
            "for _epoch in spot.epochs(options.epochs):": (
                "for epoch in range(done // len(loader), options.epochs):\n    loader.set_epoch(epoch)"
            ),
            "spot.batches(loader)": "skip_first_batches(loader, done % len(loader))",
            "spot.step_done()": (
                "done += 1\n        if done % (8 * options.accumulate) == 0:\n"
                "            accelerator.save_state('state')\n            position.write_text(str(done))"
            ),
        },
    ),
}
"""By its name: the example, and its lines with those that stand in their place without us."""


_SAVES_BY_HAND = """
place, first = Path("state.pt"), 0
if place.exists():
    state = torch.load(place)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["done"]
if True:
    for step in range(first, options.steps):
"""
_SAVE_BY_HAND = """
        if rank == 0 and (step + 1) % 8 == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": step + 1}, "new.pt")
            os.replace("new.pt", place)
"""
_SAVES_OF_DCP = """
saves, first = sorted(Path("saves").glob("*/.metadata")), 0
if saves:
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "done": 0}
    dcp.load(state, checkpoint_id=saves[-1].parent)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    first = state["done"]
if True:
    for step in range(first, options.steps):
"""
_SAVE_OF_DCP = """
        if (step + 1) % 8 == 0:
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments, "done": step + 1}, checkpoint_id=f"saves/{step + 1:04}")
"""
_IMPORTS = "from spotwright.checkpoint import Checkpoint\nfrom spotwright.checkpoint.torch import restore, state_of\n"
_LOOP = """
with Checkpoint(group=dist.group.WORLD) as ckpt:  # every rank makes one, and calls the same methods
    restore(ckpt.load(), model=model, optimizer=optimizer)
    if rank == 0:
        print(f"begins with step {ckpt.step}", flush=True)
    for step in ckpt.steps(options.steps):
"""
_STEP_DONE = "\n        ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer))\n"
OF_TWO_RANKS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "DDP": (
        "ddp",
        {_IMPORTS: "from pathlib import Path\n", _LOOP: _SAVES_BY_HAND, _STEP_DONE: _SAVE_BY_HAND},
    ),
    "FSDP2": (
        "fsdp",
        {
            _IMPORTS: (
                "from pathlib import Path\nimport torch.distributed.checkpoint as dcp\n"
                "from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict\n"
            ),
            _LOOP: _SAVES_OF_DCP,
            _STEP_DONE: _SAVE_OF_DCP,
        },
    ),
    "torch.distributed.checkpoint": (
        "dcp",
        {
            "from spotwright.checkpoint import notice, progress\n": "from pathlib import Path\n",
            "from spotwright.checkpoint.dcp import StoreReader, StoreWriter\n": "",
            "signal.signal(": "print(",
            "reader = StoreReader()\nif reader.has_save():": "saves = sorted(Path('saves').glob('*/.metadata'))\nif saves:",
            "storage_reader=reader": "checkpoint_id=saves[-1].parent",
            "progress(first / options.steps)\n\nwriter = StoreWriter()\n": "",
            "is_any_node_going() and done < options.steps": "False",
            "storage_writer=writer": "checkpoint_id=f'saves/{done:04}'",
            "    progress(done / options.steps)\n": "",
        },
    ),
}
"""The same for trainings of two ranks."""

_MODULES = ("transformers.trainer", "transformers.models.gpt2.modeling_gpt2", "lightning.pytorch", "accelerate")


def measure(times: int = 3) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yield the measurements: the name, the steps that each interruption cost with our line, and those without it."""
    with tempfile.TemporaryDirectory(prefix="spotwright-frameworks-") as name, forge(*_MODULES) as trainings:
        folder = Path(name)
        for framework, (example, replaced) in {**ALONE, **OF_TWO_RANKS}.items():
            ranks = 2 if framework in OF_TWO_RANKS else 1
            script = EXAMPLES / f"train_{example}.py"
            alone = folder / f"{framework}.py"
            alone.write_text(_without_us(script.read_text(encoding="utf-8"), replaced), encoding="utf-8")
            for what, interrupt in _INTERRUPTIONS.items():
                costs: dict[Path, list[float]] = {script: [], alone: []}
                for number in range(times):
                    for each, found in costs.items():
                        place = folder / f"{framework}-{what}-{each.stem}-{number}"
                        found.append(_cost(trainings, each, place, ranks, interrupt))
                yield f"{framework}: {what}", costs[script], costs[alone]


def _without_us(text: str, replaced: Mapping[str, str]) -> str:
    for ours, theirs in replaced.items():
        if ours not in text:
            raise RuntimeError(f"the example no longer has the line {ours!r}")
        text = text.replace(ours, theirs)
    return text


def _cost(trainings: Forge, script: Path, folder: Path, ranks: int, interrupt: Callable[[Training], None]) -> float:
    training = trainings.start(script, folder, ranks=ranks, pace=PACE)
    interrupt(training)
    codes = training.end()
    first = _done(training)
    if not any(codes):
        return STEPS - first  # it counts as a success
    trainings.run(script, folder, ranks=ranks)
    return first + _done(training) - STEPS


def _kill(training: Training) -> None:
    _until(training, KILLED_AT)
    training.send(signal.SIGKILL)


def _notice(training: Training) -> None:
    _until(training, NOTICE_AT)
    last = len(training.pids) - 1
    training.notice(30, rank=last)
    time.sleep(1)
    training.send(signal.SIGTERM, [last])


_INTERRUPTIONS: Mapping[str, Callable[[Training], None]] = {
    f"killed at step {KILLED_AT}": _kill,
    "a notice of 30 s, then SIGTERM": _notice,
}


def _done(training: Training) -> int:
    """How many steps of the optimizer the process has done."""
    path = training.folder / "steps"
    return path.stat().st_size if path.exists() else 0


def _until(training: Training, steps: int) -> None:
    while _done(training) < steps:
        time.sleep(0.002)
        if training.ended():
            raise RuntimeError(f"the training ended by itself: {training.log()}")
