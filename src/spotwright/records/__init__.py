"""The records of runs: state folder, plans, journals, cached results, and their reader."""
