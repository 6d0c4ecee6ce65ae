"""Python environments for tasks with ``packages_to_install``, built once per set of packages by a separate process."""
