"""Make an attempt's source of notices from its environment, with the same variables on every backend.

``SPOTWRIGHT_NOTICE_URL`` comes first: ``http`` for a node agent, ``file`` for a file. If the agent is unreachable, or no URL is
set, ``SPOTWRIGHT_NOTICE_FILE`` is read. Pods whose variables cannot be composed (Kubeflow Pipelines) have only their node's
address, in ``SPOTWRIGHT_HOST``, for the agent at its default port.

If the processes of one launcher represent several nodes, ``{rank}`` in ``SPOTWRIGHT_NOTICE_FILE`` is the reading process's
rank, so that each gets its own node's notice.

In pods with ``SPOTWRIGHT_GRACE_FOLDER`` both the file and the agent are read: the file announces the pod's end, which the
node's agent does not know.
"""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.notices.notice import Notice, Source, SourceError
from spotwright.notices.pod_hook import FOLDER_VARIABLE

__all__ = ["RANK", "RANK_VARIABLES", "from_environment", "rank_of"]

RANK = "{rank}"
"""In ``SPOTWRIGHT_NOTICE_FILE``: the rank of the process that reads it."""

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""The variables in which launchers give a process its rank: torchrun, Open MPI, MPICH and Slurm, in this order. Source:
torchrun's documentation, "Environment Variables"; ``mpirun(1)``; ``srun(1)``."""

_LONGEST_RANK = 9  # digits


def rank_of(environ: Mapping[str, str]) -> int | None:
    """The rank of a process by its environment; ``None`` if no launcher gave it one."""
    given = (environ.get(name, "") for name in RANK_VARIABLES)
    return next((int(value) for value in given if value.isdecimal() and len(value) <= _LONGEST_RANK), None)


def from_environment(environ: Mapping[str, str]) -> Source | None:
    """Return the source that the environment names; ``None`` if it names none.

    Raises :class:`SourceError` for a URL that is neither ``http://HOST:PORT/notice`` nor ``file:///PATH``.
    """
    url = environ.get("SPOTWRIGHT_NOTICE_URL", "").strip()
    path = environ.get("SPOTWRIGHT_NOTICE_FILE", "").strip()
    rank = rank_of(environ)
    path = path if rank is None else path.replace(RANK, str(rank))
    host = environ.get("SPOTWRIGHT_HOST", "").strip()
    if environ.get(FOLDER_VARIABLE, "").strip() and path and (url.startswith("http://") or (host and not url)):
        from spotwright.notices.sources import EitherSource

        return EitherSource(_agent(url, host), _file(path))
    if url.startswith("http://"):
        return _WithFile(_agent(url), _file(path)) if path else _agent(url)
    if url.startswith("file://"):
        return _file(_path_of(url))
    if url:
        raise SourceError(
            f"SPOTWRIGHT_NOTICE_URL is {url!r}: expected http://HOST:PORT/notice of a node agent, or file:///PATH"
        )
    if path:
        return _file(path)
    return _agent(host=host) if host else None


def _agent(url: str = "", host: str = "") -> Source:
    from spotwright.notices.sources import PORT, NodeAgentSource

    return NodeAgentSource(url or f"http://{host}:{PORT}/notice")


def _file(path: str) -> Source:
    from spotwright.notices.sources import FileSource

    return FileSource(path)


class _WithFile:
    """A node agent, and the file that replaces it while it is unreachable."""

    def __init__(self, agent: Source, file: Source) -> None:
        self.agent, self.file = agent, file
        self.name = agent.name

    def wait(self, timeout: float) -> Notice | None:
        """See :meth:`spotwright.notices.Source.wait`."""
        try:
            return self.agent.wait(timeout)
        except SourceError:
            notice = self.file.wait(0)
            if notice is None:
                raise
            return notice


def _path_of(url: str) -> str:
    """The path in a file URL, without the 10 ms of importing ``urllib.parse``."""
    rest = url.removeprefix("file://")
    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise SourceError(f"SPOTWRIGHT_NOTICE_URL is {url!r}: expected file:///PATH")
    head, *pieces = f"/{path}".encode().split(b"%")
    try:
        decoded = [bytes.fromhex(piece[:2].decode()) + piece[2:] for piece in pieces]
    except ValueError as error:
        raise SourceError(f"SPOTWRIGHT_NOTICE_URL is {url!r}: expected two hexadecimal digits after every %") from error
    return b"".join([head, *decoded]).decode()
