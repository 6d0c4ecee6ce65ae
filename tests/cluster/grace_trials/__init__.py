"""Measures on a cluster how long code hears of its pod's end before SIGTERM, with and without the preStop hook."""
