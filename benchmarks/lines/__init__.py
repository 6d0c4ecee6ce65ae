"""The lines of the benchmark, a module a theme: each yields its measured rows."""
