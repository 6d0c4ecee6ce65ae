"""Place policies in Kubernetes manifests, and remove them again. No cluster, no IO."""
