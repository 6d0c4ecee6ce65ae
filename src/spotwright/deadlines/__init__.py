"""Decides at every moment whether a job with a deadline waits, runs on spot or runs on on-demand. Pure: facts in, decisions out.

What each action costs is worked out beforehand, by dynamic programming over the time and the work that are left, the mode of the
job and the age of the present spell of spot capacity; a decision compares these costs, under an exact safety rule
(:mod:`spotwright.deadlines.choice`). :mod:`spotwright.deadlines.hazards` and :mod:`spotwright.deadlines.jobs` do without numpy.
"""
