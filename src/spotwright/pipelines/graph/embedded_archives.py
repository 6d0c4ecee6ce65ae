"""Check the archive of files inside a component (``embedded_artifact_path``, notebooks): no member may leave its folder.

The SDK packs the files into the component's source, with code that unpacks them by ``tarfile``, which before Python 3.14 follows
any path. An archive of the SDK is always safe; one in a pipeline that another tool wrote need not be.
Source of the form: ``_get_command_and_args_for_lightweight_component`` in ``sdk/python/kfp/dsl/component_factory.py``.
"""

from __future__ import annotations

import base64
import binascii
import io
import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tarfile

__all__ = ["escaping_member"]

_ARCHIVE = re.compile(r"^__KFP_EMBEDDED_ARCHIVE_B64 = '([^']*)'", re.MULTILINE)


def escaping_member(module: str) -> str | None:
    """The first member of a component's archive that would leave its folder; ``None`` where no member would, or no archive is.

    Raises ``ValueError`` for an archive that cannot be read.
    """
    found = _ARCHIVE.search(module)
    if found is None:
        return None
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(found.group(1), validate=True))) as archive:
            return next((member.name for member in archive if _escapes(member)), None)
    except (binascii.Error, tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(f"the archive of its files cannot be read: {error}") from error


def _escapes(member: tarfile.TarInfo) -> bool:
    if member.isdev():
        return True
    places = [member.name]
    if member.issym():
        places.append(posixpath.join(posixpath.dirname(member.name), member.linkname))
    elif member.islnk():
        places.append(member.linkname)
    return any(place.startswith("/") or posixpath.normpath(place).split("/")[0] == ".." for place in places)
