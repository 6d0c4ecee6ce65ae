"""A policy for compiled pipelines, and the environment of their executors."""

from __future__ import annotations

from typing import Any

from tests.kinds.kfp.compiled import LABEL

POLICY = "{default: {spot: prefer, image_pull_secrets: [acr], timeout: 1h, checkpoint: 'gs://bucket/ckpt'}}"


def env(documents: list[Any], label: str = LABEL) -> dict[str, str]:
    container = documents[0]["deploymentSpec"]["executors"][label]["container"]
    return {item["name"]: item["value"] for item in container.get("env", ())}
