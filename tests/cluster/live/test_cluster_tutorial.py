"""The tutorial on a cluster is true: its files and commands, on the test bed instead of kind.

What differs is said here and nowhere else: the nodes are there already and get the labels of the page, images come from no
registry, the nodes have a taint of AKS, and the controller runs where the API server of the bed reaches it. `docker kill` cuts
the power.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from testbed.building.images import PYTHON
from testbed.faults import Faults
from testbed.settings import Settings
from tests.cluster.live.kube import Kube
from tests.cluster.reading.saves import is_saved
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "tutorial-cluster.md"
LABEL, TAINT = "example.com/pool", "spot=true:NoSchedule"
PLACES = [
    ("image: python:3.12-slim", f"image: {PYTHON}\n        imagePullPolicy: Never"),
    (f'taints: ["{TAINT}"]', f'taints: ["{TAINT}", "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"]'),
]
"""The content of the page's files, and the replacements on the test bed."""

SHELL = """
set -eu
export KUBECONFIG={kubeconfig}
kubectl() {{ {kubectl} "$@"; }}
kind() {{ :; }}
pip() {{ :; }}
docker() {{
    case $1 in
    exec) echo "default via 10.89.0.1 dev bed" ;;
    kill) (cd {root} && {python} -m testbed fault power-cut "$2") ;;
    esac
}}
spotwright() {{
    case $1 in
    controller) ip netns exec {namespace} {python} -m spotwright "$@" --kubeconfig {inside} ;;
    *) {python} -m spotwright "$@" ;;
    esac
}}
"""
"""The programs of the page as the test bed has them."""


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """The folder that all nodes see."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


@pytest.fixture
def nodes(kube: Kube, faults: Faults) -> Iterator[None]:
    """The nodes of the bed with the labels of the page; afterwards as they were."""
    names = {"n1": "regular", "n2": "spot", "n3": "spot"}
    for name, pool in names.items():
        kube.run("label", "node", name, f"{LABEL}={pool}", "--overwrite")
    yield
    for number in (2, 3):
        faults.restore(number)
    for name in names:
        kube.run("label", "node", name, f"{LABEL}-")
        found = kube.get("node", name) or {}
        if any(
            taint["key"] == "spot" for taint in found["spec"].get("taints", ())
        ):  # not on a node that registered anew
            kube.run("taint", "node", name, "spot:NoSchedule-")


class Terminal:
    """A shell in the folder of the tutorial."""

    def __init__(self, kube: Kube, bed: Settings, folder: Path, checkpoints: Path) -> None:
        self.folder, self._checkpoints = folder, checkpoints
        self._prelude = SHELL.format(
            kubeconfig=kube.kubeconfig,
            kubectl=shlex.quote(str(kube.program)),
            root=ROOT,
            python=shlex.quote(sys.executable),
            namespace=bed.namespace,
            inside=bed.inside_kubeconfig,
        )

    def write(self, name: str, text: str) -> None:
        """Write a file of the page."""
        for ours, theirs in PLACES:
            text = text.replace(ours, theirs)
        (self.folder / name).write_text(self._here(text), encoding="utf-8")

    def run(self, commands: str) -> str:
        """Type commands, and return their output."""
        done = subprocess.run(
            ["bash", "-c", self._prelude + self._here(commands)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, commands: str, log: Path) -> subprocess.Popen[bytes]:
        """Type commands, the last of which keeps running."""
        with log.open("wb") as output:
            return subprocess.Popen(
                ["bash", "-c", self._prelude + self._here(commands)],
                cwd=self.folder,
                stderr=output,
                start_new_session=True,
            )

    def _here(self, text: str) -> str:
        text = text.replace("charts/spotwright/crds", str(ROOT / "charts/spotwright/crds"))
        return text.replace("/tmp/checkpoints", str(self._checkpoints)).replace(  # noqa: S108 (the page's own)
            "hostPath: {path: /checkpoints}", f"hostPath: {{path: {self._checkpoints}}}"
        )


@contextmanager
def controller(terminal: Terminal, kube: Kube, commands: str) -> Iterator[None]:
    """The two processes of the page, while the block runs."""
    log = terminal.folder / "controller.log"
    process = terminal.start(commands, log)
    try:
        kube.wait(
            lambda: process.poll() is not None or is_ready(log.read_text("utf-8")),
            "the controller is ready",
            120,
        )
        assert process.poll() is None, log.read_text("utf-8")
        yield
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def test_the_training_goes_on_after_its_node_was_lost(
    kube: Kube, bed: Settings, tmp_path: Path, checkpoints: Path, nodes: None
) -> None:
    terminal = Terminal(kube, bed, tmp_path, checkpoints)
    commands = []
    for block in blocks(PAGE):
        if block.language == "sh":
            commands.append(block.text)
        elif block.file:
            terminal.write(block.file, block.text)
    cluster, install, team, apply, annotations, lose, read, away = commands
    try:
        terminal.run(cluster)
        with controller(terminal, kube, install.partition("activate\n")[2]):
            terminal.run(team)
            terminal.run(apply)
            kube.wait(lambda: is_saved(checkpoints / "train"), "a save", 180)
            log, _, _ = read.partition("spotwright logs last train 2")
            kube.wait(lambda: "begins at step" in terminal.run(log), "the end of the log is recorded", 180)
            assert '"spotwright.dev/rung":"spot,regular"' in terminal.run(annotations).replace(": ", ":")
            assert kube.list("pods", "team-a")[0]["spec"]["nodeName"] in {"n2", "n3"}
            terminal.run(lose.replace(" --watch", ""))
            kube.wait(lambda: kube.run("-n", "team-a", "get", "job", "train").find("1/1") > 0, "the Job is done", 400)
            shown = kube.wait(lambda: all_there(terminal.run(read)), "the run is recorded", 60)
        first, second = shown.split("begins at step ")[1:]
        assert first.startswith("0\n")
        assert int(second.split()[0]) > 0
        assert "the sum is 19900" in second
    finally:
        terminal.run(away)
        kube.run("delete", "namespace", "spotwright", "team-a", "--ignore-not-found", "--wait=false")


def is_ready(log: str) -> bool:
    """Whether reviews are answered and the recorder has read everything."""
    return " ready\n" in log and "all streams are complete" in log


def all_there(shown: str) -> str:
    """The output of the page's last commands once the run has succeeded; empty before."""
    return shown if "succeeded" in shown and "saved" in shown else ""
