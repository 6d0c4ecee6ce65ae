"""Forecasts what a run will cost and when it will end, policy by policy, over sampled markets. Needs numpy.

``spotwright plan`` shows it. :mod:`spotwright.forecast.forecast` is the way in: tasks with durations, a market, the policies.
"""
