"""Kinds of workload: where the pods of each are, how an object of it is placed, and what an interruption does to it."""
