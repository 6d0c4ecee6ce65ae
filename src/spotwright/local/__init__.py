"""The local world: simulated nodes, and attempts as real processes on this machine."""
