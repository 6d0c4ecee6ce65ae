"""The rules for pipeline files in Python, which are parsed and never run."""
