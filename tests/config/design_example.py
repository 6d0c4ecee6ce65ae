"""The configuration that the design shows."""

from __future__ import annotations

DESIGN = """version: 1
currency: EUR
target: {kubernetes: 1.30, kfp: "2.17", autoscaler: cluster-autoscaler}
pools:
  gpu-spot:
    capacity: spot
    provider: aks
    machine: Standard_NC6s_v3
    zones: ["1"]
    node: {cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}
    min_nodes: 1
    max_nodes: 4
    labels: {gpu: "true"}
    taints: ["sku=gpu:NoSchedule", "slow:NoExecute"]
    price: 0.97/h
    max_price: 1.20/h
    notice: 45s
    max_lifetime: 24h
    simulate: {boot: 3s, interrupt_every: 20s, expected_duration: 1m, drain: at-notice}
  gpu: {capacity: on-demand, machine: Standard_NC6s_v3, max_nodes: 2, price: 3.06/h}
policy:
  default:
    spot: prefer
    ladder: [gpu-spot, gpu]
    interruptions: {max: 12, backoff: 1s}
  tasks:
    "**/train*": {fall_back_after: 3, timeout: 1h}
    "deploy": {spot: never}
    "train-big": {timeout: 2h}
"""
