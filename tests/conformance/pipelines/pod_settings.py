"""Pods: secrets, config maps, persistent volume claims, empty folders and fields."""

from typing import Optional

from components import read, text, write
from kfp import dsl, kubernetes

__all__ = [
    "claims_made_and_deleted",
    "claims_that_exist",
    "config_and_secrets",
    "fields_of_the_pod",
    "importer_of_an_output",
    "settings_for_the_code",
    "settings_left_out",
]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def reads_config() -> str:
    import os
    from pathlib import Path

    files = {path.name: path.read_text() for path in sorted(Path("/etc/settings").iterdir())}
    return f"{os.environ['MODE']} {files} {len(os.environ['TOKEN'])} {os.environ.get('MISSING')} {os.path.exists('/etc/none')}"


@dsl.pipeline
def config_and_secrets(name: str = "settings"):
    """Config maps and secrets as variables and files; optional ones; names from parameters. kfp.local: left out"""
    task = reads_config()
    kubernetes.use_config_map_as_env(task, name, {"mode": "MODE"})
    kubernetes.use_config_map_as_volume(task, text(value=name).output, "/etc/settings")
    kubernetes.use_secret_as_env(task, "registry", {"token": "TOKEN"})
    kubernetes.use_secret_as_env(task, "missing", {"key": "MISSING"}, optional=True)
    kubernetes.use_secret_as_volume(task, "none", "/etc/none", optional=True)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def keeps(value: str) -> str:
    with open(f"/data/{value}", "w") as file:
        file.write(value)
    return value


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def finds(path: str) -> str:
    import os

    return ",".join(f"{name}={open(os.path.join(path, name)).read()}" for name in sorted(os.listdir(path)))


@dsl.container_component
def appends():
    return dsl.ContainerSpec(image="alpine", command=["sh", "-c", "printf c > /data/below/other; ls /scratch"])


@dsl.pipeline
def claims_made_and_deleted():
    """CreatePVC and DeletePVC; one claim in several tasks, in part, in a loop, in a container. kfp.local: no"""
    claim = kubernetes.CreatePVC(
        pvc_name="made-here", access_modes=["ReadWriteMany"], size="1Gi", storage_class_name="standard"
    )
    with dsl.ParallelFor(["a", "b"], name="loop", parallelism=1) as value:
        kept = keeps(value=value)
        kubernetes.mount_pvc(kept, claim.outputs["name"], "/data", sub_path="below")
        kept.set_caching_options(False)
    later = appends().after(kept)
    kubernetes.mount_pvc(later, claim.outputs["name"], "/data")
    kubernetes.empty_dir_mount(later, "scratch", "/scratch", "Memory", "1Mi")
    found = finds(path="/elsewhere/deep").after(later)
    kubernetes.mount_pvc(found, claim.outputs["name"], "/elsewhere/deep", sub_path="below")
    kubernetes.DeletePVC(pvc_name=claim.outputs["name"]).after(found)


@dsl.pipeline
def claims_that_exist(claim: str = "shared"):
    """Existing claims, by name and by parameter; ephemeral volumes. kfp.local: no"""
    first = keeps(value="x")
    kubernetes.mount_pvc(first, "shared", "/data")
    second = finds(path="/inner").after(first)
    kubernetes.mount_pvc(second, claim, "/inner")
    third = finds(path="/eph").after(second)
    kubernetes.add_ephemeral_volume(third, "own", "/eph", ["ReadWriteOnce"], "1Gi")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def fields(run: str) -> dict:
    import os

    return {
        "team": os.environ["TEAM"], "note": os.environ["NOTE"], "run": os.environ["RUN"] == run,
        "node": bool(os.environ["NODE"]), "name": os.environ["NAME"].startswith(os.environ["SPOTWRIGHT_RUN"]),
    }  # fmt: skip


@dsl.pipeline
def fields_of_the_pod():
    """Fields of the pod as variables: node, name, labels, annotations. kfp.local: left out"""
    task = fields(run=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    kubernetes.add_pod_label(task, "team", "ml")
    kubernetes.add_pod_annotation(task, "example.com/note", "n")
    kubernetes.use_field_path_as_env(task, "TEAM", "metadata.labels['team']")
    kubernetes.use_field_path_as_env(task, "NOTE", "metadata.annotations['example.com/note']")
    kubernetes.use_field_path_as_env(task, "RUN", "metadata.labels['pipeline/runid']")
    kubernetes.use_field_path_as_env(task, "NODE", "spec.nodeName")
    kubernetes.use_field_path_as_env(task, "NAME", "metadata.name")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def what_is_there() -> str:
    import os

    return f"{os.environ.get('PASSWORD')} {os.path.exists('/mnt/secret')} {os.path.exists('/mnt/config')}"


@dsl.pipeline
def settings_left_out(
    secret: Optional[str] = None, config: Optional[str] = None, tolerations: Optional[list] = None,
    selector: Optional[dict] = None, affinity: Optional[dict] = None,
):  # fmt: skip
    """Names, tolerations, selectors and affinity from optional parameters that are left out. kfp.local: left out"""
    task = what_is_there()
    kubernetes.use_secret_as_env(task, secret, {"password": "PASSWORD"})
    kubernetes.use_secret_as_volume(task, secret, "/mnt/secret")
    kubernetes.use_config_map_as_volume(task, config, "/mnt/config")
    kubernetes.add_toleration_json(task, tolerations)
    kubernetes.add_node_selector_json(task, selector)
    kubernetes.add_node_affinity_json(task, affinity)


PASSED = [
    dsl.TaskConfigPassthrough(dsl.TaskConfigField.ENV, apply_to_task=True), dsl.TaskConfigField.RESOURCES,
    dsl.TaskConfigField.KUBERNETES_VOLUMES, dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS, dsl.TaskConfigField.KUBERNETES_AFFINITY,
]  # fmt: skip


@dsl.component(base_image="python:3.11", install_kfp_package=False, task_config_passthroughs=PASSED)
def passes_on(config: dsl.TaskConfig) -> dict:
    import dataclasses
    import os

    return {**dataclasses.asdict(config), "own": [os.environ.get("MODE"), os.path.exists("/data")]}


@dsl.component(base_image="python:3.11", install_kfp_package=False, task_config_passthroughs=[dsl.TaskConfigField.ENV])
def passes_variables(config: dsl.TaskConfig) -> dict:
    import os

    found = {"env": config.env, "own": [os.environ.get("MODE"), os.environ.get("TOKEN")]}
    return {**found, "others": [config.tolerations, config.volumes, config.affinity, config.resources]}


@dsl.pipeline
def settings_for_the_code(memory: str = "512Mi", claim: str = "shared"):
    """TaskConfig: settings of a task passed to its code; apply_to_task. kfp.local: no"""
    whole = passes_on().set_env_variable("MODE", "fast").set_memory_limit(memory).set_cpu_request("0.5")
    whole.set_accelerator_type("example.com/none").set_accelerator_limit(64)
    kubernetes.mount_pvc(whole, claim, "/data", sub_path="below")
    kubernetes.use_secret_as_volume(whole, "registry", "/etc/registry", optional=True)
    kubernetes.use_secret_as_env(whole, "registry", {"token": "TOKEN"})
    kubernetes.add_node_selector(whole, "disk", "of-no-pool")
    kubernetes.add_toleration(whole, "team", "Equal", "ml", "NoExecute", 30)
    kubernetes.add_node_affinity(whole, [{"key": "disk", "operator": "In", "values": ["of-no-pool"]}])
    kubernetes.add_node_affinity(whole, [{"key": "zone", "operator": "Exists"}], weight=5)
    part = passes_variables().set_env_variable("MODE", "fast")
    kubernetes.use_config_map_as_env(part, "settings", {"mode": "TOKEN"})


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def address_of(data: dsl.Input[dsl.Dataset]) -> str:
    return data.uri


@dsl.pipeline
def importing(address: str) -> str:
    found = dsl.importer(artifact_uri=address, artifact_class=dsl.Dataset, reimport=True, download_to_workspace=True)
    return read(data=found.output).output


@dsl.pipeline(pipeline_config=dsl.PipelineConfig(workspace=dsl.WorkspaceConfig(size="1Gi")))
def importer_of_an_output() -> str:
    """An importer of another task's output, into the workspace. kfp.local: needs a folder from the user"""
    return importing(address=address_of(data=write(value="made here").outputs["out"]).output).output
