"""Secrets: values are redacted to markers and revealed again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.errors import InputError
from spotwright.kfp.secrets import Reference, Secrets, marker

SECRETS = Secrets(
    {
        "@env:A": "abcd",
        "@env:B": "abcdefgh",
        "@file:it's": "first line\nsecond line",
        "@env:PIN as NUMBER_INTEGER": 123456,
        "@file:j as STRUCT": {"user": "me", "password": "hunter2", "n": [98765]},
        "@env:SHORT": "xy",
        "@env:FLAG as BOOLEAN": True,
    }
)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("abcd", "{{$.secret['@env:A']}}"),
        ("https://u:abcd@host", "https://u:{{$.secret['@env:A']}}@host"),
        ("abcdefgh", "{{$.secret['@env:B']}}"),
        ("xabcdefghx", "x{{$.secret['@env:B']}}x"),
        (123456, "{{$.secret['@env:PIN as NUMBER_INTEGER']}}"),
        ("pin 123456", "pin {{$.secret['@env:PIN as NUMBER_INTEGER#:text']}}"),
        ({"abcd": [1, "abcd"]}, {"{{$.secret['@env:A']}}": [1, "{{$.secret['@env:A']}}"]}),
        (["hunter2"], ["{{$.secret['@file:j as STRUCT#/password']}}"]),
        ("xy", "{{$.secret['@env:SHORT']}}"),
        ("a xy z", "a xy z"),
        ("> first line\nsecond line", "> {{$.secret['@file:it\\'s']}}"),
        (True, True),
        (123456.0, 123456.0),
        (None, None),
    ],
)
def test_a_secret_is_redacted_everywhere_and_revealed_again(value: Any, stored: Any) -> None:
    assert SECRETS.redact(value) == stored
    assert SECRETS.reveal(stored) == value


def test_a_whole_mapping_that_is_a_secret_is_one_marker() -> None:
    whole = {"user": "me", "password": "hunter2", "n": [98765]}
    assert SECRETS.redact(whole) == marker("@file:j as STRUCT")
    assert SECRETS.reveal(marker("@file:j as STRUCT")) == whole


PIECES = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        [
            "abcd",
            "abcdefgh",
            "xy",
            "123456",
            "hunter2",
            "first line\nsecond line",
            "{{$.secret['",
            "']}}",
            "@",
            "\\",
            "'",
        ]
    ),
    st.sampled_from(["@env:A", "@", "@env:PIN as NUMBER_INTEGER", "nothing"]).map(marker),
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
SCALARS = st.one_of(TEXTS, st.none(), st.booleans(), st.integers(123450, 123460), st.floats(allow_nan=False))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


@given(VALUES)
def test_reveal_is_the_inverse_of_redact(value: Any) -> None:
    stored = SECRETS.redact(value)
    assert json.dumps(SECRETS.reveal(stored)) == json.dumps(value)


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield re.sub(r"{{\$\.secret\['(?:[^'\\]|\\.)*'\]}}", "|", value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts_in(key)
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


@given(VALUES)
def test_no_secret_remains_in_stored_data(value: Any) -> None:
    for text in texts_in(SECRETS.redact(value)):
        assert not [secret for secret in ("abcd", "123456", "hunter2", "first line\nsecond line") if secret in text]


@given(TEXTS)
def test_text_without_a_secret_stays_as_it_is(text: str) -> None:
    plain = Secrets()
    assert plain.redact(text) == text == plain.reveal(text)
    assert not plain


def test_a_marker_of_an_unknown_secret_stays() -> None:
    assert SECRETS.reveal(marker("@env:OTHER")) == marker("@env:OTHER")


def test_is_in_finds_the_markers_in_a_stored_value() -> None:
    assert SECRETS.is_in({"a": [SECRETS.redact("-abcd-")]})
    assert SECRETS.is_in(marker("@env:FLAG as BOOLEAN"))
    assert not SECRETS.is_in({"a": ["nothing"]})


def test_no_repr_shows_a_value() -> None:
    shown = f"{SECRETS!r} {SECRETS}"
    assert "@env:A" in shown
    for value in ("abcd", "123456", "hunter2", "second line"):
        assert value not in shown


def test_logs_are_masked_in_every_form_a_program_writes() -> None:
    secrets = Secrets({"@env:S": 'pä"ss\nword\\1'})
    patterns = secrets.patterns()
    secret = 'pä"ss\nword\\1'
    for printed in (secret, json.dumps({"s": secret}), json.dumps(secret, ensure_ascii=False), repr([secret])):
        assert any(pattern in printed.encode() for pattern in patterns), printed
    assert list(patterns) == sorted(patterns, key=len, reverse=True)


def test_short_secrets_and_flags_are_not_masked_in_logs() -> None:
    assert Secrets({"@env:S": "abc", "@env:F as BOOLEAN": True}).patterns() == ()


FILES = {"token": "t0ken\r\n", "conf": '{"a": [1.0]}'}


def read(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path]


def resolved(environ: Mapping[str, str], **arguments: Any) -> tuple[Secrets, dict[str, Any]]:
    return Secrets.resolve(arguments, environ, read)


def test_references_are_resolved_to_the_parameters_type() -> None:
    secrets, stored = resolved(
        {"PIN": "4711"},
        pin=Reference("env", "PIN", "NUMBER_INTEGER"),
        token=Reference("file", "token"),
        conf=Reference("file", "conf", "STRUCT"),
        url="https://t0ken@host",
        plain=3,
    )
    assert stored == {
        "url": "https://{{$.secret['@file:token']}}@host",
        "plain": 3,
        "pin": "{{$.secret['@env:PIN as NUMBER_INTEGER']}}",
        "token": "{{$.secret['@file:token']}}",
        "conf": "{{$.secret['@file:conf as STRUCT']}}",
    }
    assert secrets.reveal(stored) == {
        "pin": 4711,
        "token": "t0ken",
        "conf": {"a": [1]},
        "url": "https://t0ken@host",
        "plain": 3,
    }


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (Reference("env", "NONE"), "environment variable NONE is not set"),
        (Reference("file", "none"), "@file:none: cannot be read: No such file"),
        (Reference("env", "PIN", "NUMBER_INTEGER"), "@env:PIN: its value is not a whole number"),
        (Reference("file", "token", "LIST"), "@file:token: its value is not a list"),
    ],
)
def test_the_error_for_a_broken_reference_shows_no_value(reference: Reference, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        resolved({"PIN": "hunter2"}, a=reference)
    assert "hunter2" not in str(error.value)
    assert error.value.__cause__ is None or "hunter2" not in str(error.value.__cause__)
