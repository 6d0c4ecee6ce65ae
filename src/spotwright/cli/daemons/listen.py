"""The option type of addresses to listen at, which only commands that listen import."""

from __future__ import annotations

import click

from spotwright.notices.agent import Address

__all__ = ["Listen"]


class Listen(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # before click 8.5 it takes no types
    """Converts ``HOST:PORT`` to an address to listen at."""

    name = "address"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Parse the text, or fail with the expected format."""
        try:
            return Address.read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
