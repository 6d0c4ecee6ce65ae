"""What a platform engineer needs to make the pools of ``spotwright.yaml``, and to see what keeps work from landing on them.

``tools`` holds the commands and manifests that make a pool, one module for each tool of a provider. Everything is text for people
to read and run: nothing here runs a command or asks a cluster.
"""
