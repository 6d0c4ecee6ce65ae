"""Component texts from addresses, with the SDK's own loader and without a network."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import pytest
from kfp import components
from kfp.components import load_yaml_utilities

from spotwright.errors import PipelineError
from spotwright.kfp.compiler_process import checked_downloads

TEXT = "name: a\nimplementation: {container: {image: alpine}}\n"
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the SDK asks for; each gives the text."""
    found: list[str] = []

    def get(url: str, **_: Any) -> Any:
        found.append(url)
        return SimpleNamespace(raise_for_status=lambda: None, content=TEXT.encode())

    monkeypatch.setattr(load_yaml_utilities.requests, "get", get)
    return found


def test_the_digest_is_checked_and_not_sent(asked: list[str]) -> None:
    with checked_downloads() as loaded:
        components.load_component_from_url(f"https://host/a.yaml#sha256={DIGEST}")
        components.load_component_from_url(f"gs://bucket/a.yaml#sha256:{DIGEST.upper()}")
    assert asked == ["https://host/a.yaml", "https://storage.googleapis.com/bucket/a.yaml"]
    assert (loaded.commits, loaded.unpinned) == ({}, {})


@pytest.mark.parametrize(
    ("fragment", "message"),
    [
        ("sha256=abc", "expected #sha256= and 64 hexadecimal digits after it, found #sha256=abc"),
        (f"sha256{DIGEST}", "expected #sha256= and 64"),
        (f"sha256={'0' * 64}", f"its content changed: sha256 {DIGEST}, and the pipeline pins {'0' * 64}"),
    ],
)
def test_a_wrong_digest_and_an_invalid_one_are_refused(asked: list[str], fragment: str, message: str) -> None:
    with checked_downloads(), pytest.raises(PipelineError, match=f"https://host/a.yaml: {message}"):
        components.load_component_from_url(f"https://host/a.yaml#{fragment}")


@pytest.mark.parametrize(
    "address",
    [f"https://raw.githubusercontent.com/o/r/{COMMIT}/a.yaml", f"https://host/a.yaml?ref={COMMIT}"],
)
def test_addresses_with_a_commit_are_recorded_apart_from_others(asked: list[str], address: str) -> None:
    with checked_downloads() as loaded:
        load_yaml_utilities.load_component_from_url(address)
        components.load_component_from_url("https://host/main/a.yaml#L10")
    assert loaded.commits == {address: DIGEST}
    assert loaded.unpinned == {"https://host/main/a.yaml": DIGEST}


def test_the_functions_of_the_sdk_are_restored(asked: list[str]) -> None:
    before = components.load_component_from_url, load_yaml_utilities.load_component_from_text
    with checked_downloads():
        assert components.load_component_from_url is not before[0]
    assert (components.load_component_from_url, load_yaml_utilities.load_component_from_text) == before
    components.load_component_from_text(TEXT)
