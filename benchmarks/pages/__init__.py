"""What `benchmarks/page.py` measures, a module for what is alike: lists of runs, a large run, live runs, logs, the first view."""
