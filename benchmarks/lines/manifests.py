"""Manifests: documents placed a second with the self-check on, and one document of 10 MB."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from bench import Bench, BenchmarkError
from results import Judged, Row

from spotwright.config import Config, load
from spotwright.errors import SpotwrightError
from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.documents import parse

HERE = Path(__file__).resolve().parents[2]
GOLDEN = HERE / "tests" / "kinds" / "golden"
DOCUMENTS = 1000


def manifests(bench: Bench) -> Iterator[Row]:
    """Mixed kinds in one stream, beside PyYAML's C parser and emitter on the same text, which keep nothing of its form."""
    config = load(HERE / "examples" / "charmed" / "spotwright.yaml")
    text = mixed_manifests(config)
    count = len(parse(text, "mixed.yaml"))
    placed, yamls = [], []
    for _ in range(bench.times(5, 2)):
        placed.append(count / _seconds(lambda: place_text(text, "mixed.yaml", config)))
        yamls.append(count / _seconds(lambda: _written_anew(text)))
    yield Row(
        "manifests", f"{count} documents of mixed kinds placed and checked", placed, "documents/s", Judged.VALUE, 1500,
        beside="PyYAML load and dump", theirs=yamls, at_least=True,
    )  # fmt: skip
    result = place_text(text, "mixed.yaml", config).text
    if unplace_text(result, "mixed.yaml").text != text:
        raise BenchmarkError("what was placed did not come out again to the same bytes")
    large = _large()
    seconds = [_seconds(lambda: place_text(large, "large.yaml", config)) for _ in range(bench.times(3, 1))]
    yield Row("manifests", f"one document of {len(large) / 1e6:.0f} MB placed", seconds, "s", Judged.VALUE, 3.0)


def mixed_manifests(config: Config) -> str:
    """About a thousand documents: the inputs of the golden files that this configuration can place, again and again."""
    texts = []
    for path in sorted(GOLDEN.glob("*/in.yaml")):
        text = path.read_text().removeprefix("---\n")
        try:
            place_text(text, path.name, config)
        except SpotwrightError:
            continue  # asks for pools of another configuration
        texts.append(text if text.endswith("\n") else text + "\n")
    if len(texts) < 5:
        raise BenchmarkError("the golden files are missing")
    once = sum(len(parse(text, "x")) for text in texts)
    return "---\n".join(texts * (DOCUMENTS // once + 1))


def _large() -> str:
    """One Job whose container has a very long environment."""
    lines = "".join(f"        - name: VARIABLE_{i}\n          value: {'x' * 150}\n" for i in range(55_000))
    return (
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: large\nspec:\n  template:\n    spec:\n"
        f"      restartPolicy: Never\n      containers:\n      - name: main\n        image: python\n        env:\n{lines}"
    )


def _written_anew(text: str) -> None:
    for document in yaml.load_all(text, Loader=yaml.CSafeLoader):
        yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False)


def _seconds(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before
