"""Kubeflow work on spot capacity, as if no node were ever taken away."""
