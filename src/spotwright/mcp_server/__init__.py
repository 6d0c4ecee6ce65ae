"""The server of ``spotwright mcp``: runs, logs and findings for editors and agents, by the Model Context Protocol on stdio.

Each tool is a command that prints JSON (:mod:`spotwright.mcp_server.bounds`), and logs are the page's. The server adds bounds:
only files of the project, limited seconds, bytes and lines, text without control characters, and writes only with ``--write``.
"""
