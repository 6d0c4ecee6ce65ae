"""Place one pod: the rules for its fields, who enforces each, and the editor that adds them to YAML and removes them."""
