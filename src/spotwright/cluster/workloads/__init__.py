"""Translates objects of the API into runs, tasks and attempts. Pure functions on dictionaries."""
