"""Find in manifests, compiled pipelines and pipeline files what is unsafe or in vain on spot capacity, before it runs."""
