"""Pure decisions about attempts: cause of an ending, budgets, backoff, ladder and deadline. Facts in, decisions out, no clock."""
