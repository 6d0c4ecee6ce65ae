"""Compiled pipelines of Kubeflow Pipelines: the pods of their executors and the retries of their tasks."""
