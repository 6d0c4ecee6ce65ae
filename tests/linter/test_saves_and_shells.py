"""Where saves lie, and whether the shell around the work ends as it does: forms of one situation in several kinds."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in

from spotwright.linter.rule import ON_SPOT, job

_ARGO = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  entrypoint: main\n"
    "  volumes:\n  - {volume}\n  templates:\n  - name: main\n    nodeSelector: {{cloud.google.com/gke-spot: 'true'}}\n"
    "    container:\n      image: t\n      command: [python, train.py, --output_dir=/data/run, --resume]\n"
    "      volumeMounts: [{{name: v, mountPath: /data}}]\n"
)


def rules(text: str) -> set[str]:
    return {one.rule for one in found_in(text)}


def a_job(
    volume: str, words: str = "[train, --save_dir, /data/run]", mount: str = "{name: v, mountPath: /data}"
) -> str:
    return job(f"{ON_SPOT}volumes:\n- {volume}\n", container=f"command: {words}\nvolumeMounts: [{mount}]\n")


_LOST = [
    "{name: v, emptyDir: {}}",
    "{name: v, hostPath: {path: /mnt}}",
    "{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}",
    "{name: v, csi: {driver: inline.lvm.topolvm.io}}",
]


@pytest.mark.parametrize("volume", _LOST)
def test_saves_in_a_volume_that_goes_with_the_pod_or_node_are_found(volume: str) -> None:
    assert "checkpoint-in-emptydir" in rules(a_job(volume))
    assert "checkpoint-in-emptydir" in rules(_ARGO.format(volume=volume))


@pytest.mark.parametrize(
    "volume", ["{name: v, csi: {driver: file.csi.azure.com}}", "{name: v, persistentVolumeClaim: {claimName: c}}"]
)
def test_saves_in_a_volume_that_stays_are_not(volume: str) -> None:
    assert "checkpoint-in-emptydir" not in rules(a_job(volume)) | rules(_ARGO.format(volume=volume))


def test_a_claim_of_a_local_storage_class_goes_with_its_node() -> None:
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {storageClassName: %s}\n---\n"
    work = a_job("{name: v, persistentVolumeClaim: {claimName: c}}")
    assert "checkpoint-in-emptydir" in rules(claim % "local-path" + work)
    assert "checkpoint-in-emptydir" not in rules(claim % "premium" + work)


@pytest.mark.parametrize(
    "words",
    [
        '[bash, -c, "accelerate launch t.py --output_dir /data/o --resume_from_checkpoint latest"]',
        "[accelerate, launch, t.py, --output_dir=/data/o, --resume_from_checkpoint=latest]",
        "[python, t.py, trainer.save_dir=/data/o]",
    ],
)
def test_the_folder_is_read_from_scripts_and_overrides_too(words: str) -> None:
    assert "checkpoint-in-emptydir" in rules(a_job(_LOST[0], words))


def test_an_output_folder_alone_is_a_note_and_one_that_is_copied_is_nothing() -> None:
    assert "output-in-emptydir" in rules(a_job(_LOST[0], "[python, t.py, --output_dir, /data/o]"))
    copied = '[bash, -c, "python t.py --output_dir /data/o && aws s3 sync /data/o s3://b/o"]'
    assert not {"output-in-emptydir", "checkpoint-in-emptydir"} & rules(a_job(_LOST[0], copied))


@pytest.mark.parametrize(
    ("volume", "mount"),
    [
        ("{name: v, image: {reference: 'r/x:1'}}", "{name: v, mountPath: /data}"),
        ("{name: v, persistentVolumeClaim: {claimName: c, readOnly: true}}", "{name: v, mountPath: /data}"),
        ("{name: v, persistentVolumeClaim: {claimName: c}}", "{name: v, mountPath: /data, readOnly: true}"),
        ("{name: v, configMap: {name: c}}", "{name: v, mountPath: /data}"),
    ],
)
def test_a_read_only_place_of_saves_is_an_error(volume: str, mount: str) -> None:
    assert "saves-not-writable" in rules(a_job(volume, mount=mount))


def test_a_read_only_checkpoint_may_be_one_that_is_only_loaded() -> None:
    volume = "{name: v, persistentVolumeClaim: {claimName: c, readOnly: true}}"
    assert "saves-not-writable" not in rules(a_job(volume, "[python, t.py, --ckpt_dir=/data/llama]"))


def test_a_checkpoint_to_load_is_no_sign_of_saves() -> None:
    long = job(f"{ON_SPOT}activeDeadlineSeconds: 90000\n", container="command: [t, --resume_from_checkpoint, latest]\n")
    assert "no-checkpoint" in rules(long)


@pytest.mark.parametrize(
    "script",
    [
        "train | tee log",
        "set -e; train 2>&1 | grep -v warn",
        "train || true",
        "train || echo failed",
        "train; echo done",
        "train; sleep infinity",
        "train & wait",
        "cd /app && train; date",
    ],
)
@pytest.mark.parametrize("shell", ["[bash, -c", "[/bin/sh, -c", "[tini, --, bash, -c"])
def test_a_shell_that_hides_the_end_of_its_work_is_found(shell: str, script: str) -> None:
    assert "exit-code-swallowed" in rules(job(ON_SPOT, container=f'command: {shell}, "{script}"]\n'))


@pytest.mark.parametrize(
    "script",
    [
        "set -o pipefail; train | tee log",
        "set -e; train; echo done",
        "train && echo done",
        "train; rc=$?; echo done; exit $rc",
        "train & wait $!",
        "if true; then train; fi; echo x",
        "cat <<EOF | train\\nx\\nEOF",
        "echo 'a; b | tee c'; train",
    ],
)
def test_a_shell_that_ends_as_its_work_does_is_not(script: str) -> None:
    assert "exit-code-swallowed" not in rules(job(ON_SPOT, container=f'command: [bash, -c, "{script}"]\n'))


def test_the_options_of_the_shell_count() -> None:
    assert "exit-code-swallowed" not in rules(
        job(ON_SPOT, container="command: [bash, -o, pipefail, -c, 'train | tee log']\n")
    )
    assert "exit-code-swallowed" not in rules(job(ON_SPOT, container="command: [bash, -ec, 'train; echo done']\n"))


@pytest.mark.parametrize("words", ["[conda, run, -n, e, python, t.py]", "[bash, -c, 'npm start']"])
def test_a_runner_that_passes_no_sigterm_on_is_found(words: str) -> None:
    assert "sigterm-not-passed-on" in rules(job(ON_SPOT, container=f"command: {words}\n"))
