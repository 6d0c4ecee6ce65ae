"""Start, resume, cancel and read runs: the Python API and the wiring below it."""
