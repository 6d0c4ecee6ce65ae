"""Read models computed from the journal: run, timeline, account; as text and as JSON."""
