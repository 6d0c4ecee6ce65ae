"""What a pod of a Job, a TrainJob or an Argo step has so that its code runs there unchanged."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests import plain_yaml
from tests.kinds.jobs.jobs import a_job
from tests.placing.placed import FILE, Outcome, a_config, at_path, place

from spotwright.checkpoint_file import checkpoint_file
from spotwright.cli import cli
from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.context import PlaceOptions

GOLDEN = Path(__file__).parents[1] / "golden"
CHECKPOINT = "{default: {spot: prefer, checkpoint: 'pvc://ckpt'}}"
FILE_IN_POD = "/spotwright/library/spotwright_checkpoint.pyz"
INLINE = """
        command: [python3, -c]
        args:
        - |
          from spotwright.checkpoint import Checkpoint
          Checkpoint()
"""


def placed(text: str, package: str = "", policy: str = CHECKPOINT, **target: str) -> Outcome:
    values = {"kubernetes": "1.33", "argo": "4.0", **({"package": package} if package else {}), **target}
    return place(text, policy, target=str(values))


def container(outcome: Outcome) -> dict[str, Any]:
    return dict(at_path(outcome.value, "spec.template.spec.containers.0"))


def variables(outcome: Outcome) -> dict[str, Any]:
    return {item["name"]: item.get("value") for item in container(outcome)["env"]}


def test_a_pod_has_its_uid_and_no_attempt_number() -> None:
    outcome = place(a_job(), "{default: {spot: prefer}}")

    env = {item["name"]: item for item in at_path(outcome.value, "spec.template.spec.containers.0.env")}
    assert env["SPOTWRIGHT_POD_UID"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert "SPOTWRIGHT_ATTEMPT" not in env


def test_a_config_map_in_front_of_the_job_brings_the_library() -> None:
    outcome = placed(a_job(), "embedded")
    [config_map] = outcome.added

    assert config_map["kind"] == "ConfigMap"
    assert base64.b64decode(config_map["binaryData"]["spotwright_checkpoint.pyz"]) == checkpoint_file()
    assert len(plain_yaml.dump(config_map)) < 1 << 20  # the limit of a ConfigMap
    volumes = {volume["name"]: volume for volume in at_path(outcome.value, "spec.template.spec.volumes")}
    assert volumes["spotwright-library"] == {
        "name": "spotwright-library",
        "configMap": {"name": config_map["metadata"]["name"]},
    }
    mounts = {mount["name"]: mount["mountPath"] for mount in container(outcome)["volumeMounts"]}
    assert (
        f"{mounts['spotwright-library']}/spotwright_checkpoint.pyz" == variables(outcome)["PYTHONPATH"] == FILE_IN_POD
    )
    assert outcome.reports("note", config_map["metadata"]["name"], "PYTHONPATH")


def test_the_config_map_is_in_the_namespace_of_the_job() -> None:
    [config_map] = placed(a_job(metadata="{name: train, namespace: team}"), "embedded").added

    assert config_map["metadata"]["namespace"] == "team"


def test_all_pods_mount_the_config_map_of_their_namespace_where_it_has_one() -> None:
    done = CliRunner().invoke(cli, ["checkpoint-file", "--config-map"], standalone_mode=False)
    shared = json.loads(done.output)
    outcome = placed(a_job(), "configmap")

    assert base64.b64decode(shared["binaryData"]["spotwright_checkpoint.pyz"]) == checkpoint_file()
    assert (outcome.added, library_names(outcome)) == ([], [shared["metadata"]["name"]])
    assert variables(outcome)["PYTHONPATH"] == FILE_IN_POD
    assert outcome.reports("note", shared["metadata"]["name"], "make it there once")


def library_names(outcome: Outcome) -> list[str]:
    """The ConfigMaps that the Jobs of a file mount."""
    jobs = [document for document in outcome.documents if document["kind"] == "Job"]
    volumes = [volume for job in jobs for volume in at_path(job, "spec.template.spec.volumes")]
    return [volume["configMap"]["name"] for volume in volumes if volume["name"] == "spotwright-library"]


def test_each_object_has_a_config_map_of_its_own_so_that_deleting_one_file_breaks_no_other() -> None:
    one, other = a_job(), a_job(metadata="{name: other}")
    in_two_files = [library_names(placed(text, "embedded")) for text in (one, other)]
    both = placed(f"{one}---\n{other}", "embedded")

    assert in_two_files[0] != in_two_files[1]
    assert library_names(both) == [*in_two_files[0], *in_two_files[1]]
    assert sorted(document["metadata"]["name"] for document in both.added) == sorted(library_names(both))


def test_an_object_of_another_kind_with_the_same_name_has_a_config_map_of_its_own() -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: train}\nspec:\n  containers: [{name: main, image: x}]\n"
    [job_map], [pod_map] = (placed(text, "embedded").added for text in (a_job(), pod))

    assert job_map["metadata"]["name"] != pod_map["metadata"]["name"]


def test_a_config_map_that_somebody_changed_is_left_and_said() -> None:
    text = placed(a_job(), "embedded").text
    documents = list(plain_yaml.load_all(text))
    documents[0]["binaryData"]["more"] = "eA=="
    left = unplace_text(plain_yaml.dump_all(documents), FILE)

    assert [document["kind"] for document in plain_yaml.load_all(left.text)] == ["ConfigMap", "Job"]
    assert any("was changed since it was added" in str(finding) for finding in left.findings)


def test_a_path_in_the_image_goes_into_the_python_path_alone() -> None:
    outcome = placed(a_job(), "/opt/spotwright.whl")

    assert outcome.added == []
    assert variables(outcome)["PYTHONPATH"] == "/opt/spotwright.whl"


def test_a_python_path_of_the_user_stays_and_the_way_out_is_named() -> None:
    text = a_job().rstrip() + "\n        env: [{name: PYTHONPATH, value: /app}]\n"
    outcome = placed(text, "embedded")

    assert variables(outcome)["PYTHONPATH"] == "/app"
    assert outcome.added == []
    assert outcome.reports("warning", f"append :{FILE_IN_POD}")


@pytest.mark.parametrize("value", [FILE_IN_POD, f"/app:{FILE_IN_POD}"])
def test_a_python_path_that_names_the_library_is_enough(value: str) -> None:
    text = a_job().rstrip() + f"\n        env: [{{name: PYTHONPATH, value: '{value}'}}]\n"
    outcome = placed(text, "embedded")

    assert variables(outcome)["PYTHONPATH"] == value
    assert len(outcome.added) == 1


def test_pods_that_keep_no_checkpoints_get_no_library() -> None:
    assert placed(a_job(), "embedded", "{default: {spot: prefer}}").added == []


def test_pods_whose_command_imports_it_get_it_without_a_place_for_checkpoints() -> None:
    assert placed(a_job().rstrip() + INLINE, "embedded", "{default: {spot: prefer}}").added != []


@pytest.mark.parametrize("package", ["", "0.1.0"])
def test_a_command_that_imports_it_is_warned_of_where_nothing_brings_it(package: str) -> None:
    outcome = placed(a_job().rstrip() + INLINE, package)

    assert outcome.reports("warning", "its image must have it", "package: image", "package: embedded")
    assert not placed(a_job(), package).reports("its image must have it")
    assert not placed(a_job().rstrip() + INLINE, "image").reports("its image must have it")


@pytest.mark.parametrize(
    "case",
    [
        "workflow",
        "cronworkflow",
        "workflowtemplate",
        "trainjob-2.3",
        "trainjob-2.2",
        "pytorchjob",
        "jobset",
        "katib-job",
    ],
)
def test_every_kind_of_pod_mounts_the_library_and_finds_it(case: str) -> None:
    folder = GOLDEN / case
    beside = (folder / "with.yaml").read_text() if (folder / "with.yaml").exists() else ""
    trainer = case.rpartition("-")[2] if "trainjob" in case else "2.3"
    target = f"{{kubernetes: '1.33', argo: '4.0', trainer: '{trainer}', package: embedded}}"
    outcome = place((folder / "in.yaml").read_text(), CHECKPOINT, beside=beside, target=target)
    text = outcome.text.replace('"', "")

    assert "ConfigMap" in [document["kind"] for document in outcome.added]
    for part in ("mountPath: /spotwright/library", f"value: {FILE_IN_POD}", "name: spotwright-library"):
        assert part in text


def test_a_command_whose_saves_would_go_with_the_pod_is_warned_of() -> None:
    text = a_job().rstrip() + INLINE

    assert placed(text, "image", "{default: {spot: prefer}}").reports("warning", "its code calls Checkpoint()")
    assert not placed(text, "image").reports("calls Checkpoint()")


def test_a_file_that_cannot_hold_a_second_document_names_the_command_for_the_config_map() -> None:
    config = a_config(CHECKPOINT, "{kubernetes: '1.33', package: embedded}")
    placement = place_text(a_job(), FILE, config, options=PlaceOptions(may_add=False))

    assert any("kubectl create configmap spotwright-checkpoint-" in str(each) for each in placement.findings)
