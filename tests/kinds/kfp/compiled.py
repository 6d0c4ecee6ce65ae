"""Small compiled pipelines as text, built by hand, and helpers that read the placed ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from tests import plain_yaml
from tests.kfp.builders import component, ir, kubernetes, task

from spotwright.config import Config
from spotwright.engine.plan import Plan, PlannedTask
from spotwright.kfp.compiled_files import read_compiled
from spotwright.kfp.pipeline_graph import build

__all__ = ["LABEL", "a_retry", "executor", "inner", "one_task", "plan_of", "task_of", "text_of"]

LABEL = "exec-train"


def text_of(spec: dict[str, Any], platform: dict[str, Any] | None = None) -> str:
    """A pipeline as the SDK writes it: one document, and a second one for platform settings."""
    documents = [spec] if platform is None else [spec, {"platforms": platform}]
    return plain_yaml.dump_all(plain_yaml.load(plain_yaml.dump(documents)))


def one_task(settings: dict[str, Any] | None = None, **more: Any) -> str:
    """A pipeline of one task, ``train``, with settings of its executor."""
    return text_of(ir({"train": task("train", **more)}), None if settings is None else kubernetes(LABEL, **settings))


def inner(**more: Any) -> dict[str, Any]:
    """A pipeline inside a pipeline: ``inner/train``; ``more`` are fields of the task ``inner``."""
    components = {"comp-inner": {"dag": {"tasks": {"train": task("train")}}}, "comp-train": component("train")}
    return ir({"inner": task("inner", **more)}, components)


def a_retry(count: int, duration: str = "0s", factor: float = 2.0, window: str = "3600s") -> dict[str, Any]:
    """The compiled form of ``set_retry``."""
    return {
        "maxRetryCount": count,
        "backoffDuration": duration,
        "backoffFactor": factor,
        "backoffMaxDuration": window,
    }


def executor(documents: list[Any], label: str = LABEL) -> Any:
    """The Kubernetes settings of an executor."""
    return documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"].get(label, {})


def task_of(documents: list[Any], name: str = "train") -> Any:
    """A task of the root."""
    return documents[0]["root"]["dag"]["tasks"][name]


def plan_of(path: Path, text: str, settings: Config) -> dict[str, PlannedTask]:
    """The planned tasks of a run of a compiled file."""
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = Plan(build(read_compiled(path)), settings)
    return {planned.path: planned for scope in ("", *_scopes(plan, "")) for planned in plan.unfold(scope)}


def _scopes(plan: Plan, scope: str) -> list[str]:
    found = []
    for planned in plan.unfold(scope):
        if planned.spec.dag is not None:
            found += [planned.path, *_scopes(plan, planned.path)]
    return found
