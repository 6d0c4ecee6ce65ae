"""Kubeflow Trainer (TrainJob and its runtimes) and the training operator before it (PyTorchJob, TFJob, ...)."""
