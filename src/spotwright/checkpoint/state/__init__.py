"""The content of a checkpoint: a state as plain data and raw bytes in one file. Loading it runs no code."""
