"""The runnable examples of the how-to pages work as their page says."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator
from mcp import Client, StdioServerParameters
from tests.docs.pages import ROOT, blocks, same, walk
from tests.kubeflow.flows import Flow, Try
from tests.kubeflow.stand_in import Step, serving

pytestmark = pytest.mark.slow

HOW_TO = ROOT / "docs" / "how-to"


def said(folder: Path, *command: str) -> str:
    """The output of a command, run by this interpreter in a folder."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_the_training_that_saves_is_interrupted_and_does_nothing_twice(tmp_path: Path) -> None:
    page = blocks(HOW_TO / "survive-interruptions.md")
    (tmp_path / "training.py").write_text(page[0].text)
    (command,) = [found[1] for block in page if (found := re.match(r"spotwright (run training\.py .*)\n", block.text))]

    (task,) = json.loads(said(tmp_path, "-m", "spotwright", *command.split(), "--json"))["tasks"]

    assert [attempt["cause"] for attempt in task["attempts"]] == ["interrupted", "interrupted", "succeeded"]
    assert [attempt["kept"]["low"] > 0.9 for attempt in task["attempts"]] == [True] * 3


def test_the_client_of_the_page_about_agents_finds_the_tools_that_it_lists(tmp_path: Path) -> None:
    page = HOW_TO / "ask-from-agents-and-editors.md"
    (settings,) = [json.loads(block.text) for block in blocks(page) if block.language == "json"]
    entry = settings["mcpServers"]["spotwright"]
    assert entry["command"] == "spotwright"

    async def tools() -> set[str]:
        words = ["-m", "spotwright", *entry["args"]]
        async with Client(StdioServerParameters(command=sys.executable, args=words, cwd=tmp_path)) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    rows = re.findall(r"^\| (`.*?) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert asyncio.run(tools()) == {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_schema_of_the_page_about_editors_takes_its_example(tmp_path: Path) -> None:
    page = blocks(HOW_TO / "ask-from-agents-and-editors.md")
    (command,) = [found[1] for block in page if (found := re.match(r"spotwright (.*) > spotwright", block.text))]
    (example,) = [yaml.safe_load(block.text) for block in page if block.language == "yaml"]

    assert Draft7Validator(json.loads(said(tmp_path, "-m", "spotwright", *command.split()))).is_valid(example)


def test_the_script_that_runs_its_own_pipeline_prints_its_output(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(blocks(HOW_TO / "use-from-python.md")[0].text)

    assert said(tmp_path, "script.py").splitlines()[-1] == "succeeded {'Output': 16}"


def test_the_commands_of_the_page_about_checkpoints_print_what_it_shows(tmp_path: Path) -> None:
    for step, printed in walk(HOW_TO / "checkpoint.md", tmp_path):
        assert same(step.output, printed), f"{step.command}\n{printed}"
        assert ("100 steps: -10.806" in printed) == ("train.py" in step.command)


@pytest.mark.long
def test_the_files_and_the_model_of_the_page_about_checkpoints_come_back(tmp_path: Path) -> None:
    page = [block.text for block in blocks(HOW_TO / "checkpoint.md") if block.language == "python"]
    (files,), (model,) = ([text for text in page if word in text] for word in ("Directory(", "SGDClassifier("))
    (tmp_path / "files" / "work" / "tokenizer").mkdir(parents=True)
    (tmp_path / "files" / "work" / "tokenizer" / "words").write_text("a b c")
    (tmp_path / "files" / "work" / "log.txt").write_text("so far")
    (tmp_path / "model").mkdir()
    (tmp_path / "files.py").write_text(files)
    (tmp_path / "model.py").write_text(model)

    said(tmp_path / "files", str(tmp_path / "files.py"))
    (tmp_path / "files" / "work" / "tokenizer" / "words").write_text("lost")
    said(tmp_path / "files", str(tmp_path / "files.py"))
    assert (tmp_path / "files" / "work" / "tokenizer" / "words").read_text() == "a b c"
    first = said(tmp_path / "model", str(tmp_path / "model.py"))
    assert said(tmp_path / "model", str(tmp_path / "model.py")) == first
    assert float(first.split()[-1]) > 0.8


def test_the_commands_of_the_page_about_kueue_print_what_it_shows(tmp_path: Path) -> None:
    steps = list(walk(HOW_TO / "cluster" / "use-kueue.md", tmp_path))

    assert len(steps) == 2
    for step, printed in steps:
        assert same(step.output, printed), f"line {step.line}: {step.command}\n{printed}"


def test_the_page_about_placing_shows_the_values_and_enforcers_that_explain_prints(tmp_path: Path) -> None:
    (tmp_path / "spotwright.yaml").write_text(
        "version: 1\npools:\n  a: {capacity: spot, provider: aks}\n  b: {capacity: on-demand, provider: aks}\npolicy:\n"
        "  default: {spot: prefer, interruptions: {max: 4}, fall_back_after: 2, errors: {retries: 0}}\n"
    )
    (tmp_path / "job.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  template:\n    spec:\n"
        "      containers: [{name: main, image: python}]\n"
    )
    shown = next(block.text for block in blocks(HOW_TO / "place-manifests.md") if "enforced by" in block.text)

    assert same(shown.partition("\n")[2], said(tmp_path, "-m", "spotwright", "explain", "job.yaml"))


@pytest.mark.long
def test_the_page_from_laptop_to_cluster_prints_what_it_shows(tmp_path: Path) -> None:
    page = HOW_TO / "from-laptop-to-cluster.md"
    for number in range(3):  # a busy machine may end the step before its node is taken
        folder = tmp_path / str(number)
        folder.mkdir()
        wrong = [
            f"$ {step.command}\n{printed}" for step, printed in walk(page, folder) if not same(step.output, printed)
        ]
        if not wrong:
            break
    assert not wrong, "\n".join(wrong)
    assert "checkpoints" in (folder / "pipeline.yaml").read_text()


def test_the_pipeline_from_laptop_to_cluster_runs_on_a_server_of_kfp(tmp_path: Path) -> None:
    page = blocks(HOW_TO / "from-laptop-to-cluster.md")
    for block in page:
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    (words,) = [
        found[1].split()
        for block in page
        if (found := re.search(r"^spotwright (run .*--on kfp.*)$", block.text, re.MULTILINE))
    ]
    flow = Flow()
    flow.task("train", Try("Succeeded", "", "n1", 1, 4))

    with serving([Step("RUNNING", Flow()), Step("SUCCEEDED", flow.end())]) as server:
        words[words.index("--host") + 1] = server.url
        printed = said(tmp_path, "-m", "spotwright", *words)
        [uploaded] = server.texts.values()

    assert printed.splitlines()[-1].startswith("Run on-kfp succeeded")
    assert "pvcMount" in uploaded
    assert "kubernetes.azure.com/scalesetpriority" in uploaded
    assert "on-kfp" in said(tmp_path, "-m", "spotwright", "show", "on-kfp")
