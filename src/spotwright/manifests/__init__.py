"""Place policies in files and objects of Kubernetes, and remove them again. No cluster, no IO."""
