"""The node agent: reads a node's notice from its provider, and serves it over HTTP to the attempts on the node.

It runs as ``spotwright node-agent`` on real nodes. The metadata servers of simulated nodes (``local.imds``) contain the same
agent, so its layer stands below the local world.
"""
