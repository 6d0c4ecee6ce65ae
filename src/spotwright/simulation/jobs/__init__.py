"""Simulates single jobs with a deadline over many windows of a market at once: costs, ends, lateness, and the cheapest possible.

The decisions are those of :mod:`spotwright.deadlines`; :mod:`spotwright.simulation.jobs.batch` looks them up for thousands of
windows at a time.
"""
