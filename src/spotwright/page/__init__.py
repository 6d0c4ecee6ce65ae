"""The page of ``spotwright page``: runs in a browser, read-only."""
