"""What placing a text with anchors, aliases and merge keys has to give: what placing the same values without them gives."""

from __future__ import annotations

from typing import Any

import yaml
from tests import plain_yaml
from tests.placing.placed import FILE, PREFER, a_config

from spotwright.config import Config
from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.documents import parse

__all__ = ["assert_placed_as_written_out", "values", "written_out"]

RECORD = "spotwright.dev/placed"


class _NoAliases(yaml.CSafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        return True


def values(text: str) -> list[Any]:
    """The values of the documents of a text, as Kubernetes reads them: tags of no plain type count as nothing."""
    return [document.get(()) for document in parse(text, FILE)]


def written_out(text: str) -> str:
    """The documents of a text without anchors, aliases, merge keys and tags."""
    return yaml.dump_all(values(text), Dumper=_NoAliases, sort_keys=False, allow_unicode=True, width=10**6)


def _without_record(value: Any) -> Any:
    """A value without records, and without what was added for them alone."""
    if isinstance(value, list):
        return [_without_record(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: _without_record(item) for key, item in value.items() if key != RECORD}
    return {key: item for key, item in inner.items() if not (key in ("metadata", "annotations") and item == {})}


def assert_placed_as_written_out(text: str, settings: Config | None = None, *, anew: bool = True) -> str:
    """Place a text; check that it means what the written-out text means when placed, and that unplace gives its bytes back.

    After a tool has written it out, an equal document comes back; also after a tool has written it ``anew`` with aliases of its
    own. Returns the placed text.
    """
    settings = settings or a_config(PREFER)
    placed = place_text(text, FILE, settings).text
    expected = place_text(written_out(text), FILE, settings).text

    assert _without_record(values(placed)) == _without_record(values(expected))
    assert place_text(placed, FILE, settings).text == placed
    assert unplace_text(placed, FILE).text == text
    assert values(unplace_text(written_out(placed), FILE).text) == values(text)
    if anew:
        written = plain_yaml.dump_all(values(placed), sort_keys=False)
        assert values(unplace_text(written, FILE).text) == values(text)
    return placed
