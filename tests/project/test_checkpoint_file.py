"""The checkpoint library as one file works in a Python without other packages, from any folder."""

from __future__ import annotations

import ast
import io
import sys
import tomllib
import zipfile
from pathlib import Path
from subprocess import run

import pytest
from click.testing import CliRunner

from spotwright.checkpoint_file import (
    PYTHON,
    checkpoint_file,
    imported_names,
    imports_spotwright,
    names_not_in_file,
    uses_pytorch,
)
from spotwright.cli import cli

ROOT = Path(__file__).resolve().parents[2]

STEP = """
import sys
from spotwright.checkpoint import Checkpoint, notice, progress

ckpt = Checkpoint()
state = ckpt.load(default={"total": 0, "name": "n"})
for step in ckpt.steps(5):
    state["total"] += step
    ckpt.step_done(state)
progress(1)
ckpt.save({"total": state["total"], "numbers": list(range(10)), "data": b"x" * 10_000})
third = sorted(n for n in sys.modules if n.partition(".")[0] not in {*sys.stdlib_module_names, "spotwright", "__main__"})
print(state["total"], notice().reason, sys.modules["spotwright.checkpoint"].__file__, third)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file, written by the command in a separate folder."""
    path = tmp_path / "library" / "spotwright_checkpoint.pyz"
    path.parent.mkdir()
    done = CliRunner().invoke(cli, ["checkpoint-file", "--output", str(path)], standalone_mode=False)
    assert (done.exit_code, done.return_value) == (0, 0)
    assert f"PYTHONPATH={path}" in done.output
    return path


def python(code: str, path: Path | str, cwd: Path, **env: str) -> str:
    """The output of a Python without site-packages that finds the file on PYTHONPATH, in an otherwise empty environment."""
    given = {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1", **env}
    command = [sys.executable, "-S", "-s", "-c", code]
    done = run(command, cwd=cwd, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_has_at_most_150_kilobytes() -> None:
    assert len(checkpoint_file()) < 150_000


def test_a_step_saves_reports_and_sees_a_notice_with_nothing_else_installed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    notice = tmp_path / "notice"
    notice.write_text('{"goes_at": 2000000000, "why": "it goes"}')
    variables = {
        "SPOTWRIGHT_CHECKPOINT": str(tmp_path / "place"),
        "SPOTWRIGHT_PROGRESS_FILE": str(tmp_path / "progress"),
        "SPOTWRIGHT_NOTICE_FILE": str(notice),
    }
    printed = python(STEP, file, tmp_path / "elsewhere", **variables)

    assert printed.strip() == f"10 it goes {file}/spotwright/checkpoint/__init__.py []"
    assert (tmp_path / "progress").read_text() == "1.0"


def test_a_step_without_pytorch_needs_none_of_its_modules(tmp_path: Path) -> None:
    small = tmp_path / "small.pyz"
    small.write_bytes(checkpoint_file(for_pytorch=False))

    told = python(
        STEP, small, tmp_path, SPOTWRIGHT_CHECKPOINT=str(tmp_path / "place"), SPOTWRIGHT_NOTICE_FILE="/dev/null"
    )
    assert told.split()[0] == "10"
    assert len(small.read_bytes()) < 0.7 * len(checkpoint_file())
    held = set(zipfile.ZipFile(small).namelist())
    assert "spotwright/checkpoint/keras.py" in held
    assert held.isdisjoint(
        f"spotwright/checkpoint/{name}.py" for name in ("torch", "dcp", "huggingface", "save_coordinator")
    )


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("from spotwright.checkpoint import Checkpoint\nCheckpoint(every=60)", False),
        ("from spotwright.checkpoint.torch import restore", True),
        ("from spotwright.checkpoint.huggingface import SpotCallback", True),
        ("ckpt = Checkpoint(group=ranks)", True),
        ("import lightning", True),
    ],
)
def test_a_program_with_pytorch_is_known_by_its_text(source: str, uses: bool) -> None:
    assert uses_pytorch(source) == uses


def test_a_notice_of_the_node_agent_needs_nothing_else_either(file: Path, tmp_path: Path) -> None:
    code = "from spotwright.checkpoint import notice; print(notice())"

    assert python(code, file, tmp_path, SPOTWRIGHT_NOTICE_URL="http://127.0.0.1:1/notice").strip() == "None"


def test_the_adapters_of_libraries_are_in_it() -> None:
    names = zipfile.ZipFile(io.BytesIO(checkpoint_file())).namelist()

    assert {f"spotwright/checkpoint/{name}.py" for name in ("torch", "keras", "sklearn", "xgboost", "lightgbm")} <= set(
        names
    )


def test_it_is_the_code_of_the_package_line_by_line() -> None:
    archive = zipfile.ZipFile(io.BytesIO(checkpoint_file()))
    for name in archive.namelist():
        if name in ("__main__.py", "spotwright/__init__.py"):
            continue
        packed, source = archive.read(name).decode(), (ROOT / "src" / name).read_text(encoding="utf-8")
        assert lines_of_statements(packed) == lines_of_statements(source), name


def lines_of_statements(text: str) -> list[tuple[int, str]]:
    """Every statement but docstrings, with its line."""
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    own = [node for node in statements if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return [
        (node.lineno, type(node).__name__)
        for node in own
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


def test_the_same_version_makes_the_same_bytes() -> None:
    first = checkpoint_file()
    checkpoint_file.cache_clear()

    assert checkpoint_file() == first


def test_executed_it_says_what_it_is(file: Path) -> None:
    done = run([sys.executable, "-I", "-S", str(file)], capture_output=True, text=True, check=True)

    assert "put this file on PYTHONPATH" in done.stdout


def test_an_installed_spotwright_keeps_its_other_modules(file: Path, tmp_path: Path) -> None:
    code = "import spotwright.checkpoint as c, spotwright.model.quantities as q; print(c.__file__); print(q.__file__)"
    first, second = python(code, f"{file}:{ROOT / 'src'}", tmp_path).splitlines()

    assert first.startswith(str(file))
    assert second == str(ROOT / "src" / "spotwright" / "model" / "quantities.py")


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    from spotwright.checkpoint import Checkpoint",
        "import spotwright.checkpoint",
        "import os, spotwright.checkpoint as c",
        "import os as o, sys, spotwright",
        'python3 -c "import spotwright.checkpoint; x()"',
    ],
)
def test_an_import_is_seen_in_a_programs_text(source: str) -> None:
    assert imports_spotwright(source)


@pytest.mark.parametrize(
    "source", ["import os", "print('spotwright')", "import spotwrightly", "x = spotwright_file", ""]
)
def test_other_texts_import_nothing_of_spotwright(source: str) -> None:
    assert not imports_spotwright(source)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import spotwright as spot\nspot.run(spot.prefer)", {"spotwright", "spotwright.run", "spotwright.prefer"}),
        ("import spotwright.checkpoint", {"spotwright.checkpoint"}),
        ("from spotwright import notices", {"spotwright", "spotwright.notices"}),
        ("if TYPE_CHECKING:\n    import spotwright", set()),
        ("# import spotwright\n'import spotwright'", set()),
        ("python3 -c 'import spotwright'", set()),
    ],
)
def test_the_names_that_a_program_uses_are_read_from_its_text(source: str, names: set[str]) -> None:
    assert imported_names(source) == names


def test_the_file_lacks_what_it_cannot_import(file: Path) -> None:
    inside = ("checkpoint.Checkpoint", "checkpoint.torch", "SpotwrightError", "notices.Notice", "__version__")
    names = [f"spotwright.{name}" for name in (*inside, "notices.metadata_services", "run", "config")]
    lacking = names_not_in_file(names)

    assert lacking == ["spotwright.config", "spotwright.notices.metadata_services", "spotwright.run"]
    for name in names:
        module, _, attribute = name.rpartition(".")
        code = f"from {module} import {attribute}"
        if name != "spotwright.checkpoint.torch":  # needs torch
            done = run(
                [sys.executable, "-S", "-s", "-c", code], cwd=file.parent, env={"PYTHONPATH": str(file)}, check=False
            )
            assert (done.returncode != 0) == (name in lacking), name


def test_the_oldest_python_is_that_of_the_package() -> None:
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]

    assert requires == f">={'.'.join(map(str, PYTHON))}"
