"""A plain training script is told from a file with a pipeline without executing it, and runs as a pipeline of one task."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotwright.kfp.commands import compiled_script, is_script

GUARDED = "import time\n\ndef main():\n    time.sleep(1)\n\nif __name__ == '__main__':\n    main()\n"


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
