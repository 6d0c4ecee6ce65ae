"""How a person logs in to a server of Kubeflow Pipelines, as far as it may be written down beside a run.

The ways are those of ``kfp.Client`` (SDK 2.17: host, existing token, client id of Identity-Aware Proxy, cookies, kubeconfig).
Tokens and cookies are never arguments of a command, where every user of the machine sees them, and never part of a run's record:
they come from a file or from the environment, and are read again at each login.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.errors import InputError

__all__ = ["COOKIES_VARIABLE", "TOKEN_VARIABLE", "Login"]

TOKEN_VARIABLE = "SPOTWRIGHT_KFP_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable with a bearer token."""

COOKIES_VARIABLE = "SPOTWRIGHT_KFP_COOKIES"
"""The environment variable with cookies, in the form of the header ``Cookie``."""


class Login(NamedTuple):
    """A server and a way to log in. Empty values: what ``kfp.Client`` finds by itself in its variables and the kubeconfig.

    ``namespace`` is that of the runs; a server for one team has none. Files are paths.
    """

    host: str = ""
    namespace: str = ""
    token_file: str = ""
    cookies_file: str = ""
    client_id: str = ""
    context: str = ""
    authority: str = ""

    def token(self) -> str:
        """The bearer token of now: a file may have been renewed. Raises :class:`InputError` for a file that cannot be read."""
        return _secret(self.token_file, TOKEN_VARIABLE, "--token-file")

    def cookies(self) -> str:
        """The cookies of now. Raises like :meth:`token`."""
        return _secret(self.cookies_file, COOKIES_VARIABLE, "--cookies-file")

    def to_data(self) -> dict[str, str]:
        """The login as data that is kept; it holds no secret."""
        return self._asdict()

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Login:
        """The login from the result of :meth:`to_data`."""
        return cls(**{name: str(data.get(name, "")) for name in cls._fields})


def _secret(file: str, variable: str, option: str) -> str:
    if not file:
        return os.environ.get(variable, "").strip()
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option} {file}: cannot be read ({error})") from error
    if not text or "\n" in text:
        raise InputError(f"{option} {file}: expected one line with the secret")
    return text
