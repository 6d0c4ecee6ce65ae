"""Workloads as YAML: what the policy asks for is put into them, and can be taken out again. No cluster, no IO."""
