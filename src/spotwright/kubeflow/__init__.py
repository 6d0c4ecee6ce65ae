"""Run pipelines on Kubeflow Pipelines (KFP): upload, start and follow them, and read their outputs back."""
