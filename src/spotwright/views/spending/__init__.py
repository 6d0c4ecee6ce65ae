"""What several runs spent: their charges one by one for finance, and their totals by pool, task and cause."""
