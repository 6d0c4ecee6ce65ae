"""Refuses KFP components whose code imports Spotwright where it would certainly be missing.

The source of a Python component, its packages to install and the name of its image are in the compiled pipeline. So the failed
import is visible before the upload: the code imports a part of Spotwright that the embedded checkpoint library does not hold, its
image has a Python that is too old, or its command has an unknown shape. ``target: {package: image}`` says that the image has the
package; then nothing is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from spotwright.checkpoint_file import PYTHON, imported_names, names_not_in_file
from spotwright.manifests.rules.checkpoint_library import WAYS, Delivery

__all__ = ["FUNCTION", "ImportingComponent", "missing_library"]

FUNCTION = "--function_to_execute"
"""The argument that only Python components have."""

_PYTHON_IMAGE = re.compile(r"(?:^|/)python:(\d+)\.(\d+)(?![\d])")
"""The official image of Python, also from a mirror, with the version in its tag."""


@dataclass(frozen=True, slots=True)
class ImportingComponent:
    """A Python component whose text imports Spotwright.

    ``sources``: its source and the modules that are packed into it. ``has_known_shape``: whether lines can be added in front of
    the script that starts the executor. ``is_installed``: whether its ``packages_to_install`` name Spotwright.
    """

    path: str
    image: str
    sources: Sequence[str]
    has_known_shape: bool
    is_installed: bool


def missing_library(component: ImportingComponent, how: Delivery | None) -> str:
    """Why the code would end with an ImportError, with the ways out. Empty where nothing shows that it would."""
    names = {name for source in component.sources for name in imported_names(source)}
    if not names or how is Delivery.IMAGE:
        return ""
    old = _old_python(component.image)
    if old:
        least = ".".join(map(str, PYTHON))
        return (
            f"{component.path}: its code imports spotwright, which needs Python {least}, and its image {component.image} has "
            f"Python {old}: set base_image to python:{least} or later"
        )
    if component.is_installed:
        return ""
    ways = f"add spotwright to its packages_to_install, or {WAYS}"
    if not component.has_known_shape:
        return f"{component.path}: its code imports spotwright, and its command has a shape to which nothing can be added: {ways}"
    lacking = names_not_in_file(names) if how in (None, Delivery.EMBEDDED, Delivery.CONFIG_MAP) else []
    if lacking:
        return (
            f"{component.path}: its code imports {', '.join(lacking)}, and the checkpoint library as one file "
            f"does not have that: {ways}"
        )
    return ""


def _old_python(image: str) -> str:
    """The version of Python in the image's tag, if it is too old for Spotwright."""
    version = _PYTHON_IMAGE.search(image)
    if version is None or (int(version[1]), int(version[2])) >= PYTHON:
        return ""
    return f"{version[1]}.{version[2]}"
