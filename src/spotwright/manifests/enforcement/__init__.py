"""Who enforces each value of a policy, for each kind of workload: the facts, and their state in a placed object."""
