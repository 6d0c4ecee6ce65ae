"""State as a fold over the journal, the decisions of each turn, and the one loop that performs them."""
