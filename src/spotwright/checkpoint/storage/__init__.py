"""Storage of checkpoints: folders and object stores, and the log that orders the saves of several writers."""
