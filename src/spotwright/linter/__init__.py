"""Find what is unsafe or without effect on spot capacity in manifests, compiled pipelines and pipeline files."""
