"""The code of the how-to page for PyTorch runs unchanged, and resumes after an interruption."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.docs.pages import ROOT
from tests.torch.training_scripts import Forge

PAGE = ROOT / "docs" / "how-to" / "train-with-pytorch.md"


def code_after(heading: str) -> str:
    """The first block of Python below a heading of the page."""
    text = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2]
    return next(block for block in text.split("```python\n")[1:]).partition("```")[0]


@pytest.mark.parametrize(("heading", "ranks"), [("A loop of your own", 1), ("DDP", 2), ("FSDP2", 2)])
def test_a_loop_of_the_page_saves_at_sigterm_and_goes_on(
    heading: str, ranks: int, trainings: Forge, tmp_path: Path
) -> None:
    script = tmp_path / "page.py"
    script.write_text(code_after(heading))
    training = trainings.start(script, tmp_path, ranks=ranks)
    training.until(0.1)
    training.send(signal.SIGTERM)
    assert training.end() == [143] * ranks, training.log()
    done = training.progress()

    again = trainings.start(script, tmp_path, ranks=ranks, pace=0)
    assert again.end() == [0] * ranks, again.log()
    assert 0.1 <= done < 1
    left = round((1 - done) * 200)  # small changes of the progress are written at most 20 times a second
    assert left - 10 <= len((tmp_path / "steps").read_bytes()) <= left, "no step was done again"


CALLS = {
    "Hugging Face": """
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments
import torch
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=8, n_embd=8, n_layer=1, n_head=1))
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 16
train(model, TrainingArguments(output_dir="out", max_steps=2, report_to="none", use_cpu=True), data)
""",
    "accelerate": """
import torch
model = torch.nn.Linear(8, 1)
loader = torch.utils.data.DataLoader(torch.randn(8, 8), batch_size=4, shuffle=True)
train(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, lambda model, batch: model(batch).square().mean())
""",
    "Lightning": """
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
train(BoringModel(), torch.utils.data.DataLoader(torch.randn(8, 32), batch_size=4))
""",
}


@pytest.mark.parametrize("heading", CALLS)
def test_a_function_of_the_page_trains(heading: str, trainings: Forge, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(
        code_after(heading).replace("max_steps=10_000", "max_steps=2, accelerator='cpu', logger=False") + CALLS[heading]
    )
    log = trainings.run(script, tmp_path).log()

    assert list((tmp_path / "place").glob("**/spotwright-whole.json")) or list(
        (tmp_path / "place").glob("step-*.ckpt")
    ), log
