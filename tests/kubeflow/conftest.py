"""A stand-in for Kubeflow Pipelines, and the command line in a folder with a pipeline."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.kubeflow.flows import Flow, Try
from tests.kubeflow.pipelines import POOLS, compiled, task
from tests.kubeflow.stand_in import StandIn, Step, serving

from spotwright.cli import kfp, main
from spotwright.kubeflow.following import Pauses

TWO_TASKS = {"train": task("train"), "evaluate": task("evaluate", model="train")}
"""A training, and an evaluation of its model."""


def two_tasks(*, retried: bool = True) -> list[Step]:
    """A run of them that succeeds; the first pod of the training fails."""
    model = {"model": "minio://mlpipeline/digits/model"}
    failed = Try("Failed", "main: Error (exit code 1)", "n1", 1, 3)
    first = Flow(retried=retried)
    first.task("train", Try("Running", began=1, ended=None))
    second = Flow(retried=retried)
    second.task("train", failed, Try("Running", host="n2", began=4, ended=None), artifacts=model)
    last = Flow(retried=retried)
    last.task("train", failed, Try("Succeeded", "", "n2", 4, 7), artifacts=model)
    last.task("evaluate", Try("Succeeded", "", "n3", 8, 9))
    return [Step("PENDING"), Step("RUNNING", first), Step("RUNNING", second), Step("SUCCEEDED", last.end())]


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Folder:
    """A folder with a pipeline, pools and runs, in which commands are given."""

    def __init__(self, path: Path, server: StandIn) -> None:
        self.path, self.server = path, server
        self.pipeline = path / "pipeline.yaml"
        self.pipeline.write_text(compiled(TWO_TASKS))
        (path / "spotwright.yaml").write_text(POOLS)

    def __call__(self, *words: str) -> Done:
        """Give a command, in this process: importing the SDK takes half a second each time."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.setattr("sys.argv", ["spotwright", *words])
            with pytest.raises(SystemExit) as ended:
                main()
        return Done(int(str(ended.value.code)), out.getvalue(), err.getvalue())

    def run(self, *words: str) -> Done:
        """``spotwright run --on kfp`` of the pipeline on the stand-in, under the name ``first``."""
        name = () if "--name" in words else ("--name", "first")
        host = () if "--host" in words else ("--host", self.server.url)
        return self("run", str(self.pipeline), "--on", "kfp", *host, *name, *words)


@pytest.fixture
def server() -> Iterator[StandIn]:
    """A server whose runs train and evaluate."""
    with serving(two_tasks()) as content:
        yield content


@pytest.fixture(autouse=True)
def nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the tests names no server, cluster or login."""
    for name in (
        "KF_PIPELINES_ENDPOINT",
        "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID",
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "SPOTWRIGHT_CONTROLLER",
        "SPOTWRIGHT_KFP_COOKIES",
        "SPOTWRIGHT_KFP_TOKEN",
        "SPOTWRIGHT_STATE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def folder(tmp_path: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A folder with a pipeline, in which the command line looks at runs without pauses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kfp, "Pauses", lambda: Pauses(0.0, 0.0, 0.0, 5.0))
    return Folder(tmp_path, server)
