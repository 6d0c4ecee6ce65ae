"""A checkpoint by a hostile writer restores nothing outside its target, whatever its names and links are."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint.places import MemoryStore

from spotwright.checkpoint import BrokenCheckpoint, Checkpoint, Directory, PlaceError, UnstorableState
from spotwright.checkpoint import file_values as module
from spotwright.links_below import is_plain, leads_to

FILE = {"x": False, "b": 0}


def manifest(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"name": "folder", "entries": list(entries)}


def folders(path: str) -> list[dict[str, Any]]:
    parts = path.split("/")
    return [{"path": "/".join(parts[: count + 1])} for count in range(len(parts))]


def content(_index: int) -> list[bytes]:
    return [b"owned"]


def restored(tmp_path: Path, *entries: dict[str, Any]) -> list[str]:
    """The content of the folder above the target after a load and a restore, or after their refusal."""
    above = tmp_path / "above"
    above.mkdir()
    try:
        module.decode_directory(manifest(*entries), content).restore(above / "target")
    except (BrokenCheckpoint, OSError):
        assert not (above / "target").exists()
    return sorted(path.name for path in above.iterdir() if path.name != "target")


UP: list[dict[str, Any]] = [*folders("p/q/r"), {"path": "p/q/r/up", "link": "../.."}]


@pytest.mark.parametrize(
    "entries",
    [
        [*UP, {"path": "esc", "link": "p/q/r/up/../.."}, {"path": "esc/pwned", **FILE}],
        [*UP, {"path": "esc", "link": "p/q/r/up/../../other"}],
        [{"path": "d"}, {"path": "d/l", "link": "."}, {"path": "m", "link": "d/l/../../.."}],
        [{"path": "a", "link": "b"}, {"path": "b", "link": "a"}],
        [{"path": "l", "link": "x"}, {"path": "l/pwned", **FILE}],
        [{"path": "f", **FILE}, {"path": "f/below", **FILE}],
        [{"path": "nowhere/f", **FILE}],
        [{"path": "n" * 256, **FILE}],
        [{"path": "/".join("n" * 250 for _ in range(20)), **FILE}],
        [{"path": "\ud800", **FILE}],
        [{"path": "l", "link": "\ud800"}],
        [{"path": "l", "link": "x" * 5000}],
        [{"path": "l", "link": "a\0b"}],
        [{"path": "l", "link": 7}],
        [{"path": "l", "link": ["x"]}],
        [{"path": ["x"], **FILE}],
        [{"path": "d"}, {"path": "d", **FILE}],
    ],
    ids=lambda entries: str(entries[-1])[:60],
)
def test_a_manifest_that_would_leave_its_folder_writes_nothing(tmp_path: Path, entries: list[dict[str, Any]]) -> None:
    assert restored(tmp_path, *entries) == []


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"path": "a"}, {"path": "a"}], "a name twice: 'a'"),
        ([{"path": "a", **FILE}, {"path": "a", "link": "b"}], "a name twice: 'a'"),
        ([{"path": "a", "b": 0}], "does not say whether it is executable: 'a'"),
        ([{"path": "a", "x": "yes", "b": 0}], "does not say whether it is executable: 'a'"),
        ([{"path": "a/b", **FILE}], "whose parent is not a folder: 'a/b'"),
        (folders("/".join("d" * 300)), "nested deeper than 200 levels"),
    ],
)
def test_a_manifest_that_cannot_be_restored_is_found_when_it_is_loaded(
    entries: list[dict[str, Any]], words: str
) -> None:
    with pytest.raises(BrokenCheckpoint, match=words):
        module.decode_directory(manifest(*entries), content)


def test_a_folder_too_deep_to_be_restored_is_not_saved(tmp_path: Path) -> None:
    (tmp_path / "top" / "/".join("d" * 201)).mkdir(parents=True)
    with pytest.raises(UnstorableState, match="nested deeper than 200 levels"):
        module.encode_directory(Directory(tmp_path / "top"), lambda _: 0, UnstorableState)


def test_the_deepest_folder_is_restored(tmp_path: Path) -> None:
    inner = tmp_path / "top" / "/".join("d" * 200)
    inner.mkdir(parents=True)
    (inner / "f").write_text("x")
    node = module.encode_directory(Directory(tmp_path / "top"), lambda _: 0, UnstorableState)
    module.decode_directory(node, content).restore(tmp_path / "again")
    assert (tmp_path / "again" / "/".join("d" * 200) / "f").read_bytes() == b"owned"


def test_links_that_stay_are_kept_also_through_one_another(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [*UP, {"path": "esc", "link": "p/q/r/up/q"}, {"path": "dangling", "link": "p/none"}]
    assert restored(tmp_path, *entries) == []
    assert (tmp_path / "above" / "target" / "esc").resolve() == tmp_path / "above" / "target" / "p" / "q"


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_link_that_appears_while_a_folder_is_restored_is_not_followed(tmp_path: Path, *, is_replaced: bool) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def swap(index: int) -> list[bytes]:
        if index == 0 and is_replaced:
            (building,) = (path for path in (tmp_path / "above").iterdir() if path.name.startswith("."))
            (building / "d").rmdir()
            (building / "d").symlink_to(outside)
        return [b"owned"]

    (tmp_path / "above").mkdir()
    entries: list[dict[str, Any]] = [{"path": "d"}, {"path": "a", **FILE}, {"path": "d/b", "x": False, "b": 1}]
    directory = module.decode_directory(manifest(*entries), swap)
    if is_replaced:
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            directory.restore(tmp_path / "above" / "target")
    else:
        directory.restore(tmp_path / "above" / "target")
    assert list(outside.iterdir()) == []
    assert [path.name for path in (tmp_path / "above").iterdir()] == ([] if is_replaced else ["target"])


@pytest.mark.parametrize("becomes", ["link", "pipe", "device"])
def test_a_file_that_becomes_something_else_while_it_is_saved_is_refused(tmp_path: Path, becomes: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "f").write_text("x")
    (tmp_path / "secret").write_text("secret")
    blobs: list[Any] = []

    def add(blob: Any) -> int:
        blobs.append(blob)
        return 0

    module.encode_directory(Directory(source), add, UnstorableState)
    (source / "f").unlink()
    if becomes == "link":
        (source / "f").symlink_to(tmp_path / "secret")
    elif becomes == "pipe":
        os.mkfifo(source / "f")
    else:
        (source / "f").symlink_to("/dev/zero")
    with pytest.raises(UnstorableState):
        list(blobs[0]())


def test_a_device_in_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "pipe")
    with pytest.raises(UnstorableState, match="neither a file nor a folder"):
        module.encode_directory(Directory(tmp_path / "source"), lambda _: 0, UnstorableState)


# The place itself, on a volume that others write to as well


def an_entry(place: Path, number: int, data: Any) -> None:
    body = json.dumps(data).encode()
    (place / f"entry-{number:010d}").write_bytes(b"%08x " % zlib.crc32(body) + body)


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "save", "token": 1, "state": "../secret", "format": 1, "size": 9, "sum": 0, "program": ""},
        {"kind": "save", "token": 1, "state": "/etc/passwd", "format": 1, "size": 9, "sum": 0, "program": ""},
        {"kind": "save", "token": 1, "state": "state-1", "format": 1},
        {"kind": "save", "token": "x", "state": "state-1", "format": 1},
        {"kind": "claim", "base": "x", "format": 1},
        {"kind": ["x"], "format": 1},
        {"format": "x"},
        {},
        [1],
        "text",
        None,
    ],
    ids=str,
)
def test_an_entry_of_the_log_that_is_none_opens_no_file_elsewhere(tmp_path: Path, data: Any) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "secret").write_text("secret")
    an_entry(place, 1, {"kind": "claim", "base": None, "format": 1, "program": "", "past": [0, 0.0]})
    an_entry(place, 2, data)
    with Checkpoint(place, writer=False) as ckpt:
        try:
            assert ckpt.load(default="nothing") == "nothing"
        except BrokenCheckpoint as error:
            assert "secret" not in str(error)  # noqa: PT017  # one of the two


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_an_entry_that_is_no_file_is_neither_followed_nor_waited_for(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    entry = place / "entry-0000000001"
    if kind == "link":
        (tmp_path / "secret").write_text("secret")
        entry.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(entry)
    else:
        entry.mkdir()
    with pytest.raises(PlaceError, match=r"entry-0000000001: (cannot be read|not a file)"):
        Checkpoint(place, writer=False).load()


@pytest.mark.parametrize("tree", [{"~": "directory", "name": "d"}, {"~": "directory", "name": 1, "entries": []}])
def test_a_tree_without_what_it_needs_is_a_broken_checkpoint(tree: Any) -> None:
    assert is_broken(tree)


@pytest.mark.parametrize(
    "tree",
    [
        {"~": "bytes", "b": -1},
        {"~": "bytes", "b": "x"},
        {"~": "bytes", "b": 10**30},
        {"~": "ndarray", "b": 0, "dtype": "<f8", "shape": [10**15]},
        {"~": "ndarray", "b": 0, "dtype": "<f8", "shape": [-1]},
        {"~": "file", "name": "f", "b": 5, "x": False},
        {"~": "int", "v": "zz"},
        {"~": "tuple", "v": None},
        {"~": "directory", "name": "d", "entries": [{"b": 0}]},
        {"~": "directory", "name": "d", "entries": [5]},
    ],
    ids=str,
)
def test_a_malformed_value_is_a_broken_checkpoint(tree: Any) -> None:
    assert is_broken(tree)


def is_broken(tree: Any) -> bool:
    """Whether the load of a state file with this tree is refused as broken."""
    from spotwright.checkpoint import state_file
    from spotwright.checkpoint.encoding import decode

    store = MemoryStore()
    with store.write("state-1") as file:
        written = state_file.write(file, tree, [lambda: [memoryview(b"12345678")]])
    opened = store.open("state-1")
    assert opened is not None
    try:
        decode(state_file.Reader(opened, "state-1", written["size"], written["sum"]), lambda _: [])
    except BrokenCheckpoint:
        return True
    return False


# The rule itself


@pytest.mark.parametrize(
    ("path", "links", "place"),
    [
        ("a/b", {}, ("a", "b")),
        ("./a//b/.", {}, ("a", "b")),
        ("a/../b", {}, ("b",)),
        ("..", {}, None),
        ("a/../..", {}, None),
        ("/a", {}, None),
        ("l/x", {("l",): "d"}, ("d", "x")),
        ("l/..", {("l",): "d/e"}, ("d",)),
        ("l/../..", {("l",): "d"}, None),
        ("l", {("l",): "l"}, None),
        ("l", {("l",): "/etc"}, None),
        ("", {}, ()),
    ],
)
def test_a_path_is_followed_as_a_kernel_does(path: str, links: dict[Any, str], place: Any) -> None:
    assert leads_to(path, links) == place


def test_a_chain_of_links_costs_no_more_than_a_kernel_follows() -> None:
    links: dict[tuple[str, ...], str] = {(f"l{number}",): f"l{number + 1}/x" for number in range(10_000)}
    assert leads_to("l0", links) is None
    assert not is_plain("a/" * 100_000)
