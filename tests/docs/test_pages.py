"""The pages of the project agree with the code and with each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import pytest
from scripts.make_reference import markdown
from scripts.site_pages import PAGES as MADE
from tests.docs.pages import PAGES, ROOT, Block, anchors, blocks, links, made
from tests.views.builders import Story, a_plan, a_task

import spotwright
from spotwright import config
from spotwright.cli import cli
from spotwright.local.attempt_orders import _environment, _expectations
from spotwright.model.attempts import Cause
from spotwright.model.pools import Capacity, Pool, Simulate
from spotwright.views.account import account
from spotwright.views.account_report import report_json
from spotwright.views.run_json import run_view, summary

BLOCKS = {f"{page.relative_to(ROOT)}:{block.line}": block for page in PAGES for block in blocks(page)}
BESIDE_THE_SITE = [page for page in PAGES if not page.is_relative_to(ROOT / "docs")]


def of(language: str) -> list[Any]:
    """The blocks of one language, as parameters of a test."""
    return [pytest.param(block, id=place) for place, block in BLOCKS.items() if block.language == language]


def named(text: str, *, table: bool = False) -> set[str]:
    """The code spans of a page, everywhere or in the first column of its tables."""
    return set(re.findall(r"^\| `([^`]+)` \|" if table else r"`\"?([\w.-]+)\"?`", text, re.MULTILINE))


@pytest.mark.parametrize("page", BESIDE_THE_SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_a_page_beside_the_site_leads_somewhere(page: Path) -> None:
    """Links of docs/ are checked when the site is built. These pages are read in the repository, without generated pages."""
    dead = []
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def written_paths(page: Path) -> set[str]:
    """Names in code style that look like a file or folder of this project."""
    roots = {path.name for folder in (ROOT, ROOT / "src" / "spotwright") for path in folder.iterdir() if path.is_dir()}
    roots -= {".spotwright", "build"}  # what `make demo` leaves in a clone, and what is built there
    found = re.findall(r"`([\w.-]+/[\w./-]*)`", page.read_text(encoding="utf-8"))
    return {path for path in found if path.partition("/")[0] in roots and path == path.lower()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    places = (ROOT, ROOT / "src" / "spotwright")
    of_the_site = {"docs/kinds", "docs/reference", *(f"docs/{path}" for path in MADE)}
    missing = {path for path in written_paths(page) if not any((place / path).exists() for place in places)}
    assert missing - of_the_site == set()


def test_every_command_and_option_is_documented() -> None:
    page = made("reference/cli.md")
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        _, heading, section = page.partition(f"## spotwright {name}\n")
        assert heading, name
        section = section.partition("\n## ")[0]
        assert all(option in section for parameter in command.params for option in parameter.opts if "-" in option)


def test_every_metric_and_every_kind_of_record_is_documented() -> None:
    source = (ROOT / "src" / "spotwright" / "cluster" / "metrics.py").read_text(encoding="utf-8")
    kinds = [path.stem for path in (ROOT / "charts" / "spotwright" / "crds").glob("*.yaml")]
    metrics, records = made("reference/metrics.md"), made("reference/records.md")

    assert len(kinds) == 5
    assert [kind for kind in kinds if f"kubectl get {kind}s`" not in records] == []
    assert [name for name in re.findall(r'"(spotwright_\w+)"', source) if f"| `{name}` |" not in metrics] == []


def test_every_public_name_is_documented() -> None:
    headings = re.findall(r"^## (\w+)$", made("reference/python.md"), re.MULTILINE)

    assert sorted(headings) == sorted(spotwright.__all__)


def test_every_variable_of_an_attempt_is_documented() -> None:
    pool = Pool("spot", Capacity.SPOT, simulate=Simulate(interrupt_every=60))
    found = {**_environment("/attempt", "/checkpoint", "run", "task", 1), **_expectations(pool, 30, 1)}

    assert named(made("reference/environment.md"), table=True) >= found.keys()


def test_every_key_of_the_json_is_documented() -> None:
    state = Story(a_plan(a_task("train"))).boots("cpu-spot-1").binds("train", "cpu-spot-1").ends("train").state
    page = made("reference/json.md")
    documented = named(page) | set(re.findall(r'"(\w+)"', page))
    view, counted = run_view(state, "r"), report_json(account(state), "r")
    seen = [view, view["tasks"][0], view["tasks"][0]["attempts"][0], view["nodes"][0], summary(state, "r"), counted]
    seen += [counted["pools"][0], counted["attempts_by_start"][0]]

    assert {key for each in seen for key in each} - documented == set()


def test_every_document_behind_json_is_in_its_table() -> None:
    cells = re.findall(r"^\| ([^|]+) \|", made("reference/json.md"), re.MULTILINE)
    shown = {command.removesuffix(" --format json") for cell in cells for command in re.findall("`([^`]+)`", cell)}
    with_json = {
        name
        for name, command in _commands(cli)
        if any("--json" in option.opts for option in command.params if isinstance(option, click.Option))
    }

    assert with_json - shown == set()


def _commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix}{name} ")
        elif command is not None:
            yield f"{prefix}{name}", command


def test_every_package_is_in_the_table_of_layers() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("## Structure of the code")[2].partition("\n## ")[0]
    packages = {path.parent.name for path in (ROOT / "src" / "spotwright").glob("*/__init__.py")}

    assert {name for name in packages if f"`{name}`" not in table} == set()


def test_every_cause_is_in_the_glossary() -> None:
    row = next(
        line for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("| Cause |")
    )

    assert all(cause in row for cause in Cause)


@pytest.mark.parametrize("block", [each for each in of("yaml") if "apiVersion:" not in each.values[0].text])
def test_every_configuration_in_the_docs_is_one(block: Block) -> None:
    assert config.parse(block.text, traces_exist=False).pools


@pytest.mark.parametrize("block", of("python"))
def test_every_piece_of_python_in_the_docs_is_python(block: Block) -> None:
    ast.parse(block.text)


def test_a_docstring_becomes_markdown() -> None:
    docstring = """Give ``x`` to :class:`~a.b.Thing`::

        use(x)

    More of :func:`that`.
    """
    assert markdown(docstring) == "Give `x` to `Thing`:\n\n```python\nuse(x)\n```\n\nMore of `that`."


def test_helms_lists_are_quoted_because_shells_replace_braces() -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    assert [name for name, text in pages.items() if re.search(r"--set [\w.]+=\{", text)] == []
    assert "--set 'namespaces={team-a,team-b}'" in pages["install.md"]
