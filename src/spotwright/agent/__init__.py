"""The node agent: reads a node's notice where its provider says it, and passes it on to whatever runs on the node."""
