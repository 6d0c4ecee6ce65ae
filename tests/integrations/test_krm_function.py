"""The KRM function: a ResourceList in, the same list with placed items out; and kustomize, which starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.integrations.projects import CONFIG, JOB, a_path, run, tool

import spotwright
from spotwright.cli.krm_function import krm_function
from spotwright.errors import InputError

SPOT = "kubernetes.azure.com/scalesetpriority"
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}


def a_list(*items: Any, spec: Any = None, **fields: Any) -> str:
    function = {"apiVersion": "spotwright.dev/v1", "kind": "Place", "metadata": {"name": "place"}, "spec": spec}
    whole = {"apiVersion": "config.kubernetes.io/v1", "kind": "ResourceList", "functionConfig": function}
    return yaml.safe_dump({**whole, "items": list(items), **fields})


def called(given: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The list that comes back."""
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(krm_function, input=given, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    answer: dict[str, Any] = yaml.safe_load(result.stdout)
    return answer


def test_items_are_placed_by_the_policy_of_the_function_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = yaml.safe_load(JOB)
    answer = called(a_list(job, SERVICE, spec=yaml.safe_load(CONFIG)), tmp_path, monkeypatch)
    placed, service = answer["items"]

    assert placed["spec"]["template"]["spec"]["tolerations"][0]["key"] == SPOT
    assert service == SERVICE
    assert spotwright.unplace(placed) == job
    assert answer["functionConfig"]["kind"] == "Place"


def test_findings_are_results_about_their_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}}
    earlier = [{"message": "of another function", "severity": "info"}]
    answer = called(a_list(pod, spec=yaml.safe_load(CONFIG), results=earlier), tmp_path, monkeypatch)
    warnings = [one for one in answer["results"] if one["severity"] == "warning"]

    assert answer["results"][0] == earlier[0]
    assert warnings[0]["resourceRef"] == {"apiVersion": "v1", "kind": "Pod", "name": "p"}
    assert "use a Job" in warnings[0]["message"]


@pytest.mark.parametrize("spec", [None, {"config": "other.yaml"}])
def test_the_configuration_may_be_a_file(spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ("other.yaml" if spec else "spotwright.yaml")).write_text(CONFIG)
    [placed] = called(a_list(yaml.safe_load(JOB), spec=spec), tmp_path, monkeypatch)["items"]

    assert placed["spec"]["template"]["spec"]["tolerations"][0]["key"] == SPOT


def test_a_document_that_placement_adds_is_an_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = yaml.safe_load(CONFIG.replace("timeout: 1h", "timeout: 1h, checkpoint: 's3://b'"))
    items = called(a_list(yaml.safe_load(JOB), spec={**spec, "target": {"package": "embedded"}}), tmp_path, monkeypatch)

    assert [item["kind"] for item in items["items"]] == ["ConfigMap", "Job"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (JOB, "expected a ResourceList of config.kubernetes.io/v1"),
        ("a: [", "standard input: not valid YAML"),
        (a_list().replace("items: []", "items: 3"), "items: expected a list of objects"),
        (a_list(spec=3), "spec: expected a configuration as in spotwright.yaml, found 3"),
        (a_list(spec={"config": "a", "policy": {}}), "spec.config: expected only the path of a file"),
        (a_list(spec={"polices": {}}), "functionConfig.spec"),
    ],
)
def test_other_input_is_refused_with_what_was_expected(
    given: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError) as refused:
        called(given, tmp_path, monkeypatch)

    assert message in str(refused.value)


KUSTOMIZATION = "resources: [job.yaml]\ntransformers: [place.yaml]\n"
FUNCTION = """\
apiVersion: spotwright.dev/v1
kind: Place
metadata:
  name: place
  annotations:
    config.kubernetes.io/function: |
      exec:
        path: ./place.sh
"""


def test_kustomize_places_what_it_builds(tmp_path: Path) -> None:
    kustomize = tool("kustomize")
    files = {"kustomization.yaml": KUSTOMIZATION, "place.yaml": FUNCTION, "job.yaml": JOB, "spotwright.yaml": CONFIG}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "place.sh").write_text("#!/bin/sh\nexec spotwright krm-function\n")
    (tmp_path / "place.sh").chmod(0o755)
    done = run([kustomize, "build", "--enable-alpha-plugins", "--enable-exec", "."], tmp_path, PATH=a_path(tmp_path))

    assert done.returncode == 0, done.stderr
    placed = yaml.safe_load(done.stdout)
    assert placed["spec"]["template"]["spec"]["tolerations"][0]["key"] == SPOT
    assert spotwright.unplace(placed) == yaml.safe_load(JOB)
