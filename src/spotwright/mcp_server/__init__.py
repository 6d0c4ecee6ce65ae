"""The server of ``spotwright mcp``: runs, logs and findings for editors and agents, by the Model Context Protocol on stdio.

It has no answers by itself. Each tool is a command that prints JSON (:mod:`spotwright.mcp_server.bounds`), and logs are
the page's. What it adds are bounds: files of the project alone, seconds, bytes and lines, text without control characters, and
no writes unless ``--write`` allows them.
"""
