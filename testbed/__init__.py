"""A real Kubernetes on one Linux machine, whose nodes can lose power, for the tests of Spotwright on a cluster."""
