"""Builds beside a running cluster: tests begin without them, those that need one get it, and they end with the cluster."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import builder
from testbed.building.builds import Cache
from testbed.cluster import bring_down, bring_up, build_first
from testbed.machine import leftovers
from testbed.machine.processes import Processes, wait_until
from testbed.settings import Settings
from tests.cluster.conftest import Measured, Require, kube_of
from tests.cluster.live.kube import Kube, has_condition, job, pod_spec
from tests.cluster.live.workloads import make

pytestmark = pytest.mark.cluster

GO = """\
#!/bin/sh
case $1 in
version) echo go version go1.99.0 ;;
mod) mkdir -p vendor/github.com/argoproj/argo-workflows/v3/workflow/executor/osspecific ;;
list) echo '{"Dir": "'$(echo CACHE/${PWD##*/}-manifests-v*)'"}' ;;
build)
    echo $$ >PID.new; mv PID.new PID
    until [ -e ENOUGH ]; do sleep 0.1; done
    while [ "$1" != -o ]; do shift; done
    cp CACHE/${2##*/}-v*/${2##*/} "$2" ;;
esac
"""
"""A Go that builds until a file exists, and then copies the output of the real one."""

ENDED = 120.0  # seconds for a workload, on a busy machine


class Building:
    """A cluster that was started while Argo was not built, beside which it is being built."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.pid, self.enough = settings, folder / "pid", folder / "enough"
        self.said: list[str] = []

    def say(self, line: str) -> None:
        """Let the build end as soon as somebody waits for it."""
        self.said.append(line)
        if line.startswith("waiting for argo"):
            assert not self.enough.exists()
            self.enough.touch()


@pytest.fixture
def building(
    bed: Settings, require: Require, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: Measured
) -> Iterator[Building]:
    require("workflows.argoproj.io")
    cache, go = tmp_path / "cache", tmp_path / "bin" / "go"
    known = [Cache(bed.cache).entry(item) for item in Cache(Path("/nowhere")).missing(())] + [bed.cache / "images"]
    for path in known:
        shutil.copytree(path, cache / path.name, symlinks=True, copy_function=os.link)
    for image in (cache / "images").glob("argoexec-*"):
        image.unlink()
    go.parent.mkdir()
    made = Building(dataclasses.replace(bed, name="swsecond", port=bed.port + 1, nodes=1, cache=cache), tmp_path)
    made.settings = dataclasses.replace(made.settings, controllers=("argo",))
    text = GO.replace("CACHE", str(bed.cache)).replace("PID", str(made.pid)).replace("ENOUGH", str(made.enough))
    go.write_text(text)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    try:
        later = build_first(made.settings, made.say)
        assert "argo" in later
        began = time.monotonic()
        bring_up(made.settings, made.say, later)
        measured("a cluster of one node, without the controller that is built beside it: up", time.monotonic() - began)
        wait_until(made.pid.exists, "the build has begun", 60)
        yield made
    finally:
        bring_down(made.settings)


def test_a_test_that_needs_no_controller_runs_meanwhile_and_who_needs_one_waits_for_it(
    building: Building, measured: Measured
) -> None:
    kube = kube_of(building.settings, building.say)
    kube.apply(job("work", "default", pod_spec(kube.container("true"))))
    kube.wait(lambda: has_condition(kube.get("job", "work"), "Complete"), "the Job is Complete", ENDED)
    assert kube.get("crd", "workflows.argoproj.io") is None
    began = time.monotonic()
    assert kube.lacks("workflows.argoproj.io") == ""
    assert "argo" not in builder.coming(building.settings)
    measured("from the end of a build until its controller has run on the cluster", time.monotonic() - began)
    assert make(kube, "workflow", "default", "true")
    kube.wait(lambda: succeeded(kube), "the Workflow has succeeded, with an image that came later", ENDED)


def succeeded(kube: Kube) -> bool:
    return ((kube.get("workflow", "workflow") or {}).get("status") or {}).get("phase") == "Succeeded"


def test_the_end_of_the_cluster_ends_the_build_beside_it(building: Building) -> None:
    bring_down(building.settings)
    assert leftovers.find(building.settings) == []
    assert not Path(f"/proc/{building.pid.read_text().strip()}").exists()
    assert Processes(building.settings).names() == []
