"""place -R: the manifests of a folder, without what is no Kubernetes object, a chart or a patch; equal findings are counted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.e2e.project import Project

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  containers: [{name: main, image: "python:3.11"}]
"""
POOLS = """\
pools:
  spotpool: {capacity: spot, provider: eks}
  agentpool: {capacity: on-demand, provider: eks}
policy: {default: {spot: require}}
"""


@pytest.fixture
def folder(project: Project) -> Path:
    """The folder of manifests, with one Pod in a folder of its own."""
    written(project.folder / "work" / "spotwright.yaml", f"version: 1\n{POOLS}")
    return written(project.folder / "work" / "team" / "pod.yaml", POD).parents[1]


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_manifests_of_all_folders_are_placed_and_unplaced_in_place(project: Project, folder: Path) -> None:
    done = project.here("place", "-R", "work", "--in-place")
    placed = (folder / "team" / "pod.yaml").read_text()
    project.here("unplace", "-R", "work", "--in-place")

    assert done.code == 0, done.err
    assert "nodeAffinity" in placed
    assert (folder / "team" / "pod.yaml").read_text() == POD


def test_an_output_folder_keeps_the_folders(project: Project, folder: Path) -> None:
    written(folder / "other" / "pod.yaml", POD.replace("NAME", "other"))
    done = project.here("place", "-R", "work", "-o", "out")

    assert done.code == 0, done.err
    assert sorted(str(path.relative_to(project.folder)) for path in project.folder.glob("out/**/*.yaml")) == [
        "out/other/pod.yaml",
        "out/team/pod.yaml",
    ]


def test_what_is_no_kubernetes_object_is_skipped_and_counted(project: Project, folder: Path) -> None:
    written(folder / "values.yaml", "replicas: 3\n")
    written(folder / "package.json", '{"name": "web"}\n')
    written(folder / ".git" / "config.yaml", "a: [\n")
    done = project.here("place", "-R", "work")

    assert done.code == 0, done.err
    assert "work: note: skipped files without a Kubernetes object: 2\n" in done.err
    assert "replicas" not in done.out


def test_equal_findings_of_300_objects_are_one_line_with_their_number(project: Project, folder: Path) -> None:
    shutil.rmtree(folder / "team")
    for number in range(300):
        written(folder / f"{number:03}.yaml", POD.replace("NAME", f"pod-{number}"))
    done = project.here("place", "-R", "work")

    assert done.err.splitlines() == [
        "work/000.yaml:2: warning: a bare Pod is not scheduled again after an interruption; use a Job (and 299 more like it)",
        "placed 300 roles in 300 files, 300 of them on spot (300 warnings)",
    ]


def test_objects_of_one_kind_that_is_not_placed_are_one_line(project: Project, folder: Path) -> None:
    services = [f"apiVersion: v1\nkind: Service\nmetadata: {{name: web-{number}}}\n" for number in range(5)]
    written(folder / "services.yaml", "---\n".join(services))
    done = project.here("place", "-R", "work")

    assert sum("Service" in line for line in done.err.splitlines()) == 1
    assert "Service web-0 (v1): this kind is not placed; it stays unchanged (and 4 more like it)" in done.err


def test_the_templates_of_a_chart_stay_unchanged_and_must_be_rendered(project: Project, folder: Path) -> None:
    written(folder / "chart" / "Chart.yaml", "name: web\nversion: 1.0.0\n")
    text = POD.replace("metadata:", "{{- if .Values.on }}\nmetadata:") + "{{- end }}\n"
    template = written(folder / "chart" / "templates" / "pod.yaml", text)
    done = project.here("place", "-R", "work", "--in-place")

    assert done.code == 0, done.err
    assert (
        "work/chart: warning: templates of this chart that stay unchanged: 1; render it first: helm template work/chart |"
        in done.err
    )
    assert template.read_text() == text


def test_a_template_outside_of_a_chart_is_named(project: Project, folder: Path) -> None:
    written(folder / "pod.yaml", POD.replace("spec:", "{{- with .Values }}\nspec:") + "{{- end }}\n")
    done = project.here("place", "-R", "work")

    assert done.code == 0, done.err
    assert (
        "work/pod.yaml: warning: a template stays unchanged: render it first: helm template CHART | spotwright place -"
        in done.err
    )


def test_patches_of_a_kustomization_stay_unchanged_with_a_note(project: Project, folder: Path) -> None:
    written(folder / "over" / "kustomization.yaml", "resources: [../team]\npatches: [{path: patch.yaml}]\n")
    patch = written(folder / "over" / "patch.yaml", POD)
    done = project.here("place", "-R", "work", "--in-place")

    assert "work/over/kustomization.yaml: note: its patches stay unchanged (patch.yaml): place the result" in done.err
    assert "kustomize build work/over | spotwright place -" in done.err
    assert patch.read_text() == POD


def test_a_mistake_in_one_file_is_refused_with_its_line(project: Project, folder: Path) -> None:
    written(folder / "zz.yaml", "apiVersion: v1\nkind: Pod\nspec: {containers: [\n")
    done = project.here("place", "-R", "work", "--in-place")

    assert done.code == 2
    assert "work/zz.yaml:4: not valid YAML" in done.err
    assert (folder / "team" / "pod.yaml").read_text() == POD


@pytest.mark.usefixtures("folder")
def test_a_folder_without_the_option_is_refused_with_its_name(project: Project) -> None:
    done = project.here("place", "work")

    assert done.code == 2
    assert "work: this is a folder: -R takes all its manifests" in done.err


def test_a_folder_without_manifests_is_named(project: Project, folder: Path) -> None:
    shutil.rmtree(folder / "team")
    written(folder / "values.yaml", "replicas: 3\n")
    done = project.here("place", "-R", "work")

    assert done.code == 0, done.err
    assert done.err.splitlines() == [
        "work: warning: no manifest in this folder can be placed",
        "work: note: skipped files without a Kubernetes object: 1",
        "no object was placed",
    ]
