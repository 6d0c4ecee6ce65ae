"""Artifacts."""

from pathlib import Path
from typing import List

import third_party_artifacts
from components import read, read_all, text
from kfp import dsl

__all__ = [
    "artifact_classes",
    "artifact_classes_of_others",
    "artifact_embedded",
    "artifact_folders",
    "artifact_metadata",
    "artifact_places",
    "artifact_without_file",
    "artifacts_given",
    "metrics",
]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def every(
    a: dsl.Output[dsl.Artifact], d: dsl.Output[dsl.Dataset], m: dsl.Output[dsl.Model], h: dsl.Output[dsl.HTML],
    w: dsl.Output[dsl.Markdown],
):  # fmt: skip
    for each in (a, d, m, h, w):
        with open(each.path, "w") as file:
            file.write(each.schema_title)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def classes(
    a: dsl.Input[dsl.Artifact], d: dsl.Input[dsl.Dataset], m: dsl.Input[dsl.Model], h: dsl.Input[dsl.HTML],
    w: dsl.Input[dsl.Markdown],
) -> str:  # fmt: skip
    return " ".join(f"{type(each).__name__}={open(each.path).read()}" for each in (a, d, m, h, w))


@dsl.pipeline
def artifact_classes():
    """Every artifact class, written and read."""
    made = every()
    classes(**{name: made.outputs[name] for name in "admhw"})


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def folder(out: dsl.Output[dsl.Dataset]):
    import os

    os.makedirs(os.path.join(out.path, "below"))
    for name in ("one", "below/two"):
        with open(os.path.join(out.path, name), "w") as file:
            file.write(name)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def files_in(data: dsl.Input[dsl.Dataset]) -> str:
    import os

    found = [
        os.path.relpath(os.path.join(at, name), data.path) for at, _, names in os.walk(data.path) for name in names
    ]
    return " ".join(sorted(found))


@dsl.pipeline
def artifact_folders():
    """An artifact that is a folder."""
    files_in(data=folder().outputs["out"])


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def with_metadata(model: dsl.Output[dsl.Model]):
    model.metadata["accuracy"] = 0.5
    model.metadata["layers"] = [1, 2]
    model.metadata["framework"] = {"name": "x"}
    with open(model.path, "w") as file:
        file.write("m")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def metadata_of(model: dsl.Input[dsl.Model]) -> dict:
    return model.metadata


@dsl.pipeline
def artifact_metadata() -> dsl.Model:
    """Metadata of artifacts, numbers kept. kfp.local: wrong (whole numbers in metadata become fractions)"""
    made = with_metadata()
    metadata_of(model=made.outputs["model"])
    return made.outputs["model"]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def at_custom_path(out: dsl.Output[dsl.Dataset]):
    import os

    out.custom_path = os.path.join(os.getcwd(), "custom")
    with open(out.custom_path, "w") as file:
        file.write("custom")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def made_by_uri() -> dsl.Dataset:
    made = dsl.Dataset(uri=dsl.get_uri("data"))
    with open(made.path, "w") as file:
        file.write("by uri")
    return made


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def by_path(value: str, out: dsl.OutputPath("Dataset"), note: dsl.OutputPath(str)):
    with open(out, "w") as file:
        file.write(value)
    with open(note, "w") as file:
        file.write(f"note {value}")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def from_path(data: dsl.InputPath("Dataset")) -> str:
    with open(data) as file:
        return file.read()


@dsl.pipeline
def artifact_places():
    """Paths of artifacts: custom_path, dsl.get_uri, InputPath and OutputPath. kfp.local: no (custom_path is ignored)"""
    read(data=at_custom_path().outputs["out"])
    read(data=made_by_uri().output)
    made = by_path(value="path")
    from_path(data=made.outputs["out"])
    text(value=made.outputs["note"])


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def measure(
    m: dsl.Output[dsl.Metrics], c: dsl.Output[dsl.ClassificationMetrics], s: dsl.Output[dsl.SlicedClassificationMetrics]
):
    m.log_metric("accuracy", 0.75)
    m.log_metric("count", 3)
    c.log_confusion_matrix(["a", "b"], [[1, 2], [3, 4]])
    c.log_roc_curve([0.0, 1.0], [0.0, 1.0], [1.0, 0.0])
    s._sliced_metrics = {}  # which the SDK forgets to make (2.17.0)
    s.set_confusion_matrix_categories("slice", ["a", "b"])


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def measured(
    m: dsl.Input[dsl.Metrics], c: dsl.Input[dsl.ClassificationMetrics], s: dsl.Input[dsl.SlicedClassificationMetrics]
) -> dict:
    slices = [each["slice"] for each in s.metadata["evaluationSlices"]]
    return {"metrics": m.metadata, "matrix": c.metadata["confusionMatrix"], "slices": slices}


@dsl.pipeline
def metrics():
    """Metrics: plain, of a classification, by slices. kfp.local: wrong (fractions)"""
    made = measure()
    measured(**{name: made.outputs[name] for name in "mcs"})


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def nothing(out: dsl.Output[dsl.Dataset]):
    pass


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def is_there(data: dsl.Input[dsl.Dataset]) -> bool:
    import os

    return os.path.exists(data.path)


@dsl.pipeline
def artifact_without_file():
    """An artifact that is declared and not written is still passed on."""
    is_there(data=nothing().outputs["out"])


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def prompt(out: dsl.Output[third_party_artifacts.Prompt]):
    out.metadata["shots"] = 3
    with open(out.path, "w") as file:
        file.write("say")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def prompted(data: dsl.Input[third_party_artifacts.Prompt], plain: dsl.Input[dsl.Artifact]) -> list:
    with open(data.path) as file:
        return [type(data).__name__, data.schema_title, data.metadata, type(plain).__name__, file.read()]


@dsl.pipeline
def artifact_classes_of_others():
    """Artifact classes of third-party packages. kfp.local: wrong (the class is lost)"""
    made = prompt().output
    prompted(data=made, plain=made)


EMBEDDED = Path(__file__).with_name("embedded")


@dsl.component(base_image="python:3.11", install_kfp_package=False, embedded_artifact_path=str(EMBEDDED))
def of_folder(data: dsl.EmbeddedInput[dsl.Dataset]) -> str:
    import os

    with open(os.path.join(data.path, "words.txt")) as file:
        return file.read().strip()


@dsl.component(base_image="python:3.11", install_kfp_package=False, embedded_artifact_path=str(EMBEDDED / "words.txt"))
def of_file(data: dsl.EmbeddedInput[dsl.Dataset]) -> str:
    with open(data.path) as file:
        return file.read().strip()


@dsl.pipeline
def artifact_embedded():
    """Files and folders that are embedded in a component."""
    of_folder()
    of_file()


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def address_and_metadata(data: dsl.Input[dsl.Dataset]) -> dict:
    return {"uri": data.uri, "metadata": data.metadata}


@dsl.pipeline
def artifacts_given(file: dsl.Input[dsl.Dataset], address: dsl.Input[dsl.Dataset], many: dsl.Input[List[dsl.Dataset]]):
    """Artifacts as arguments of a run, by path and by address; KFP backends take parameters only. kfp.local: no"""
    read(data=file)
    address_and_metadata(data=address)
    read_all(data=many)
