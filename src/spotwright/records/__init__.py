"""The records of runs: state folder, plans, journals, cached results, and the reader of all that."""
