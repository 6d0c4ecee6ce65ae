"""The shortest way to save a state in shards: the ranks exchange their parts by a collective operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from spotwright.checkpoint.save_log import LogEntry
from spotwright.checkpoint.save_manager import SaveManager
from spotwright.checkpoint.sharded_state import RankShard, layout_of_shards

__all__ = ["save_sharded"]


def save_sharded(manager: SaveManager, state: Any, facts: Mapping[str, Any], *, own: Any = None) -> LogEntry | None:
    """Save with all ranks, or in this process alone; rank 0, which has claimed, returns the entry."""
    rank, count = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    shard = RankShard(state, rank, rank, range(count), own=own, copies=None)
    tasks: list[dict[str, Any]] = [{}]
    if rank == 0 and manager.log.claim is not None:
        tasks = [{"token": manager.log.token, "count": manager.begin_shards(), "claim": manager.log.claim.data}]
    if count > 1:
        dist.broadcast_object_list(tasks)
    part = shard.write(manager, **tasks[0])
    parts: list[Any] = [part] * count
    if count > 1:
        dist.all_gather_object(parts, part)
    return manager.commit_shards(tasks[0]["count"], *layout_of_shards(parts), facts, 0.0) if rank == 0 else None
