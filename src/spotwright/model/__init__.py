"""The vocabulary as frozen values: pools, policy, placement, attempts, causes, exact quantities. No IO, no clock."""
