"""A pod, a configuration for it, and one that is broken."""

from __future__ import annotations

CONFIG = """\
version: 1
pools:
  spotpool: {capacity: spot, provider: aks}
  agentpool: {capacity: on-demand, provider: aks}
policy: {default: {spot: prefer}}
"""


POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: train  # by hand
spec:
  containers:
  - name: main
    image: python:3.11
"""


BROKEN = "apiVersion: v1\nkind: Pod\nspec: {containers: [\n"
