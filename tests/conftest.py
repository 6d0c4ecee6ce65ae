"""How hypothesis searches: the same examples every time, so that `make test` gives one answer for one state of the code.

`pytest --hypothesis-profile=explore` looks further, with other examples each time.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile("steady")
