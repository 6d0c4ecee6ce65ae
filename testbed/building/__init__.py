"""Builds the parts of a cluster: programs from published Go modules, and images without a registry."""
