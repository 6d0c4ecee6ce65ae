"""The hooks for pre-commit: its own checks accept them, and a commit is linted and placed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from tests.integrations.projects import CONFIG, JOB, ROOT, a_path, run, tool

from spotwright.cli import cli

HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


def test_every_hook_calls_a_command_with_options_that_it_has() -> None:
    for hook in HOOKS:
        program, command, *options = hook["entry"].split()
        found = cli.get_command(None, command)  # type: ignore[arg-type]
        assert program == "spotwright"
        assert found is not None
        assert set(options) <= {name for parameter in found.params for name in parameter.opts}


def test_pre_commit_accepts_the_hooks(tmp_path: Path) -> None:
    done = run([tool("pre-commit"), "validate-manifest", ROOT / ".pre-commit-hooks.yaml"], tmp_path)

    assert done.returncode == 0, done.stdout


def test_a_commit_is_placed_once_and_then_passes(tmp_path: Path) -> None:
    pre_commit = tool("pre-commit")
    here = [{**hook, "language": "system"} for hook in HOOKS]  # the program that is tested, and no index of packages
    settings = {"repos": [{"repo": "local", "hooks": here}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "spotwright.yaml").write_text(CONFIG)
    run(["git", "init", "-q"], tmp_path)
    run(["git", "add", "job.yaml", "spotwright.yaml", ".pre-commit-config.yaml"], tmp_path)
    path = a_path(tmp_path)
    command = [pre_commit, "run", "--files", "job.yaml", "spotwright.yaml"]
    first = run(command, tmp_path, PATH=path)
    placed = (tmp_path / "job.yaml").read_text()
    run(["git", "add", "job.yaml"], tmp_path)
    second = run(command, tmp_path, PATH=path)

    assert first.returncode == 1
    assert "files were modified by this hook" in first.stdout
    assert "tolerations:" in placed
    assert second.returncode == 0, second.stdout
    assert (tmp_path / "spotwright.yaml").read_text() == CONFIG
