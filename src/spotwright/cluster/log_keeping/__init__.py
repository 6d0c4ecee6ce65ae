"""Keeps the log of every attempt in the run's folder, from the container's first line to the moment its node goes."""
