"""Pure decisions: cause, budgets, backoff, ladder, deadline. Events in, answers out, no clock."""
