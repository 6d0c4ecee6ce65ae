"""The state folder: the journal of every run and who may write it."""
