"""The simulated supply of nodes: pools whose nodes boot, fill up and are reclaimed, and the queue of waiting attempts. Pure."""
