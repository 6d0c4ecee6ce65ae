"""One module for each tool that makes pools; :mod:`spotwright.provisioning.catalogue` chooses among them."""
