"""The local world: pools of simulated nodes and real processes on this machine."""
