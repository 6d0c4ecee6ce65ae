"""When this node goes: one interface over everything that says so, from a file to the clouds' metadata servers.

Every provider tells it in its own words, and all of them at a bad moment: the answers come late, come twice, are taken back, or
do not come at all. Training code and the node agent both read them through this package, so it is the standard library only,
costs little to import, and never takes a strange answer for a notice.

::

    from spotwright.notices import Watch, from_environment

    source = from_environment(os.environ)
    if source is not None:
        Watch(source, lambda notice: print("this node goes:", notice)).start()
"""

from __future__ import annotations

from spotwright.notices.notice import KINDS, Notice, Source, SourceError
from spotwright.notices.surroundings import from_environment
from spotwright.notices.watching import Watch

__all__ = ["KINDS", "Notice", "Source", "SourceError", "Watch", "from_environment"]
