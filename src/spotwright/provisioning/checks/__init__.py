"""What would keep work from landing on the pools, or keep a pool from growing: one module for each sort of fact that is compared.

:func:`spotwright.provisioning.checks.running.check` runs all of them over nodes, DaemonSets, kubelet settings and manifests.
"""
