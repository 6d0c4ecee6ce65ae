"""Judge the trial runs: compare outputs, measure the cost of an interruption, and name the verdict."""
