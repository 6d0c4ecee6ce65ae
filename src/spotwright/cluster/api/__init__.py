"""The client of the Kubernetes API: lightkube's configuration and authentication, and the list and watch that it lacks.

docs/design/cluster.md gives the reasons and the figures. Objects are plain dictionaries as the API writes them.
"""
