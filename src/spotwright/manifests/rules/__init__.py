"""Rules shared by all kinds: pods, jobs, affinity, retry bounds, environment, and refusals."""
