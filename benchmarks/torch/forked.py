"""Ranks that are forked from this process, so that PyTorch is imported once."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

__all__ = ["run_ranks"]


def run_ranks(count: int, run: Callable[[int], None]) -> None:
    """Run each rank in a child, and wait for all. Raises RuntimeError if one fails; what went wrong is on standard error.

    This process must not have used a GPU before: CUDA does not work in its children then.
    """
    children = [_fork(rank, run) for rank in range(count)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise RuntimeError(f"a rank ended with the exit codes {codes}")


def _fork(rank: int, run: Callable[[int], None]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        run(rank)
        code = 0
    except BaseException:  # noqa: BLE001  # as an interpreter does
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
