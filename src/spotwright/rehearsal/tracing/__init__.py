"""Observe an attempt's file operations: by system-call tracing, or by inotify where tracing is not allowed."""
