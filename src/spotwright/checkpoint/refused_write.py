"""Distinguishes a write refused by the file system, as on a full disk, from other errors of a framework's save.

Libraries hide the operating system's error: safetensors puts it into the text of its own (``SafetensorError`` in its
``bindings/python/src/lib.rs``), and ``torch.save`` with a path drops it (``caffe2/serialize/inline_container.cc``).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

__all__ = ["what_refused"]

_OF_SAFETENSORS = re.compile(r"I/O error: ([^()]{1,200}) \(os error \d{1,5}\)")
_OF_TORCH = "inline_container.cc"
_LITTLE = 1 << 20  # bytes; a disk with less is full


def what_refused(error: BaseException, path: Path) -> str | None:
    """Return a sentence with the place, the fault and the fix; ``None`` if ``error`` is about something else.

    ``path`` is the file or the folder that was being written.
    """
    reason = _reason(error, path)
    return None if reason is None else f"{path}: cannot be written ({reason}); free this place, or name another one"


def _reason(error: BaseException, path: Path) -> str | None:
    for each in (error, error.__context__):
        is_network = isinstance(each, ConnectionError | TimeoutError)
        if isinstance(each, OSError) and each.errno is not None and not is_network:
            return each.strerror
    if found := _OF_SAFETENSORS.search(str(error)):
        return found[1]
    if _OF_TORCH in str(error):
        return "No space left on device" if _is_full(path) else "a write by PyTorch failed"
    return None


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _LITTLE
    except OSError:
        return False
