"""The site builds without a dead link, leads everywhere, and its search finds what people ask for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.docs.pages import PAGES, ROOT
from tests.docs.site import build, found_by, served
from tests.page.browser.chromium_pages import ChromiumPages

pytestmark = pytest.mark.slow

MOST_WORDS = 60_000
"""Of all that people write by hand for readers: more is not read."""

QUESTIONS = {
    "does my step resume": "how-to/rehearse.html",
    "run on spot with kubeflow pipelines": "how-to/cluster/run-on-kubeflow-pipelines.html",
    "tolerations for AKS spot": "how-to/pools/aks.html",
    "why was my pod interrupted": "failure-matrix.html",
    "GKE spot GPU from zero": "how-to/pools/gke.html",
    "retry only on preemption": "how-to/choose-a-policy.html",
    "hugging face trainer resume after preemption": "tutorial-torch.html",
    "deadline cheapest": "how-to/plan-a-run.html",
    "install helm": "how-to/cluster/install.html",
    "uninstall": "how-to/cluster/remove.html",
    "logs of a deleted pod": "how-to/read-logs-and-reports.html",
    "what did spot save": "explanation/money.html",
    "Katib on spot": "kinds/katib.html",
    "webhook latency": "how-to/cluster/monitor-the-controller.html",
    "exit code 86": "failure-matrix.html",
}
"""Searches of users, and the page that answers them."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with served(site) as address:
        yield address


@pytest.fixture(scope="module")
def open_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens an address in Chromium; an error on the page and a request that leaves the site fail the test."""
    pages = ChromiumPages(chromium)
    yield pages.open
    pages.close()
    assert pages.unexpected() == []


def test_the_site_has_the_pages_that_are_made_and_loads_nothing_from_elsewhere(site: Path) -> None:
    assert (site / "reference" / "cli.html").exists()
    assert (site / "kinds" / "training" / "pytorchjob.html").exists()
    loaded = {
        found
        for path in site.rglob("*.html")
        for found in re.findall(
            r'<(?:script|img)[^>]* src="(http[^"]+)|<link rel="stylesheet" href="(http[^"]+)', path.read_text()
        )
    }
    assert loaded == set()


def test_a_dead_link_or_anchor_ends_the_build(tmp_path: Path) -> None:
    copy = tmp_path / "docs"
    copy.mkdir()
    (copy / "index.md").write_text("# Home\n\n[gone](gone.md) [there](other.md#nowhere)\n")
    (copy / "other.md").write_text("# Other\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = re.sub(r"\nhooks:\n.*?\n\n", "\n", settings, flags=re.DOTALL).partition("\nnav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(settings)

    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")

    assert done.returncode != 0
    assert "'gone.md', but the target is not found" in done.stderr
    assert "does not contain an anchor '#nowhere'" in done.stderr


def test_what_is_written_by_hand_is_short_enough_to_be_read() -> None:
    written = [path for path in PAGES if path.parent == ROOT or path.is_relative_to(ROOT / "docs")]
    words = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").split()) for path in written}

    longest = sorted(words.items(), key=lambda item: -item[1])[:10]
    assert sum(words.values()) <= MOST_WORDS, f"the longest: {longest}"


def test_the_readme_is_short_and_shows_first_what_it_does() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()

    assert len(lines) <= 150
    assert any("docs/pictures/timeline.png" in line for line in lines[:12])
    assert any("make demo" in line for line in lines[:16])


@pytest.mark.browser
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_first_hit_of_the_search_answers_a_question(
    question: str, address: str, open_page: Callable[..., Page]
) -> None:
    assert found_by(open_page(address), address, question)[0] == QUESTIONS[question]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the commit that is checked out as two versions, as the branch of a clone has them."""
    clone, folder = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("versions")
    names = {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # mike starts mkdocs by its name
    env = {**os.environ, **names, "PATH": programs, "NO_MKDOCS_2_WARNING": "1"}

    def do(*command: str) -> None:
        done = subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    do("git", "clone", "--quiet", "--shared", str(ROOT), ".")
    for words in (["0.1"], ["--update-aliases", "0.2", "latest"]):
        do("mike", "deploy", *words)
    do("mike", "set-default", "latest")
    do("git", f"--work-tree={folder}", "checkout", "--quiet", "gh-pages", "--", ".")
    return folder


@pytest.mark.browser
@pytest.mark.long
def test_a_reader_changes_to_another_version(versions: Path, open_page: Callable[..., Page]) -> None:
    with served(versions) as address:
        page = open_page(f"{address}/0.1/how-to/rehearse.html")
        links = page.locator(".md-version__link")
        expect(links).to_have_text(["0.2", "0.1"])
        page.locator(".md-version").hover()
        links.first.click()
        page.wait_for_url(f"{address}/0.2/**")
        page.goto(f"{address}/")
        page.wait_for_url(f"{address}/latest/")
        page.close()  # before its server stops: it may still load its icon


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_fits_its_window(scheme: str, width: int, address: str, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{address}/index.html", color_scheme=scheme, viewport={"width": width, "height": 900})

    expect(page.get_by_role("heading", name="Spotwright", level=1)).to_be_visible()
    assert page.locator("body").get_attribute("data-md-color-scheme") == {"light": "default", "dark": "slate"}[scheme]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
