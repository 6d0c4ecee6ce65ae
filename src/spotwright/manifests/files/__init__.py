"""Whole files and Python objects: split into documents, placed with a record, and unplaced to the same bytes."""
