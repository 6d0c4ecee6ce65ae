"""Whether the process that holds the lease of a run is alive, for processes of this machine or pod."""

from __future__ import annotations

from pathlib import Path

from spotwright.engine.ports import Holder

__all__ = ["is_alive"]

_START_TIME = 19  # the field's number after the name of the program, from 0; see proc(5)


def is_alive(holder: Holder) -> bool:
    """Whether a process lives: a number may belong to another process by now, so its start and the boot are compared too."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        fields = (
            Path(f"/proc/{holder['pid']}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
        )
    except (OSError, KeyError, IndexError):
        return False
    return holder.get("boot_id") == boot and str(holder.get("starttime")) == fields[_START_TIME] and fields[0] != "Z"
