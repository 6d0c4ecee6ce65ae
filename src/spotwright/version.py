"""The version of Spotwright, for the command line, journals and packages."""

__all__ = ["__version__"]

__version__ = "0.1.0"
