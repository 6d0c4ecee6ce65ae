"""Place one pod: the rules for its fields, who enforces each, and the editor that writes them into YAML and takes them out."""
