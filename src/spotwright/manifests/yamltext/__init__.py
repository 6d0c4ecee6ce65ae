"""A text editor for YAML: documents with the position of every value, and edits that change no other byte."""
