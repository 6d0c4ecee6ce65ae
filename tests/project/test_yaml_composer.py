"""The shared YAML composer: one set of bounds for configuration and manifests, and the events of each document."""

from __future__ import annotations

import pytest
import yaml

from spotwright import config
from spotwright.errors import InputError
from spotwright.placing.documents import parse
from spotwright.yaml_composer import MAX_DEPTH, ComposeError, MappingNode, compose, events_of

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)
)
REFUSED = {
    "deep": ("a: " + "[" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} levels"),
    "bomb": (BOMB, "the aliases unfold to more than"),
    "no anchor": ("a: *b\n", "the alias *b names no anchor that ended before it"),
    "its own anchor": ("a: &b [*b]\n", "the alias *b names no anchor that ended before it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_configuration_and_a_manifest_are_refused_alike(case: str) -> None:
    text, message = REFUSED[case]
    for read in (config.parse, lambda given: parse(given, "it.yaml")):
        with pytest.raises(InputError) as refused:
            read(text)
        assert message in str(refused.value)


def test_an_alias_bomb_is_refused_before_it_unfolds() -> None:
    with pytest.raises(ComposeError) as refused:
        list(compose(BOMB))
    assert refused.value.line < 10


def test_values_without_aliases_have_no_bound() -> None:
    [composed] = compose("a: [" + "1," * 200_000 + "]", max_unfolded=10)
    assert isinstance(composed.root, MappingNode)
    assert len(composed.root.data["a"]) == 200_000


def test_the_events_of_a_document_are_those_that_begin_its_nodes_each_once() -> None:
    text = "# first\na: [1, {b: &x !t two}]\nc: *x\n--- last\n"
    mapping, scalar = yaml.MappingStartEvent, yaml.ScalarEvent
    first, last = compose(text)

    events = list(events_of(first.root))
    assert [event.__class__ for event in events] == [
        mapping,
        scalar,
        yaml.SequenceStartEvent,
        scalar,
        mapping,
        *3 * [scalar],
    ]
    assert [event.tag for event in events if event.tag] == ["!t"]
    assert [event.value for event in events_of(last.root)] == ["last"]


def test_the_line_of_a_document_counts_from_the_beginning_of_its_file() -> None:
    assert [document.line for document in compose("# first\na: 1\n--- last\n", above=10)] == [12, 13]


def test_a_lenient_caller_finds_equal_keys_among_the_pairs() -> None:
    [composed] = compose("a: 1\na: 2\n", lenient=True)
    assert isinstance(composed.root, MappingNode)
    assert composed.root.data == {"a": 1}
    assert [key.value for key, _ in composed.root.value] == ["a", "a"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &x {b: &x 1}\nc: *x\n", 1),
        ("a: &x {b: &x 1, c: *x}\nd: &x 2\nc: *x\n", 2),
        ("&x a: 1\nc: *x\n", "a"),
        ("a: &x [&x one, &x two]\nc: *x\n", "two"),
        ("a: &x {b: 1}\nc: {!!merge <<: *x}\n", {"b": 1}),
    ],
)
def test_an_alias_names_the_last_anchor_that_began_before_it(text: str, value: object) -> None:
    [composed] = compose(text)
    assert isinstance(composed.root, MappingNode)
    assert composed.root.data["c"] == value


@pytest.mark.parametrize("word", ["!!int ''", "!!int '-'", "!!float ''", "!!bool maybe", "1" + ":00" * 200 + ".5"])
def test_a_scalar_that_its_tag_does_not_fit_is_a_text(word: str) -> None:
    [composed] = compose(f"a: {word}\n")
    assert isinstance(composed.root, MappingNode)
    assert isinstance(composed.root.data["a"], str)
