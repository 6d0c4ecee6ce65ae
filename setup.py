"""Asks for the page's modules from npm before a wheel or a source distribution is built; all else stands in pyproject.toml.

It exists because a wheel without them would install a page that does not work. In a clone with npm they are made now; where that
fails, so does the build, with what to type. A source distribution holds them, so it needs no npm. An editable installation, as
scripts/bootstrap makes it, needs none of them.
"""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist
from setuptools.errors import ExecError


def ensure_page() -> None:
    """Make the modules of the page where they are missing. Raises ExecError where they cannot be made."""
    sys.path.insert(0, str(Path(__file__).parent / "src"))
    from spotwright.errors import InputError
    from spotwright.page.vendor import ensure_vendor

    try:
        ensure_vendor()
    except InputError as error:
        raise ExecError(str(error)) from None


class WheelWithPage(bdist_wheel):
    """The wheel, with the modules of the page."""

    def run(self) -> None:
        """Build it."""
        ensure_page()
        super().run()


class SourcesWithPage(sdist):
    """The source distribution, with the modules of the page."""

    def run(self) -> None:
        """Build it."""
        ensure_page()
        super().run()


setup(cmdclass={"bdist_wheel": WheelWithPage, "sdist": SourcesWithPage})
