"""The Python environment that an attempt requests."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PythonEnvironment"]


class PythonEnvironment(NamedTuple):
    """The Python environment of an attempt. Without packages it is the interpreter itself, which can import KFP's runtime.

    ``index_urls`` are pip's ``--index-url`` (the first) and ``--extra-index-url`` (the others), as KFP writes them.
    """

    packages: tuple[str, ...] = ()  # arguments of ``pip install``: requirements, paths, options
    index_urls: tuple[str, ...] = ()  # may hold credentials, so they are never printed
    trusted_hosts: tuple[str, ...] = ()
    python: str = ""  # empty: the interpreter that runs the engine
