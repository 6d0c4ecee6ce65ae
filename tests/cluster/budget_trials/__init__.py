"""Measures on a cluster which endings spend which budget: every kind of workload ends in every order of endings at the limits."""
