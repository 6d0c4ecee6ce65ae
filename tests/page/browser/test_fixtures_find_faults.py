"""Whatever is wrong with a page in Chromium fails its test, under the policy of the page, and nothing is found in a good page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.page.browser.chromium_pages import ChromiumPages, axe
from tests.page.browser.small_site import document, served

FAULTS = {
    "a message of an error": ("console.error('it broke')", "", "it broke"),
    "an exception": ("setTimeout(() => { throw new Error('not caught') })", "", "not caught"),
    "a promise that nobody catches": ("Promise.reject(new Error('rejected'))", "", "rejected"),
    "a missing file": ("import('/missing.js').catch(() => {})", "", "404"),
    "an inline script": ("", "<script>document.title = 'evil'</script>", "script-src-elem refuses inline"),
    "an inline handler": ("", "<button onclick='evil()'>x</button>", "script-src-attr refuses inline"),
    "an inline style": ("", "<p style='color: red'>x</p>", "style-src-attr refuses inline"),
    "markup from text": ("document.body.innerHTML = '<b>x</b>'", "", "require-trusted-types-for"),
    "code from text": ("new Function('return 1')()", "", "require-trusted-types-for"),
    "an image from elsewhere": ("", "<img alt=x src='http://192.0.2.1/x.png'>", "img-src refuses http://192.0.2.1/x.png"),
    "a request to elsewhere": ("fetch('http://192.0.2.1/x').catch(() => {})", "", "connect-src refuses http://192.0.2.1/x"),
    "a link to another port": ("location.href = 'http://127.0.0.1:9/'", "", "leaves the origin"),
}  # fmt: skip


@pytest.mark.parametrize(("script", "body", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found(chromium: Browser, script: str, body: str, fault: str) -> None:
    pages = ChromiumPages(chromium)
    with served(document(body) | {"/script.js": script}) as url:
        page = pages.open(url)
        page.wait_for_timeout(50)
        pages.close()

    assert fault in "\n".join(pages.unexpected())


def test_a_fault_that_the_test_causes_may_be_allowed(open_page: Callable[..., Page]) -> None:
    with served(document("") | {"/script.js": "console.error('it broke')"}) as url:
        open_page(url, allow="it broke")


def test_nothing_is_wrong_with_a_good_page(open_page: Callable[..., Page]) -> None:
    script = "document.querySelector('p').textContent = 'written'"
    with served(document("<p>text</p><img alt='a dot' src='data:,'>") | {"/script.js": script}) as url:
        page = open_page(url, color_scheme="dark", viewport={"width": 360, "height": 640})

        expect(page.locator("p")).to_have_text("written")
        assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches && innerWidth === 360")
        assert axe(page) == []


def test_axe_works_under_the_policy_and_names_the_element(open_page: Callable[..., Page]) -> None:
    with served(document("<input id=nameless>") | {"/script.js": ""}) as url:
        found = axe(open_page(url))

    assert found == ["label (critical): #nameless: Form elements must have labels"]
