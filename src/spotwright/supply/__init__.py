"""The simulated supply of nodes: pools whose nodes boot, fill up and are taken, and the queue of waiting attempts. Pure."""
