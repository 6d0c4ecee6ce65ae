"""What a platform engineer needs to make the pools of ``spotwright.yaml``, and to see what keeps work from landing on them.

A module for each provider holds the commands and manifests that make a pool with its tools. Everything is text for people
to read and run: this package neither runs commands nor asks a cluster.
"""
