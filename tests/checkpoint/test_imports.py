"""Importing the library loads only the standard library, and no part of Spotwright that training code does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

import spotwright.checkpoint


def modules(code: str) -> set[str]:
    """The modules loaded by this code, in a separate process, without the ones loaded before."""
    whole = f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.fixture(scope="module")
def imported() -> set[str]:
    return modules("import spotwright.checkpoint")


def test_no_module_of_a_third_party_is_imported(imported: set[str]) -> None:
    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == {"spotwright"}


def test_no_other_part_of_spotwright_is_imported(imported: set[str]) -> None:
    ours = {
        name for name in imported if name.startswith("spotwright.") and not name.startswith("spotwright.checkpoint")
    }

    assert ours == {"spotwright.errors", "spotwright.links_below", "spotwright.version"}


def test_nothing_heavy_of_the_standard_library_is_imported(imported: set[str]) -> None:
    heavy = {"asyncio", "dataclasses", "email", "http", "inspect", "json", "logging", "pathlib", "pickle", "socket", "ssl",
             "subprocess", "urllib.request", "uuid"}  # fmt: skip

    assert imported & heavy == set()


def test_a_folder_and_plain_data_need_no_third_party_either() -> None:
    code = (
        "import tempfile\nfrom spotwright.checkpoint import Checkpoint\n"
        "with tempfile.TemporaryDirectory() as place, Checkpoint(place) as ckpt:\n"
        "    ckpt.load()\n    for step in ckpt.steps(2): ckpt.step_done({'step': step, 'bytes': b'x'})\n"
    )

    assert {name.partition(".")[0] for name in modules(code)} - sys.stdlib_module_names == {"spotwright"}


def test_the_public_names_are_these() -> None:
    assert sorted(spotwright.checkpoint.__all__) == [
        "BrokenCheckpoint",
        "Checkpoint",
        "CheckpointError",
        "Directory",
        "File",
        "NotLoaded",
        "OtherProgram",
        "PlaceError",
        "SaveFailed",
        "StaleWriter",
        "UnstorableState",
        "notice",
        "progress",
    ]


@pytest.mark.parametrize(
    ("module", "needs", "install"),
    [
        ("huggingface", "transformers", "pip install --upgrade 'transformers[torch]'"),
        ("lightning", "lightning", "pip install lightning"),
        ("accelerate", "accelerate", "pip install accelerate"),
        ("torch", "torch", "pip install torch"),
        ("dcp", "torch", "pip install torch"),
        ("keras", "keras", "pip install keras jax"),
    ],
)
def test_a_framework_that_is_missing_is_named_with_what_installs_it(module: str, needs: str, install: str) -> None:
    code = f"import sys\nsys.modules[{needs!r}] = sys.modules['torch'] = None\nimport spotwright.checkpoint.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: spotwright.checkpoint.{module} needs")
    assert last.endswith(f": {install}")
