"""Which source an attempt has: the environment says it, the same in every body.

``SPOTWRIGHT_NOTICE_URL`` goes first: an ``http`` address is a node agent's, a ``file`` address a file's. Without it,
``SPOTWRIGHT_NOTICE_FILE`` is the file. In pods whose variables cannot be put together (Kubeflow Pipelines) only the node's
address is given, as ``SPOTWRIGHT_HOST``: the agent is asked at its usual port there.
"""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.notices.notice import Source, SourceError

__all__ = ["from_environment"]


def from_environment(environ: Mapping[str, str]) -> Source | None:
    """The source that an attempt's environment names; ``None`` where it names none.

    Raises :class:`SourceError` for an address that is neither ``http://HOST:PORT/notice`` nor ``file:///PATH``.
    """
    url = environ.get("SPOTWRIGHT_NOTICE_URL", "").strip()
    path = environ.get("SPOTWRIGHT_NOTICE_FILE", "").strip()
    if url.startswith("http://"):
        from spotwright.notices.node_agent import NodeAgentSource

        return NodeAgentSource(url)
    if url.startswith("file://"):
        path = _path_of(url)
    elif url:
        raise SourceError(
            f"SPOTWRIGHT_NOTICE_URL is {url!r}: expected http://HOST:PORT/notice of a node agent, or file:///PATH"
        )
    if path:
        from spotwright.notices.file import FileSource

        return FileSource(path)
    host = environ.get("SPOTWRIGHT_HOST", "").strip()
    if not host:
        return None
    from spotwright.notices.node_agent import PORT, NodeAgentSource

    return NodeAgentSource(f"http://{host}:{PORT}/notice")


def _path_of(url: str) -> str:
    """The path in a file address, without the 10 ms that importing a whole URL library costs."""
    rest = url.removeprefix("file://")
    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise SourceError(f"SPOTWRIGHT_NOTICE_URL is {url!r}: expected file:///PATH")
    head, *pieces = f"/{path}".encode().split(b"%")
    try:
        read = [bytes.fromhex(piece[:2].decode()) + piece[2:] for piece in pieces]
    except ValueError as error:
        raise SourceError(f"SPOTWRIGHT_NOTICE_URL is {url!r}: expected two hexadecimal digits after every %") from error
    return b"".join([head, *read]).decode()
