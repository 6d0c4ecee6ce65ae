"""Prices of pools from price sheets: files with what Azure, AWS and Google Cloud publish, export or answer."""
