"""A plain training script is told from a file with a pipeline without executing it, and runs as a pipeline of one task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.project import Project, a_project

import spotwright as spot
from spotwright.errors import InputError, PipelineError
from spotwright.kfp.commands import compiled_script, is_script
from spotwright.kfp.loader import load

GUARDED = "import time\n\ndef main():\n    time.sleep(1)\n\nif __name__ == '__main__':\n    main()\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with a_project(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (GUARDED, True),
        ("for step in range(3):\n    pass\n", True),
        ("'''What it does.'''\nprint(1)\n", True),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\nprint(torch)\n", True),
        ("from kfp import dsl\n\nif __name__ == '__main__':\n    print(1)\n", False),
        ("from pipelines import training\n", False),
        ("from pipelines import training\n\nnightly = training\n\n\ndef other():\n    print(1)\n", False),
        ("try:\n    import a\nexcept ImportError:\n    a = None\n", False),
        ("if True:\n    import a\n", False),
        ("", False),
        ("# the same without kfp\nprint(1)\n", True),
        ("def main():\n    from kfp import dsl\n\nmain()\n", False),
        ("from spotwright_pipelines import dsl\n\n@dsl.pipeline\ndef all():\n    pass\n\nprint(1)\n", False),
        ("def (:\n", False),
        ("\0", False),
    ],
)
def test_a_script_acts_when_it_is_executed_and_never_names_kfp(source: str, expected: bool, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)

    assert is_script(file) is expected


def test_only_a_py_file_is_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("print(1)")

    assert not is_script(tmp_path / "train.yaml")
    assert not is_script(tmp_path / "missing.py")
    assert not is_script(tmp_path)


def test_looking_at_a_script_does_not_execute_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n")

    assert is_script(file)
    assert compiled_script(file, tmp_path).files.keys() == {str(file)}
    assert not (tmp_path / "ran").exists()


TOUCH = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"
SCRIPTS = {
    "a call": {"train.py": TOUCH},
    "a loop": {
        "train.py": "import pathlib\nfor name in ['ran']:\n    pathlib.Path(__file__).with_name(name).touch()\n"
    },
    "below a guard": {"train.py": "import pathlib\nif True:\n    pathlib.Path(__file__).with_name('ran').touch()\n"},
    "an assigned value": {"train.py": "import pathlib\nmodel = pathlib.Path(__file__).with_name('ran').touch()\n"},
    "kfp in a comment": {"train.py": f"# the same without kfp\n{TOUCH}"},
    "kfp in a text": {"train.py": f"'''Also as a kfp pipeline.'''\n{TOUCH}"},
    "a script beside it": {"train.py": "from steps import *\n", "steps.py": TOUCH},
    "a package beside it": {"train.py": "import steps.a\n", "steps/__init__.py": TOUCH, "steps/a.py": ""},
    "large": {"train.py": f"{TOUCH}\nDATA = '{'x' * 1_100_000}'\n"},
}


@pytest.mark.parametrize("files", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_script_is_refused_as_a_pipeline_and_not_executed(files: dict[str, str], tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)

    with pytest.raises(PipelineError, match=r"train\.py: expected a pipeline") as refused:
        load(tmp_path / "train.py")

    assert not list(tmp_path.rglob("ran"))
    assert "\n" not in str(refused.value)


PIPELINE = """
from kfp import dsl


@dsl.component
def work() -> int:
    return 1


@dsl.pipeline
def training() -> int:
    return work().output
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "from steps import training\n",
        "from steps import *\n",
        "from steps import training\n\nnightly = [training][0]\nprint(nightly)\n",
        "import steps\n\ntraining = getattr(steps, 'training')\n",
    ],
)
def test_a_pipeline_from_a_module_beside_the_file_is_still_found(source: str, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(PIPELINE)
    (tmp_path / "nightly.py").write_text(source)

    assert load(tmp_path / "nightly.py", pipeline="training").pipeline == "training"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plan", "compile", "place", "explain", "lint"])
def test_no_command_that_looks_at_files_executes_a_script(command: str, project: Project) -> None:
    project.write("train.py", TOUCH)

    done = project.spotwright(command, "train.py")

    assert not (project.folder / "ran").exists()
    assert done.code == (0 if command == "lint" else 2)
    assert done.error_lines == [] if command == "lint" else len(done.error_lines) == 1


@pytest.mark.slow
def test_the_functions_for_notebooks_execute_no_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TOUCH)
    for function in (spot.plan, spot.explain):
        with pytest.raises(InputError, match="expected a pipeline"):
            function(tmp_path / "train.py")
    assert spot.lint(tmp_path / "train.py").json()["findings"] == []
    assert not (tmp_path / "ran").exists()
