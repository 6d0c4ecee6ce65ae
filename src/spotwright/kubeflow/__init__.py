"""Runs pipelines on Kubeflow Pipelines (KFP): uploads them, starts them, follows them and reads their outputs back."""
