"""What Kueue decides about placed work: the flavors of pools, and the queue that orders them."""
