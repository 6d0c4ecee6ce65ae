"""The project's pages as tests see them: code blocks with their output, links and headings.

A page is a file of the repository, or the generated text of a page of the site.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Block", "Step", "anchors", "blocks", "links", "made", "same", "walk"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_VARYING = re.compile(
    r"(?<![\w.])[+<-]?(?:\d+(?:\.\d+)?(?:ms|s|m\d\ds|h\d\dm)\b"  # durations
    r"|\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d [+-]\d{4})?"  # moments
    r"|\d+\.\d+\b|\d+%"  # amounts and shares
    r"|(?<=epoch )\d+)"  # how far a step had come when its node went
)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str:
        """The name of the file that the block is, by its first line ``# NAME``; empty for any other block."""
        found = re.match(r"# ([\w-]+\.(?:py|yaml))\n", self.text)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a console block with the output on the page."""

    command: str
    output: str
    line: int


def made(path: str) -> str:
    """A page that is made when the site is built, by its path in docs/."""
    from scripts.site_pages import PAGES as MADE  # importing all makers takes a second, which few tests need

    return MADE[path]()


def blocks(page: Path | str) -> list[Block]:
    """The fenced blocks of a page, in order; a text is the page itself."""
    text = page if isinstance(page, str) else page.read_text(encoding="utf-8")
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in _FENCE.finditer(text)]


def walk(page: Path | str, folder: Path) -> Iterator[tuple[Step, str]]:
    """Follow a page in a folder: write its files, run its commands in order. Yields each command with its output."""
    commands = folder / ".bin"
    commands.mkdir()
    (commands / "spotwright").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spotwright "$@"\n')
    (commands / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for command in commands.iterdir():
        command.chmod(0o755)
    home = folder / ".home"  # not the folder itself: a script that runs in its home folder is refused
    home.mkdir()
    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
    environment.pop("SPOTWRIGHT_STATE", None)
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        for step in _steps(block) if block.language == "console" else ():
            done = subprocess.run(
                ["sh", "-c", step.command], cwd=folder, env=environment, text=True, timeout=600,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            yield step, done.stdout


def _steps(block: Block) -> Iterator[Step]:
    """The commands of a console block: lines after ``$``, with those that a backslash joins; the rest is their output."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        found = re.match(r"((?:.*\\\n)*.*\n?)([\s\S]*)", part)
        if found:
            yield Step(found[1].strip(), found[2], block.line)


def same(shown: str, printed: str) -> bool:
    """Whether output matches the page.

    Times, amounts and shares may differ, and with them where lines are wrapped; a line ``...`` matches anything.
    """
    parts = re.split(r"^ *\.\.\. *$", shown, flags=re.MULTILINE)
    return re.fullmatch(".*".join(re.escape(_plain(part)) for part in parts), _plain(printed)) is not None


def _plain(text: str) -> str:
    return "".join(f"{word} " for word in _VARYING.sub("#", text).split())


def links(page: Path) -> list[str]:
    """The targets of the links of a page, without those in blocks of code."""
    return _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {_anchor(found) for found in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def _anchor(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")
