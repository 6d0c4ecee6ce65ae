"""The commands that run until SIGTERM, and what only they import."""
