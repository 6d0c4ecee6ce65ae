"""Importers, notebooks, the workspace and resources."""

from pathlib import Path
from typing import List, Optional

from components import read, text, whole, write
from kfp import dsl

__all__ = [
    "additional_functions",
    "environment",
    "importers",
    "importers_of_files",
    "notebooks",
    "optional_artifacts",
    "resources_from_outputs",
    "resources_in_groups",
    "workspace",
]

EMBEDDED = Path(__file__).with_name("embedded")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def place_of(data: dsl.Input[dsl.Dataset]) -> dict:
    return {"class": type(data).__name__, "uri": data.uri, "metadata": data.metadata}


@dsl.pipeline
def importers(address: str = "gs://bucket/given", note: str = "n"):
    """Importers: of constants and parameters, with and without reimport, with metadata. kfp.local: no (addresses of clouds)"""
    first = dsl.importer(artifact_uri="gs://bucket/data.csv", artifact_class=dsl.Dataset, reimport=False)
    place_of(data=first.output)
    second = dsl.importer(
        artifact_uri=address, artifact_class=dsl.Dataset, reimport=True, metadata={"note": note, "n": 1}
    )
    place_of(data=second.output)


@dsl.pipeline
def importers_of_files():
    """Importers of files that are on this machine, by path and by address. kfp.local: no (addresses)"""
    for address in (str(EMBEDDED / "words.txt"), (EMBEDDED / "words.txt").as_uri()):
        read(data=dsl.importer(artifact_uri=address, artifact_class=dsl.Dataset, reimport=True).output)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def keep(path: str, value: str) -> str:
    import os

    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "kept"), "w") as file:
        file.write(value)
    return os.path.basename(os.path.dirname(path))


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def kept(path: str) -> str:
    import os

    with open(os.path.join(path, "kept")) as file:
        return file.read()


@dsl.pipeline
def keeping(path: str):
    kept(path=path)


@dsl.pipeline(pipeline_config=dsl.PipelineConfig(workspace=dsl.WorkspaceConfig(size="1Gi")))
def workspace():
    """The workspace that all tasks of a run share. kfp.local: needs a folder from the user, and deletes it"""
    first = keep(path=f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/below", value="shared")
    kept(path=f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/below").after(first)
    keeping(path=f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/below").after(first)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def maybe(data: Optional[dsl.Input[dsl.Dataset]] = None, many: Optional[dsl.Input[List[dsl.Dataset]]] = None) -> str:
    return f"{data is None} {many is None}"


@dsl.pipeline
def passing_on(data: Optional[dsl.Input[dsl.Dataset]] = None):
    maybe(data=data)


@dsl.pipeline
def optional_artifacts(never: Optional[dsl.Input[dsl.Dataset]] = None):
    """Optional artifact inputs, present and left out, of components and of nested pipelines. kfp.local: no"""
    made = write(value="x")
    maybe(data=never)
    maybe(data=made.outputs["out"])
    passing_on()
    passing_on(data=made.outputs["out"])


def helping(value: str) -> str:
    return value.upper()


@dsl.component(base_image="python:3.11", install_kfp_package=False, additional_funcs=[helping])
def helped(value: str) -> str:
    return helping(value)


@dsl.pipeline
def additional_functions():
    """Additional functions of a component (`additional_funcs`)."""
    helped(value="loud")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def variable(name: str) -> str:
    import os

    return os.environ.get(name, "nothing")


@dsl.pipeline
def environment():
    """Environment variables of a task, which no other task has."""
    variable(name="TESTED").set_env_variable("TESTED", "it's set")
    variable(name="TESTED")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def amount() -> str:
    return "256Mi"


@dsl.pipeline
def resources_from_outputs():
    """Resources from the output of another task, which makes the task wait for it; also in a loop. kfp.local: no"""
    whole(value=1).set_memory_limit(amount().output)
    with dsl.ParallelFor([1, 2], name="loop") as number:
        needed = amount()
        whole(value=number).set_memory_limit(needed.output)


@dsl.component(
    base_image="python:3.11", install_kfp_package=False, task_config_passthroughs=[dsl.TaskConfigField.RESOURCES]
)
def asks_for(config: dsl.TaskConfig) -> dict:
    return config.resources


@dsl.pipeline
def inside_of(cpu: str, go: bool):
    with dsl.If(go == True):  # noqa: E712 - as the SDK wants it
        asks_for().set_cpu_limit(cpu)


@dsl.pipeline
def resources_in_groups(memory: str = "256Mi", number: str = "2"):
    """Resources from parameters in loops, conditions and exit handlers, which the SDK does not pass into them. kfp.local: no"""
    with dsl.ExitHandler(text(value="done")), dsl.ParallelFor(["1Gi", "2Gi"], name="loop") as item:
        asks_for().set_memory_limit(memory).set_memory_request(item)
        with dsl.If(number == "2"):
            asks_for().set_accelerator_type("example.com/device").set_accelerator_limit(number).set_cpu_request(number)
    inside_of(cpu="1500m", go=True)


@dsl.notebook_component(
    notebook_path=str(EMBEDDED / "words.ipynb"),
    base_image="python:3.11",
    packages_to_install=[],
    install_kfp_package=False,
)
def book(value: str, times: int) -> str:
    import os

    place = os.path.abspath("words.txt")
    dsl.run_notebook(text=value, times=times, place=place)
    with open(place) as file:
        return file.read()


@dsl.pipeline
def notebooks():
    """Notebooks as components, with parameters."""
    book(value="it's ", times=2)
