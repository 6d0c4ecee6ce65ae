"""Observe an attempt's file operations: by tracing its system calls."""
