"""Notices: one interface to every source that announces the end of this node, from a file to the clouds' metadata servers.

Each provider has its own format, and answers may be late, repeated, withdrawn or missing. Training code and the node agent both
read notices through this package. So it needs only the standard library, is cheap to import, and never mistakes a malformed
answer for a notice.

::

    from spotwright.notices import NoticeWatch, from_environment

    source = from_environment(os.environ)
    if source is not None:
        NoticeWatch(source, lambda notice: print("this node goes:", notice)).start()
"""

from __future__ import annotations

from spotwright.notices.from_env import from_environment
from spotwright.notices.notice import KINDS, Notice, NoticeWatch, Source, SourceError

__all__ = ["KINDS", "Notice", "NoticeWatch", "Source", "SourceError", "from_environment"]
