"""Decides at every moment whether a job with a deadline waits, runs on spot or runs on on-demand. Pure: facts in, decisions out.

The policy is worked out beforehand, by dynamic programming over the time and the work that are left, the mode of the job and the
age of the present spell of spot capacity; at run time a decision is a look into that table and an exact safety rule. Only
:mod:`spotwright.deadlines.solver` and what asks it needs numpy.
"""
