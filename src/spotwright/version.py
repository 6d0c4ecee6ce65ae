"""The version of Spotwright, where the command line, journals and packages read it."""

__all__ = ["__version__"]

__version__ = "0.1.0"
