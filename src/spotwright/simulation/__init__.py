"""The simulated body: the engine's own decisions on virtual time, with the same supply of nodes as the local body.

Start at :func:`spotwright.simulation.run.simulate`. Nothing here reads a clock, draws without a seed or does IO, so the same
plans, models and seeds give the same journals.
"""
