"""MkDocs calls this during a build: it adds the pages that are generated from the code, and the tables inside other pages.

A page of docs/ asks for such a table by a comment, ``<!-- made: NAME -->``. Links to files beside docs/ lead to their page of
the site, or lose their link without one. In the navigation ``FOLDER/*`` means the pages of a folder, by name.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]  # MkDocs loads this file by its path

from scripts.site_pages import BESIDE, PAGES, TABLES  # noqa: E402

__all__ = ["in_site", "on_config", "on_files", "on_page_markdown", "ranking"]

RANKING: Mapping[str, Mapping[str, Any]] = yaml.load(
    (ROOT / "scripts" / "search.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_MADE = re.compile(r"^<!-- made: ([\w-]+) -->$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Replace ``FOLDER/*`` in the navigation by the folder's pages; a site built by mike has a version selector."""
    if "MIKE_DOCS_VERSION" in os.environ:  # elsewhere there is no list of versions to ask for
        config.extra["version"] = {"provider": "mike"}
    written = [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    config.nav = _filled(config.nav, sorted({*written, *PAGES}, key=lambda path: path.rpartition("/")[2]))
    return config


def _filled(entries: Sequence[Any], pages: Sequence[str]) -> list[Any]:
    named = {entry for entry in entries if isinstance(entry, str)}
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, Mapping):
            found.append(
                {name: below if isinstance(below, str) else _filled(below, pages) for name, below in entry.items()}
            )
        elif entry.endswith("/*"):
            found += [page for page in pages if page.startswith(entry[:-1]) and page not in named]
        else:
            found.append(entry)
    return found


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Insert the tables into a page, keep its links inside the site, and set its search rank."""
    how = ranking(page.file.src_uri)
    page.meta["search"] = {key: how[key] for key in ("boost", "exclude") if key in how}
    page.meta["tags"] = how.get("words", [])  # invisible, but the search weighs them more than titles
    return in_site(markdown, page.file.src_uri)


def ranking(path: str) -> Mapping[str, Any]:
    """The entry of search.yaml for a page of docs/."""
    beginnings = [beginning for beginning in RANKING if path.startswith(beginning)]
    return RANKING[max(beginnings, key=len)] if beginnings else {}


def in_site(markdown: str, path: str) -> str:
    """The text of a page of docs/ as the site has it; raises ``KeyError`` for a table that is not made."""
    text = _MADE.sub(lambda found: TABLES[found[1]](), markdown)
    return _LINK.sub(lambda found: _link(found, path), text)


def _link(found: re.Match[str], path: str) -> str:
    text, (target, hash_, anchor) = found[1], found[2].partition("#")
    if "://" in target or not target:
        return found[0]
    where = posixpath.normpath(posixpath.join("docs", posixpath.dirname(path), target))
    if where.startswith("docs/"):
        return found[0]
    if where not in BESIDE:
        return text
    return f"[{text}]({posixpath.relpath(BESIDE[where], posixpath.dirname(path) or '.')}{hash_}{anchor})"
