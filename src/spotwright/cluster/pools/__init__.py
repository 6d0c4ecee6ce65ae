"""Pools as a cluster shows them: what its nodes and Karpenter's NodePools say of themselves."""
