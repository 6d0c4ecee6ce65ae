"""The golden manifests as objects of an API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import plain_yaml

GOLDEN = Path(__file__).parents[1] / "kinds" / "golden"


POLICY = (
    "{default: {spot: prefer, fall_back_after: 2, interruptions: {max: 4}, errors: {retries: 1}, "
    "image_pull_secrets: [acr], checkpoint: 'pvc://ckpt'}}"
)


TARGET = "{kubernetes: '1.33', argo: '4.0', trainer: '2.3'}"


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in plain_yaml.load_all(path.read_text()) if one] if path.exists() else []
