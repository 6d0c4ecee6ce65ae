"""The frameworks that train with one line of ours, each with its example."""

from __future__ import annotations

from pathlib import Path

from tests.torch.training_scripts import EXAMPLES

__all__ = ["FRAMEWORKS", "Framework"]


class Framework:
    """The example of a framework, and its files."""

    def __init__(self, name: str, output: str, newest: str, *of_two: str) -> None:
        self.name, self.output, self.newest = name, output, newest
        self.of_two = of_two  # arguments with which two ranks take 48 steps too
        self.script = EXAMPLES / f"train_{name}.py"

    def steps(self, folder: Path) -> list[int]:
        """The steps that were saved, the newest last."""
        return sorted(int(path.stem.split("-")[1]) for path in (folder / "place").glob(self.newest))


FRAMEWORKS = [
    Framework("huggingface", "model/model.safetensors", "model/checkpoint-*"),
    Framework("lightning", "weights.pt", "step-*.ckpt"),
    Framework("accelerate", "weights.pt", "checkpoint-*", "--epochs", "8"),
]
