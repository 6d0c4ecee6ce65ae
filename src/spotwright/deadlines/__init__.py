"""Decides at every moment whether a job with a deadline waits, runs on spot or runs on on-demand. Pure: facts in, decisions out.

The cost of each action is computed beforehand, by dynamic programming over the time and work left, the job's mode and the age
of the current spell of spot capacity; a decision compares these costs, under an exact safety rule
(:mod:`spotwright.deadlines.choice`). :mod:`spotwright.deadlines.hazards` and :mod:`spotwright.deadlines.jobs` do not need
numpy.
"""
