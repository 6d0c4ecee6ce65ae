"""The cluster body: what Spotwright adds to workloads that Kubernetes runs, beside the local body."""
