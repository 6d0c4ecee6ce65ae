"""Kinds of workload: where each has its pods, how it is placed, and what an interruption does to it."""
