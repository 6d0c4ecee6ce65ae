"""The rules: each is data with two examples, and a pure function that finds it in an object, a pod or a pipeline file."""
