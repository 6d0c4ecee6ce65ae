"""The rules for manifests and compiled pipelines: each is data with two examples, and a pure function that finds it."""
