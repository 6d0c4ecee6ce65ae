"""What a cluster is made of: programs built from published Go modules, and images made without a registry."""
