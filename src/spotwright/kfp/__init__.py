"""Kubeflow Pipelines: load and compile a pipeline, build its task graph, and serve the contract of KFP's launcher."""
