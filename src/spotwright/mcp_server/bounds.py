"""The limits of the server: files of the project's folder only, and commands with limited seconds and bytes.

Links are followed before the check whether a file is in the folder. A command is killed with all its processes if it takes too
long or prints too much, or the client goes away.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio
from anyio.abc import ByteReceiveStream, Process

from spotwright.config import FILE_NAME, files_named_in
from spotwright.errors import InputError
from spotwright.visible_text import visible

__all__ = ["MOST_BYTES", "Printed", "Project", "run_command"]

MOST_BYTES = 200_000
"""Most bytes of one answer."""

SECONDS = 120.0
MOST_PRINTED = 32_000_000  # bytes that a command may print; a client gets far less of it
_MOST_ERROR = 100_000  # bytes of the error output
_LONGEST_SENTENCE = 1_000  # characters


class Project(NamedTuple):
    """The folder and the state folder that a server reads. ``writes``: it may cancel runs, write files and run Python files."""

    folder: Path
    state: Path
    writes: bool

    def file(self, name: str) -> Path:
        """The file that a client names, with links followed. Raises :class:`InputError` for a file outside, and for a folder."""
        try:
            path = (self.folder / name).resolve()
            is_file = path.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # a null byte, a name too long, links in a circle
            raise InputError(f"{name!r} is not a file name") from error
        if not path.is_relative_to(self.folder):
            raise InputError(f"{name!r} is outside the project folder {self.folder}: name a file in it")
        if not is_file:
            raise InputError(f"{name!r} is not a file of the project folder {self.folder}")
        return path

    def config(self, file: Path) -> list[str]:
        """The options that name the configuration of a file. Raises :class:`InputError` if that is outside."""
        for folder in [each for each in file.parents if each.is_relative_to(self.folder)]:
            if os.path.lexists(folder / FILE_NAME):
                path = self.file(str(folder / FILE_NAME))
                for named in files_named_in(path):
                    self.file(str(named))
                return ["--config", str(path)]
        outside = next((each for each in self._above() if os.path.lexists(each / FILE_NAME)), None)
        if outside is not None:
            raise InputError(
                f"{outside / FILE_NAME} is outside the project folder: start spotwright mcp --project {outside}"
            )
        return []

    def _above(self) -> Sequence[Path]:
        """The parent folders in the repository, where commands look for a configuration."""
        folders = [self.folder, *self.folder.parents]
        root = next((number for number, each in enumerate(folders) if os.path.lexists(each / ".git")), 0)
        return folders[1 : root + 1]


class Printed(NamedTuple):
    """The result of a command: its output, the lines of its error output, and its exit code."""

    output: str
    notes: list[str]
    code: int


async def run_command(words: Sequence[str], folder: Path, accepts: frozenset[int]) -> Printed:
    """Run a command in a folder. Raises :class:`InputError` with its message for an exit code that is not among ``accepts``."""
    command = [sys.executable, "-m", "spotwright", *words]
    process = await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        start_new_session=True,
    )
    output, errors = bytearray(), bytearray()
    try:
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as both:
                both.start_soon(_read_start, _stream(process.stderr), errors)
                both.start_soon(_read_all, process, output)
            code = await process.wait()
    except TimeoutError:
        raise InputError(f"spotwright {words[0]} took more than {SECONDS:.0f} seconds and was stopped") from None
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    if len(output) > MOST_PRINTED:
        raise InputError(f"spotwright {words[0]} printed more than {MOST_PRINTED:,} bytes and was stopped")
    lines = visible(errors.decode("utf-8", "replace"), block=True).splitlines()
    if code not in accepts:
        raise InputError(_sentence(lines, code))
    return Printed(output.decode("utf-8", "replace"), lines, code)


def _stream(pipe: ByteReceiveStream | None) -> ByteReceiveStream:
    if pipe is None:  # it was requested
        raise AssertionError("a child without a pipe")
    return pipe


async def _read_all(process: Process, into: bytearray) -> None:
    """Read the output; end a process that prints too much."""
    async for piece in _stream(process.stdout):
        into += piece
        if len(into) > MOST_PRINTED:
            _kill(process)
            return


async def _read_start(stream: ByteReceiveStream, into: bytearray) -> None:
    """Read a stream to its end, and keep its beginning."""
    async for piece in stream:
        into += piece[: _MOST_ERROR - len(into)]


async def _end(process: Process) -> None:
    _kill(process)
    await process.aclose()


def _kill(process: Process) -> None:
    """End a process and its children, which are in its process group."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


def _sentence(lines: Sequence[str], code: int) -> str:
    """A command's error message, on one line."""
    for start in ("spotwright: ", "error: "):
        said = next((line.removeprefix(start) for line in lines if line.startswith(start)), "")
        if said:
            return said[:_LONGEST_SENTENCE]
    return next((line[:_LONGEST_SENTENCE] for line in reversed(lines) if line), f"it ended with exit code {code}")
