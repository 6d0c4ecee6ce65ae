"""Jobs as users write them."""

from __future__ import annotations

IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def a_job(more: str = "", pod: str = "\n      restartPolicy: Never", metadata: str = "{name: train}") -> str:
    return f"""\
apiVersion: batch/v1
kind: Job
metadata: {metadata}
spec:{more}
  template:
    spec:{pod}
      containers:
      - name: main   # trains
        image: trainer:1
"""
