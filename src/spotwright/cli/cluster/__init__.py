"""Commands and options about a cluster, beside those about runs on this machine."""
