"""Files that components bring with them."""

from __future__ import annotations

import base64
import io
import tarfile

import pytest
from tests.kfp.builders import python_container

from spotwright.kfp.task_reader import Unsupported, escaping_member, read_executor


def module(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> str:
    """A component's source with an archive of one member, as the SDK writes it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        archive.addfile(member)
    return f"import kfp\n__KFP_EMBEDDED_ARCHIVE_B64 = '{base64.b64encode(packed.getvalue()).decode()}'\n"


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("../x", tarfile.REGTYPE, ""), ("a/../../x", tarfile.REGTYPE, ""), ("/etc/x", tarfile.REGTYPE, ""),
        ("a/x", tarfile.SYMTYPE, "../../etc"), ("x", tarfile.SYMTYPE, "/etc"), ("x", tarfile.LNKTYPE, "../y"),
        ("x", tarfile.CHRTYPE, ""),
    ],
)  # fmt: skip
def test_a_member_that_leaves_the_folder_of_its_archive_is_refused_before_the_run(
    name: str, kind: bytes, link: str
) -> None:
    with pytest.raises(Unsupported, match=f"has the member '{name}', which points outside the archive"):
        read_executor({"container": python_container(source=module(name, kind, link))})


@pytest.mark.parametrize(("name", "kind", "link"), [("a/b", tarfile.REGTYPE, ""), ("a/x", tarfile.SYMTYPE, "../b")])
def test_members_inside_the_folder_are_accepted(name: str, kind: bytes, link: str) -> None:
    assert escaping_member(module(name, kind, link)) is None
    assert escaping_member("import kfp") is None


def archive(*members: tuple[str, bytes, str]) -> str:
    """A component's source with an archive of these members: name, kind and target of a link."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            made.addfile(member)
    return f"__KFP_EMBEDDED_ARCHIVE_B64 = '{base64.b64encode(packed.getvalue()).decode()}'\n"


UP = [("p/q/r", tarfile.DIRTYPE, ""), ("p/q/r/up", tarfile.SYMTYPE, "../..")]


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ([*UP, ("esc", tarfile.SYMTYPE, "p/q/r/up/../.."), ("esc/pwned", tarfile.REGTYPE, "")], "esc"),
        ([("l", tarfile.SYMTYPE, "."), ("m", tarfile.SYMTYPE, "l/../x")], "m"),
        ([("d/l", tarfile.SYMTYPE, ".."), ("d/l/../x", tarfile.REGTYPE, "")], "d/l/../x"),
        ([("a", tarfile.SYMTYPE, "b"), ("b", tarfile.SYMTYPE, "a"), ("a/x", tarfile.REGTYPE, "")], "a/x"),
        ([*UP, ("h", tarfile.LNKTYPE, "p/q/r/up/../../etc")], "h"),
        ([*UP, ("inside", tarfile.SYMTYPE, "p/q/r/up/q"), ("inside/x", tarfile.REGTYPE, "")], None),
        ([("x" * 5000, tarfile.REGTYPE, "")], "x" * 5000),
    ],
)
def test_members_are_followed_through_the_links_before_them(
    members: list[tuple[str, bytes, str]], found: str | None
) -> None:
    assert escaping_member(archive(*members)) == found


def test_an_archive_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Unsupported, match="the archive of its files cannot be read"):
        read_executor({"container": python_container(source="__KFP_EMBEDDED_ARCHIVE_B64 = 'AAAA'\n")})
