"""Metadata servers of simulated spot nodes, which imitate AWS, Azure and Google. Runs without such nodes start none."""
