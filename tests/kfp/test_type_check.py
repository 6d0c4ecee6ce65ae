"""Type conflicts between connected tasks, in pipelines of any tool."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kfp.builders import component, graph, task

from spotwright.errors import PipelineError


def artifact(title: str) -> dict[str, Any]:
    return {"artifacts": {"x": {"artifactType": {"schemaTitle": title, "schemaVersion": "0.0.1"}}}}


def parameter(kind: str) -> dict[str, Any]:
    return {"parameters": {"x": {"parameterType": kind}}}


def joined(out: dict[str, Any], into: dict[str, Any], *, as_artifact: bool = False) -> None:
    """A pipeline in which one task's output ``x`` is another's input ``x``."""
    parameters = {"parameters": {"x": {"taskOutputParameter": {"producerTask": "make", "outputParameterKey": "x"}}}}
    artifacts = {"artifacts": {"x": {"taskOutputArtifact": {"producerTask": "make", "outputArtifactKey": "x"}}}}
    graph(
        {"make": task("make"), "use": task("use", inputs=artifacts if as_artifact else parameters)},
        {"comp-make": component("make", outputs=out), "comp-use": component("use", inputs=into)},
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("STRING", "NUMBER_INTEGER"), ("LIST", "STRUCT"), ("BOOLEAN", "NUMBER_DOUBLE"), ("STRING", "LIST")],
)
def test_a_parameter_of_another_type_is_refused_with_both_ends(given: str, wanted: str) -> None:
    with pytest.raises(PipelineError, match=rf"task use: make\.x \({given}\) does not fit use\.x \({wanted}\)"):
        joined(parameter(given), parameter(wanted))


@pytest.mark.parametrize("given", ["NUMBER_INTEGER", "STRUCT", "BOOLEAN"])
def test_every_type_can_become_text_as_in_the_backend(given: str) -> None:
    joined(parameter(given), parameter("STRING"))


def test_a_whole_number_fits_a_number() -> None:
    joined(parameter("NUMBER_INTEGER"), parameter("NUMBER_DOUBLE"))


def test_an_artifact_of_another_class_is_refused_and_a_plain_one_fits_all() -> None:
    with pytest.raises(PipelineError, match=r"make\.x \(system\.Model\) does not fit use\.x \(system\.Dataset\)"):
        joined(artifact("system.Model"), artifact("system.Dataset"), as_artifact=True)
    joined(artifact("system.Model"), artifact("system.Artifact"), as_artifact=True)
    joined(artifact("system.Artifact"), artifact("system.Model"), as_artifact=True)


def test_the_error_for_a_text_as_an_artifact_explains_types_of_kfp_1() -> None:
    with pytest.raises(
        PipelineError, match=r"make\.x \(STRING\) does not fit use\.x \(system\.Artifact\): kfp 2 .*URI"
    ):
        joined(parameter("STRING"), artifact("system.Artifact"))
    with pytest.raises(PipelineError, match=r"make\.x \(system\.Model\) does not fit use\.x \(STRING\)"):
        joined(artifact("system.Model"), parameter("STRING"), as_artifact=True)


def test_the_type_of_a_pipeline_input_is_compared_too() -> None:
    inputs = {"parameters": {"x": {"componentInputParameter": "u"}}}
    root = {"inputDefinitions": {"parameters": {"u": {"parameterType": "STRING"}}}}
    components = {"comp-use": component("use", inputs=parameter("STRUCT"))}
    with pytest.raises(PipelineError, match=r"the pipeline's input u \(STRING\) does not fit use\.x \(STRUCT\)"):
        graph({"use": task("use", inputs=inputs)}, components, root=root)
