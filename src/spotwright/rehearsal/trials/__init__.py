"""Run a step once per injection point: workspaces, persistent data, fault injection and the run itself."""
