"""Whatever others have named, written or logged: no command of ours sends a control character of it to a terminal."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminals import in_this_process, on_no_terminal
from tests.page.hostile_texts import HOSTILE
from tests.page.recorded import a_story, log_of, recorded

ATTACK = "\x1b]0;a title\x07\x1b]52;c;cm0gLXJmIH4K\x07\x1b[2J\x9b6n\rover\x08\u202e[red]markup[/red]"
MARK = "<U+001B>]52;c;cm0gLXJmIH4K<U+0007>"
_TOO_LONG = 2000  # characters: the system has no such arguments and names
ALL = "".join(text for text in HOSTILE if len(text) < _TOO_LONG and "\0" not in text and text.isprintable() is False)

POOLS = {
    "spot": {"capacity": "spot", "provider": "aks", "node": {"cpu": 8, "memory": "16Gi"}},
    "regular": {"capacity": "on-demand", "provider": "aks", "node": {"cpu": 8, "memory": "16Gi"}},
}


def drives_nothing(sent: bytes) -> bool:
    """Whether a terminal only shows what it was sent."""
    text = sent.decode("utf-8", "backslashreplace")
    return not [one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs") and one not in "\n\t\u200d"]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose task ended with hostile words, which said them in its log as well."""
    folder = tmp_path_factory.mktemp("state")
    words = {"reason": ATTACK, "message": ATTACK, "exit_code": 1, "phase": "Failed"}
    story = a_story(arguments={"text": ATTACK}, pipeline=f"p {ATTACK}").ends("eval", {"last_line": ATTACK}, **words)
    reader = recorded(folder, story)
    log_of(reader.folder, 1, ALL.encode("utf-8", "replace"))
    log_of(reader.folder, 2, ATTACK.encode() + b"\xff\xfe\n")
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("show", "a-run"),
        ("show", "a-run", "eval"),
        ("runs",),
        ("logs", "a-run"),
        ("logs", "a-run", "eval", "1"),
        ("logs", "a-run", "--follow"),
        ("report", "a-run"),
        ("report",),
        ("report", "--csv"),
        ("show", "a-run", "--json"),
        ("report", "--json"),
        ("logs", "a-run", "--json"),
        ("prune", "--dry-run"),
        ("show", ATTACK.replace("\0", "")),
        ("show", "a-run", ATTACK),
        ("logs", "a-run", ATTACK, "1"),
        ("cancel", ATTACK),
    ],
    ids=lambda command: " ".join(command)[:30].replace("\x1b", "ESC"),
)
def test_commands_on_a_state_folder(monkeypatch: pytest.MonkeyPatch, state: Path, command: tuple[str, ...]) -> None:
    sent = in_this_process(monkeypatch, *command, "--state", str(state))
    assert sent
    assert drives_nothing(sent), sent[:3000]


def test_the_words_of_an_end_are_shown(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    assert MARK in in_this_process(monkeypatch, "show", "a-run", "--state", str(state)).decode()


def a_manifest(**names: Any) -> str:
    """A Job with hostile texts where a file may have them, as JSON, which is YAML."""
    container = {"name": names.get("container", "main"), "image": names.get("image", "python:3.12"), "args": [ATTACK]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **names.get("pod", {})}}
    meta = {"name": names.get("name", "train"), "annotations": names.get("annotations", {})}
    return json.dumps(
        {"apiVersion": "batch/v1", "kind": names.get("kind", "Job"), "metadata": meta, "spec": {"template": template}}
    )


MANIFESTS: dict[str, str] = {
    "names": a_manifest(name=ATTACK, container=ATTACK, image=ATTACK),
    "annotations": a_manifest(annotations={ATTACK: ATTACK, "spotwright.dev/policy": ATTACK}),
    "kind": a_manifest(kind=ATTACK),
    "a pool": a_manifest(annotations={"spotwright.dev/policy": json.dumps({"spot": ATTACK})}),
    "selectors": a_manifest(
        pod={"nodeSelector": {ATTACK: ATTACK}, "tolerations": [{"key": ATTACK, "operator": ATTACK}]}
    ),
    "text": f"kind: Job\nmetadata: {{name: \u202e{'x' * 10}}}\n# {ALL}\n",
    "broken": f"kind: [{ATTACK}\n",
    "anchors": f"a: &{'x' * 20}\u202e 1\nb: *\u202e\n",
}
COMMANDS: dict[str, Callable[[Path, Path], tuple[str, ...]]] = {
    "place": lambda file, config: ("place", str(file), "--config", str(config)),
    "place --diff": lambda file, config: ("place", "--diff", str(file), "--config", str(config)),
    "unplace": lambda file, _: ("unplace", str(file)),
    "explain": lambda file, config: ("explain", str(file), "--config", str(config)),
    "lint": lambda file, config: ("lint", str(file), "--config", str(config)),
    "pools check": lambda file, config: ("pools", "check", "--nodes", str(file), "--config", str(config)),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_manifests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    config = tmp_path / "spotwright.yaml"
    config.write_text(json.dumps({"pools": POOLS}), encoding="utf-8")
    files = []
    for number, text in enumerate(MANIFESTS.values()):
        files.append(tmp_path / f"{number}.yaml")
        files[-1].write_bytes(text.encode("utf-8", "replace"))
    for file in files:
        sent = in_this_process(monkeypatch, *COMMANDS[command](file, config))
        assert drives_nothing(sent), (file.read_text(encoding="utf-8"), sent[:3000])


def test_a_file_whose_name_is_hostile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / f"\x1b]0;a title\x07{'.yaml'}"
    file.write_text(a_manifest(), encoding="utf-8")
    for command in ("place", "lint", "explain", "unplace"):
        sent = in_this_process(monkeypatch, command, str(file))
        assert drives_nothing(sent), sent


@pytest.mark.parametrize(
    "content",
    [
        {"pools": {ATTACK: {"capacity": "spot"}}},
        {"pools": {"spot": {"capacity": ATTACK}}},
        {"pools": {"spot": {"capacity": "spot", "labels": {ATTACK: ATTACK}, "machine": ATTACK}}},
        {ATTACK: ATTACK},
        {"pools": POOLS, "policy": {"default": {"spot": ATTACK, ATTACK: 1}}},
    ],
    ids=range(5),
)
def test_a_configuration_that_others_have_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: Any
) -> None:
    config = tmp_path / "spotwright.yaml"
    config.write_text(json.dumps(content), encoding="utf-8")
    for command in (("pools",), ("pools", "command", "spot"), ("pools", "list", "--json")):
        sent = in_this_process(monkeypatch, *command, "--config", str(config))
        assert drives_nothing(sent), sent[:3000]


def test_a_pipe_gets_a_file_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    text = a_manifest() + "\n# \u202e\x85\n"
    file.write_text(text, encoding="utf-8")
    assert "\u202e" in on_no_terminal("unplace", str(file)).decode()
