"""Values on their way into a task: arguments, parameters, placeholders, secrets and the paths of artifacts."""
