"""The command ``lint`` and how it reads and writes files."""
