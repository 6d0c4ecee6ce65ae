"""The local backend: simulated nodes, and attempts as real processes on this machine."""
