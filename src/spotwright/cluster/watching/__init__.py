"""The watcher: observes pods, nodes and owners, and records every attempt in the journal of its workload's run."""
