"""``spotwright place -`` as Helm's post-renderer: the manifests of a chart are placed before Helm installs them."""

from __future__ import annotations

from pathlib import Path

import yaml
from tests.integrations.projects import CONFIG, JOB, a_path, run, tool


def a_chart(folder: Path) -> Path:
    """A chart with a Job and a Service."""
    templates = folder / "chart" / "templates"
    templates.mkdir(parents=True)
    (folder / "chart" / "Chart.yaml").write_text("apiVersion: v2\nname: trainer\nversion: 0.1.0\n")
    (templates / "job.yaml").write_text(JOB.replace("name: train", "name: {{ .Release.Name }}-train"))
    (templates / "service.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}\n")
    (folder / "spotwright.yaml").write_text(CONFIG)
    return folder / "chart"


def test_helm_places_what_it_renders(tmp_path: Path) -> None:
    helm = tool("helm")
    renderer = ["--post-renderer", "spotwright", "--post-renderer-args", "place", "--post-renderer-args", "-"]
    done = run([helm, "template", "night", a_chart(tmp_path), *renderer], tmp_path, PATH=a_path(tmp_path))

    assert done.returncode == 0, done.stderr
    objects = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    assert objects["Job"]["metadata"]["name"] == "night-train"
    assert objects["Job"]["spec"]["template"]["spec"]["tolerations"]
    assert "spotwright.dev/placed" in objects["Job"]["metadata"]["annotations"]
    assert set(objects) == {"Job", "Service"}


def test_what_cannot_be_placed_stops_helm_with_the_reason(tmp_path: Path) -> None:
    helm = tool("helm")
    chart = a_chart(tmp_path)
    (tmp_path / "spotwright.yaml").unlink()
    renderer = ["--post-renderer", "spotwright", "--post-renderer-args", "place", "--post-renderer-args", "-"]
    done = run([helm, "template", "night", chart, *renderer], tmp_path, PATH=a_path(tmp_path))

    assert done.returncode != 0
    assert "pools" in done.stderr
