"""The regular expressions of the package take time with the length of a text alone, or meet short texts only."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import spotwright
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.kinds.katib import _without_markers

SOURCE = Path(spotwright.__file__).parent
METHODS = ("match", "fullmatch", "search", "sub", "subn", "findall", "finditer", "split")
SHORT, LONG = 1_000, 4_000

GUARDED: Mapping[str, str] = {
    "clouds/label_values.py": "region_of and is_region look at 63 characters",
    "cluster/autoscaler_status.py": "a message of an Event has 1,024 characters",
    "model/quantities.py": "a quantity or a duration has 64 characters",
}
"""Modules that limit the length of what they look at, with the limit."""

OF_THEIR_USER = (
    "analysis.py",
    "cli/",
    "config/price_sheet",
    "kfp/",
    "linter/",
    "local/",
    "page/",
    "placing/documents.py",
    "rehearsal/",
    "runs/",
    "pools/",
)
"""Modules that read files and texts of the user who runs the command, on that machine: others do not wait."""


class Pattern(NamedTuple):
    place: str
    text: str | bytes
    flags: int
    methods: frozenset[str]


def patterns() -> Iterator[Pattern]:
    for file in sorted(SOURCE.rglob("*.py")):
        place = str(file.relative_to(SOURCE))
        if place.startswith((*OF_THEIR_USER, *GUARDED)):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_of_re(node.func)]
        if not calls:
            continue
        module = f"spotwright.{place.removesuffix('.py').replace('/', '.')}"
        for call in calls:
            function = call.func.attr  # type: ignore[attr-defined]
            try:
                text = _text(call.args[0], module)
            except NameError:
                continue  # it is made of what comes later: escaped texts
            flags = [
                each for each in (*call.args[1:], *(one.value for one in call.keywords)) if "re." in ast.unparse(each)
            ]
            flag = sum(int(eval(ast.unparse(each), {"re": re})) for each in flags)  # noqa: S307
            methods = _used(tree, call) if function == "compile" else frozenset({function})
            yield Pattern(f"{place}:{call.lineno}", text, flag, methods)


def _text(pattern: ast.expr, module: str) -> Any:
    """The text of a pattern. Only one that is made of names needs its module, which may need more than is installed."""
    source = ast.unparse(pattern)
    try:
        return eval(source, {"re": re})  # noqa: S307  # our own source
    except NameError:
        return eval(source, dict(vars(importlib.import_module(module))))  # noqa: S307


def _is_of_re(function: ast.expr) -> bool:
    is_re = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re"
    return is_re and function.attr in (*METHODS, "compile")  # type: ignore[attr-defined]


def _used(tree: ast.Module, call: ast.Call) -> frozenset[str]:
    """The methods that are called on a compiled pattern, by its name in the module."""
    holders = [
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and any(one is call for one in ast.walk(node))
    ]
    names = {one.id for holder in holders for one in holder.targets if isinstance(one, ast.Name)}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    }
    return frozenset(used & set(METHODS)) or frozenset({"search", "fullmatch"})


def patterns_of_records() -> Iterator[Pattern]:
    """The patterns that the records of providers have as texts."""
    for provider in PROVIDERS.values():
        rules = (provider.naming, provider.naming_on_windows)
        for text in (provider.group, *(rule.pattern for rule in rules if rule is not None)):
            yield Pattern(f"clouds/provider_records.py: {provider.name}: {text}", text, 0, frozenset({"fullmatch"}))


ALL = [*patterns(), *patterns_of_records()]


def seeds(pattern: Pattern) -> list[str]:
    """Texts from which a pattern's worst cases are made: possible beginnings, and its own characters."""
    text = pattern.text.decode("latin-1") if isinstance(pattern.text, bytes) else pattern.text
    literal = re.findall(r"[\w .:/-]+", re.sub(r"\\[a-zA-Z]|\{\d*,?\d*\}|\(\?P<\w+>|\(\?[:=!<]*", " ", text))
    characters = dict.fromkeys([*re.sub(r"[\\^$?*+|]", "", text)[:24], "a", "0", " ", "\n", "(", "{", "[", ".", "-"])
    single = [*characters]
    pairs = [one + other for one in single[:9] for other in single[:9] if one != other]
    return [*single, *pairs, *literal[:12], "{{", "$(", "0.", "a.", "a-", "a/", "(0", "[1"]


def cost(compiled: re.Pattern[Any], method: str, text: Any) -> float:
    began = time.thread_time()
    if method in ("sub", "subn"):
        compiled.sub(text[:0], text)
    elif method == "finditer":
        for _ in compiled.finditer(text):
            pass
    else:
        getattr(compiled, method)(text)
    return time.thread_time() - began


def linear(short: float, long: float) -> bool:
    """Whether the seconds of a text four times as long are about four times as many; a quadratic pattern takes 16 times."""
    return long < 8 * short + 0.001


def quickest(compiled: re.Pattern[Any], method: str, texts: list[Any]) -> tuple[float, float]:
    """The least seconds of a short and a long text, in turns: other processes of the machine make a single turn slower."""
    short = long = float("inf")
    for _ in range(12):
        short = min(short, cost(compiled, method, texts[0]))
        long = min(long, cost(compiled, method, texts[1]))
        if linear(short, long):
            break
    return short, long


def test_the_package_has_patterns_that_meet_foreign_texts() -> None:
    assert len(ALL) > 50


@pytest.mark.parametrize("pattern", ALL, ids=lambda one: one.place)
def test_a_pattern_takes_time_with_the_length_of_the_text_alone(pattern: Pattern) -> None:
    compiled = re.compile(pattern.text, pattern.flags)
    for seed in seeds(pattern):
        for method in pattern.methods:
            for end in ("", "\x01"):
                texts: list[Any] = [(seed * size)[:size] + end for size in (SHORT, LONG)]
                if isinstance(pattern.text, bytes):
                    texts = [text.encode("utf-8", "replace") for text in texts]
                long = cost(compiled, method, texts[1])
                if long > 0.002:  # else it is quick whatever it does
                    short, long = quickest(compiled, method, texts)
                    assert linear(short, long), f"{method} of {seed!r}: {short:.5f} s, then {long:.5f} s"


@pytest.mark.parametrize("text", ["0", "0.", "1h", "west", "a-a1", "us-east", "7 "])
def test_what_is_guarded_is_quick_for_long_texts(text: str) -> None:
    from spotwright.clouds.label_values import is_region, region_of
    from spotwright.model.quantities import parse_duration, parse_price, parse_quantity, parse_resource

    long = text * 50_000
    began = time.thread_time()
    for read in (
        is_region,
        region_of,
        parse_duration,
        parse_price,
        parse_quantity,
        lambda one: parse_resource("cpu", one),
    ):
        try:
            read(long)
        except ValueError:
            continue
    assert time.thread_time() - began < 0.1


def test_markers_of_a_trial_take_time_with_their_length_alone() -> None:
    for text in ("{{" * 50_000, "{" * 100_000, "{{x" * 50_000, "{{.a}}" * 20_000, "{{ " + "x" * 100_000):
        began = time.thread_time()
        hidden = _without_markers(text)
        assert time.thread_time() - began < 0.5
        assert len(hidden) == len(text)
    assert _without_markers("a {{ b") == "a {{ b"
