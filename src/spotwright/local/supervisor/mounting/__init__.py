"""Give one attempt a view of the file system like that of a pod: volumes at their paths, private temporary folders and home."""
