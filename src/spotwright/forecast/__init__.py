"""Forecasts the cost and the end of a run under each policy, over sampled markets. Needs numpy.

``spotwright plan`` shows it. The entry point is :mod:`spotwright.forecast.forecast`: tasks with durations, a market, policies.
"""
