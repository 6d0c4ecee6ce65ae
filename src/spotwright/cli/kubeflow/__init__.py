"""The command line of runs on Kubeflow Pipelines."""
