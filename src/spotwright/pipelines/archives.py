"""Files that a component brings with it (``embedded_artifact_path``, notebooks): no member of the archive may leave its folder.

The SDK packs them into the component's source, and code that it writes there unpacks them with ``tarfile``, which before
Python 3.14 follows any path. What the SDK has packed is always sound; a pipeline that another tool wrote need not be.
Source of the form: ``_get_command_and_args_for_lightweight_component`` in ``sdk/python/kfp/dsl/component_factory.py``.
"""

from __future__ import annotations

import base64
import binascii
import io
import posixpath
import re
import tarfile

__all__ = ["leaving_member"]

_ARCHIVE = re.compile(r"^__KFP_EMBEDDED_ARCHIVE_B64 = '([^']*)'", re.MULTILINE)


def leaving_member(module: str) -> str | None:
    """The first member of a component's archive that would leave its folder; ``None`` where there is none, or no archive.

    Raises ``ValueError`` for an archive that cannot be read.
    """
    found = _ARCHIVE.search(module)
    if found is None:
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(found.group(1), validate=True))) as archive:
            return next((member.name for member in archive if _leaves(member)), None)
    except (binascii.Error, tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(f"the archive of its files cannot be read: {error}") from error


def _leaves(member: tarfile.TarInfo) -> bool:
    if member.isdev():
        return True
    places = [member.name]
    if member.issym():
        places.append(posixpath.join(posixpath.dirname(member.name), member.linkname))
    elif member.islnk():
        places.append(member.linkname)
    return any(place.startswith("/") or posixpath.normpath(place).split("/")[0] == ".." for place in places)
