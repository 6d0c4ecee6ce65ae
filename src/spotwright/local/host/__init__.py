"""The machine of a local run: checks of its platform, containers and mounts, and its secrets and clock."""
