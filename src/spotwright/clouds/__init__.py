"""Facts about providers: the labels, taints and notices of their nodes, one record a provider. No IO."""
