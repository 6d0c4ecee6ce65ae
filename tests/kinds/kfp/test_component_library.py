"""Components that import the checkpoint library bring it along, and a run of the file on this machine sees the user's command."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests import plain_yaml
from tests.kfp.builders import component, ir, python_container, task
from tests.kinds.kfp.compiled import LABEL, one_task, text_of
from tests.placing.placed import Outcome, place, refusal

import spotwright
from spotwright.checkpoint_file import FILE_NAME, checkpoint_file, config_map
from spotwright.kfp.placed_record import undo_placement
from spotwright.placing.documents import ManifestError

SOURCES = Path(spotwright.__file__).parents[1]
INSTALLS = (
    "PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet --no-warn-script-location --index-url http://i/simple "
    "--trusted-host i 'kfp==2.17.0' '--no-deps' && \"$0\" \"$@\"\n"
)
STARTS = (
    'program_path=$(mktemp -d)\n\nprintf "%s" "$0" > "$program_path/ephemeral_component.py"\n'
    '_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main --component_module_path "$program_path/ephemeral_component.py" "$@"\n'
)
SOURCE = "from kfp import dsl\n\ndef train():\n    from spotwright.checkpoint import Checkpoint\n    Checkpoint()\n"


def pipeline(source: str = SOURCE, installs: str = INSTALLS, starts: str = STARTS, image: str = "python:3.11") -> str:
    command = [*(["sh", "-c", installs] if installs else []), "sh", "-ec", starts, source]
    return with_command(command, ["--function_to_execute", "train"], image)


def with_command(command: list[str], args: list[str] | None = None, image: str = "python:3.11") -> str:
    spec = ir({"train": task("train")}, {"comp-train": component("train")})
    container = {"image": image, "command": command, "args": args or []}
    spec["deploymentSpec"] = {"executors": {LABEL: {"container": container}}}
    return text_of(spec)


def placed(text: str, package: str = "", policy: str = "{default: {spot: prefer}}") -> Outcome:
    target = f"{{kubernetes: '1.33'{f', package: {package!r}' if package else ''}}}"
    return place(text, policy, target=target)


def refused(text: str, package: str = "") -> str:
    """The message with which ``place`` refuses a pipeline."""
    with pytest.raises(ManifestError) as caught:
        placed(text, package)
    return str(caught.value)


def starts(outcome: Outcome) -> str:
    """The script that starts the executor."""
    command = outcome.documents[0]["deploymentSpec"]["executors"][LABEL]["container"]["command"]
    return next(part for part in command if "executor_main" in part)


@pytest.mark.parametrize("package", ["", "embedded"])
def test_the_library_is_embedded_in_front_of_the_script_that_starts_the_executor(package: str) -> None:
    outcome = placed(pipeline(), package)

    script = starts(outcome)
    assert script.startswith("if ! python3 -c 'import spotwright.checkpoint' 2>/dev/null; then\n")
    assert script.endswith(f'${{PYTHONPATH:+:$PYTHONPATH}}"\nfi\n{STARTS}')
    assert outcome.reports("train: the code imports spotwright.checkpoint", "target: {package: ...}")


def test_a_run_of_the_placed_file_on_this_machine_sees_the_users_command() -> None:
    pipeline_document, platform = placed(pipeline()).documents
    undo_placement("placed.yaml", pipeline_document, platform)

    assert pipeline_document == plain_yaml.load(pipeline())


def test_the_container_stays_below_the_limit_of_an_argument() -> None:
    assert len(starts(placed(pipeline()))) < 60_000
    assert (
        len(starts(placed(pipeline("import torch\n" + SOURCE)))) < 100_000
    )  # of 120,000, so that there is room for a program


def test_a_component_that_needs_no_spotwright_stays_as_it_is() -> None:
    outcome = placed(pipeline("def train():\n    print('spotwright')\n"))

    assert starts(outcome) == STARTS
    assert not outcome.reports("imports spotwright.checkpoint")


def test_the_library_comes_also_where_nobody_says_anything_about_spot() -> None:
    assert "import spotwright.checkpoint" in starts(placed(pipeline(), policy="{default: {errors: {retries: 1}}}"))


@pytest.mark.parametrize(
    ("package", "requirement"),
    [
        ("0.1.0", "spotwright-train==0.1.0"),
        (
            "https://wheels.example/spotwright-0.1.0-py3-none-any.whl",
            "https://wheels.example/spotwright-0.1.0-py3-none-any.whl",
        ),
    ],
)
def test_a_version_or_a_url_is_installed_with_the_index_of_the_component(package: str, requirement: str) -> None:
    first = starts(placed(pipeline(), package)).partition("\n")[0]

    assert first == (
        "PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet --no-warn-script-location --no-deps "
        f"--index-url http://i/simple --trusted-host i {requirement}"
    )


def test_a_path_in_the_image_goes_into_the_python_path() -> None:
    script = starts(placed(pipeline(), "/opt/spotwright_checkpoint.pyz"))

    assert script == "export PYTHONPATH=/opt/spotwright_checkpoint.pyz${PYTHONPATH:+:$PYTHONPATH}\n" + STARTS


def test_a_configmap_of_the_namespace_is_mounted_and_named_once() -> None:
    outcome = placed(pipeline(), "configmap")
    settings = outcome.documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"][LABEL]
    name = config_map()["metadata"]["name"]

    assert settings["configMapAsVolume"] == [
        {
            "mountPath": "/spotwright/library",
            "configMapName": name,
            "configMapNameParameter": {"runtimeValue": {"constant": name}},
        }
    ]
    assert outcome.reports("note", f"mount the ConfigMap {name}", "spotwright checkpoint-file --config-map | kubectl")


def test_a_component_with_a_mounted_library_finds_it_and_an_images_own_comes_first(tmp_path: Path) -> None:
    script = starts(placed(pipeline(), "configmap")).removesuffix(STARTS)
    mounted = tmp_path / "library"
    mounted.mkdir()
    (mounted / FILE_NAME).write_bytes(checkpoint_file())
    script = script.replace("/spotwright/library", str(mounted)).replace("python3", f"{sys.executable} -S")
    for own, seen in ((tmp_path / "nothing", mounted / FILE_NAME), (SOURCES, SOURCES)):
        shown = f"{script}{sys.executable} -S -c 'import spotwright.checkpoint as it; print(it.__file__)'\n"
        command = ["sh", "-ec", shown]
        found = subprocess.run(command, env={"PYTHONPATH": str(own)}, capture_output=True, text=True, check=True)
        assert found.stdout.startswith(str(seen))


def test_a_run_of_a_file_with_a_mounted_library_sees_the_users_settings() -> None:
    pipeline_document, platform = placed(pipeline(), "configmap").documents
    undo_placement("placed.yaml", pipeline_document, platform)

    assert pipeline_document == plain_yaml.load(pipeline())
    assert "configMapAsVolume" not in str(platform)


def test_nothing_is_added_where_the_image_has_the_library() -> None:
    outcome = placed(pipeline(), "image")

    assert starts(outcome) == STARTS
    assert not outcome.reports("imports spotwright.checkpoint")


@pytest.mark.parametrize(
    "requirement",
    [
        "spotwright",
        "spotwright==0.1.0",
        "spotwright @ http://x/spotwright.whl",
        "spotwright-train",
        "spotwright-train[s3]==0.1.0",
        "spotwright_train",
        "http://x/spotwright_train-0.1.0-py3-none-any.whl",
    ],
)
def test_packages_to_install_that_name_it_are_enough(requirement: str) -> None:
    installs = INSTALLS.replace("'--no-deps'", f"'--no-deps' && python3 -m pip install --quiet '{requirement}'")

    assert starts(placed(pipeline(installs=installs))) == STARTS


def test_an_index_or_a_package_of_a_similar_name_does_not_bring_it() -> None:
    installs = INSTALLS.replace("http://i/simple", "http://i/spotwright/simple").replace(
        "'kfp==", "'spotwright-extras' 'kfp=="
    )

    assert "import spotwright.checkpoint" in starts(placed(pipeline(installs=installs)))


def test_saves_that_would_go_with_the_pod_are_warned_of() -> None:
    without, with_place = (f"{{default: {{spot: prefer{more}}}}}" for more in ("", ", checkpoint: 'pvc://c'"))

    assert placed(pipeline(), policy=without).reports("warning", "train: its code calls Checkpoint()", "pvc://NAME")
    assert not placed(pipeline(), policy=with_place).reports("calls Checkpoint()")
    own = SOURCE.replace("Checkpoint()", "Checkpoint('s3://b/c')")
    assert not placed(pipeline(own), policy=without).reports("calls Checkpoint()")


@pytest.mark.parametrize(("url", "package"), [("s3://b/c", "s3fs"), ("gs://b/c", "gcsfs"), ("az://b/c", "adlfs")])
def test_the_package_of_an_object_store_is_asked_for(url: str, package: str) -> None:
    policy = f"{{default: {{spot: prefer, checkpoint: '{url}'}}}}"
    installs = INSTALLS.replace("'--no-deps'", f"'--no-deps' && python3 -m pip install '{package}'")

    assert placed(pipeline(), policy=policy).reports("warning", f"{url} needs the package {package}")
    assert not placed(pipeline(installs=installs), policy=policy).reports("needs the package")


def test_a_component_without_pip_gets_it_too() -> None:
    assert "import spotwright.checkpoint" in starts(placed(pipeline(installs="")))


def test_a_component_that_would_be_too_large_with_it_is_refused_with_the_ways_out() -> None:
    text = refusal(pipeline(SOURCE + "# " + "x" * 90_000), "{default: {spot: prefer}}")

    assert re.search(r"train: with the checkpoint library its container has \d+ characters", text)
    assert "package: VERSION" in text
    assert "package: image" in text


@pytest.mark.parametrize("package", ["", "0.1.0"])
def test_a_container_component_that_imports_it_is_warned_of(package: str) -> None:
    text = with_command(["python3", "-c", "from spotwright.checkpoint import Checkpoint"])

    assert placed(text, package).reports("warning", "its image must have it", "target: {package: image}")
    assert not placed(text, "image").reports("imports spotwright.checkpoint")


def test_a_pipeline_of_other_components_says_nothing_of_it() -> None:
    assert not place(one_task()).reports("checkpoint library")


def test_a_container_component_that_installs_it_is_not_warned_of() -> None:
    script = "pip install 'spotwright==0.1.0' && python3 -c 'from spotwright.checkpoint import Checkpoint'"

    assert not placed(with_command(["sh", "-c", script])).reports("imports spotwright.checkpoint")


RUNS_MORE = """\
import spotwright as spot

def train():
    spot.run('other.py')
    from spotwright.notices import metadata_services
"""


def test_code_that_imports_more_than_the_checkpoint_library_is_refused_with_the_ways_out() -> None:
    text = refused(pipeline(RUNS_MORE))

    assert (
        "train: its code imports spotwright.notices.metadata_services, spotwright.run, and the checkpoint library"
        in text
    )
    assert "add spotwright to its packages_to_install, or install spotwright in the image" in text
    assert "package: image" in text


@pytest.mark.parametrize("requirement", ["spotwright-train", "http://x/spotwright_train-0.1.0-py3-none-any.whl"])
def test_code_that_imports_more_is_refused_where_its_packages_name_only_the_library(requirement: str) -> None:
    installs = INSTALLS.replace("'--no-deps'", f"'--no-deps' && python3 -m pip install --quiet '{requirement}'")

    assert "the checkpoint library (spotwright-train) does not have that" in refused(pipeline(RUNS_MORE, installs))


def test_code_that_imports_more_is_refused_where_a_version_of_the_library_is_installed() -> None:
    assert "(spotwright-train) does not have that" in refused(pipeline(RUNS_MORE), "0.1.0")


@pytest.mark.parametrize("package", ["image", "https://x/spotwright-0.1.0-py3-none-any.whl", "/opt/spotwright.whl"])
def test_code_that_imports_more_is_placed_where_the_configuration_says_how_pods_get_it(package: str) -> None:
    assert placed(pipeline(RUNS_MORE), package).documents


def test_code_that_imports_more_is_placed_where_its_packages_name_spotwright() -> None:
    installs = INSTALLS.replace("'--no-deps'", "'--no-deps' && python3 -m pip install --quiet 'spotwright'")

    assert starts(placed(pipeline(RUNS_MORE, installs))) == STARTS


@pytest.mark.parametrize(
    "image", ["python:3.9", "docker.io/library/python:3.10-slim", "mirror.example/hub/python:3.8.20"]
)
@pytest.mark.parametrize("package", ["", "0.1.0"])
def test_an_image_with_an_older_python_is_refused(image: str, package: str) -> None:
    text = refused(pipeline(image=image), package)

    assert "train: its code imports spotwright, which needs Python 3.11" in text
    assert f"its image {image} has Python 3." in text
    assert "set base_image to python:3.11 or later" in text


@pytest.mark.parametrize("image", ["python:3.12", "python:3", "python@sha256:0", "team/python-gpu:3.9", "python:3.110"])
def test_an_image_that_may_have_a_newer_python_is_placed(image: str) -> None:
    assert "import spotwright.checkpoint" in starts(placed(pipeline(image=image)))


def test_an_older_image_is_placed_where_its_component_imports_nothing_or_the_image_is_said_to_have_it() -> None:
    assert starts(placed(pipeline("def train():\n    'from spotwright import run'\n", image="python:3.9")))
    assert starts(placed(pipeline(image="python:3.9"), "image")) == STARTS


def test_a_python_component_of_an_unknown_shape_is_refused() -> None:
    text = refused(pipeline(starts='exec other-executor "$@"\n'))

    assert "its command has a shape that cannot be extended" in text


@pytest.mark.parametrize(
    ("source", "imports"), [("from spotwright.checkpoint import Checkpoint", True), ("import os", False)]
)
def test_modules_that_are_embedded_in_a_component_count_too(source: str, imports: bool) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("helpers/training.py")
        entry.size = len(source)
        archive.addfile(entry, io.BytesIO(source.encode()))
    text = f"__KFP_EMBEDDED_ARCHIVE_B64 = '{base64.b64encode(packed.getvalue()).decode()}'\ndef train():\n    import training\n"

    assert ("import spotwright.checkpoint" in starts(placed(pipeline(text)))) == imports


def test_an_archive_that_cannot_be_read_adds_nothing() -> None:
    assert starts(placed(pipeline("__KFP_EMBEDDED_ARCHIVE_B64 = 'eA=='\ndef train(): ...\n"))) == STARTS


def with_library(count: int, *, in_a_loop: bool = False) -> str:
    """A pipeline of so many tasks whose code imports the library."""
    names = [f"train-{number}" for number in range(count)]
    tasks = {name: task(name) for name in names}
    components = {f"comp-{name}": component(name) for name in names}
    if in_a_loop:
        components["comp-loop"] = {
            "dag": {"tasks": tasks},
            "inputDefinitions": {"parameters": {"item": {"parameterType": "STRING"}}},
        }
        iterator = {"itemInput": "item", "items": {"raw": "[1, 2]"}}
        tasks = {"loop": {**task("loop"), "parameterIterator": iterator}}
    spec = ir(tasks, components)
    containers = {f"exec-{name}": {"container": python_container("train", SOURCE)} for name in names}
    spec["deploymentSpec"] = {"executors": containers}
    return text_of(spec)


@pytest.mark.parametrize(("count", "in_a_loop", "warns"), [(2, False, False), (3, False, True), (1, True, True)])
def test_more_tasks_with_the_library_than_a_workflow_has_room_for_are_warned_of(
    count: int, in_a_loop: bool, warns: bool
) -> None:
    text = with_library(count, in_a_loop=in_a_loop)
    told = placed(text).reports("warning", f"commands hold the library: {count}", "Argo takes 1000 kB")
    assert bool(told) == warns
    assert not placed(text, "configmap").reports("warning", "Argo takes")
    assert not placed(text, "0.1.0").reports("Argo takes")
