"""A run as it happens: the state of its display, the display in a terminal, and one sentence per event."""
