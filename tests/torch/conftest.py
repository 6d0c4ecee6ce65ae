"""Tests of training with PyTorch. Where it is not installed, `make torch` installs it; one line says so in its place."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.e2e.conftest import project  # noqa: F401 (a fixture of these tests too)
from tests.torch.training_scripts import Forge, forge

WHY = "needs the group `torch`: make torch"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where these tests are left out, nothing imports PyTorch: it may be there and not load, as its CUDA is missing."""
    is_left_out = "not torch" in config.option.markexpr and not any("torch" in each for each in config.args)
    return True if is_left_out and collection_path.name.startswith("test_") else None


class _Missing(pytest.Module):
    """A file of tests that cannot be imported without PyTorch."""

    def _getobj(self) -> None:
        pytest.skip(WHY, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if importlib.util.find_spec("torch") is not None:
        return None
    found: pytest.Module = _Missing.from_parent(parent, path=module_path)
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.torch)


@pytest.fixture(scope="session")
def trainings() -> Iterator[Forge]:
    """A process from which trainings with every framework are forked."""
    with forge(
        "transformers.trainer",
        "transformers.models.gpt2.modeling_gpt2",
        "lightning.pytorch",
        "accelerate",
        "spotwright.checkpoint.huggingface",
        "spotwright.checkpoint.lightning",
        "spotwright.checkpoint.accelerate",
    ) as it:
        yield it


@pytest.fixture(scope="module")
def pids() -> Iterator[set[int]]:
    """The processes of all attempts. None of them outlives the tests."""
    found: set[int] = set()
    yield found
    for each in found:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
