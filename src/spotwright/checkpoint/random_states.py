"""The states of a process' random generators, as values of JSON: Python's, NumPy's and PyTorch's.

NumPy's is the global one that ``np.random.seed`` seeds. A program must save its other generators itself.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

__all__ = ["capture", "put_back"]


def capture() -> dict[str, Any]:
    """Return the states of this process."""
    name, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002  # the global one
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), position, has_gauss, gauss],
        "cpu": _text(torch.get_rng_state()),
    }
    if torch.cuda.is_available():
        states["cuda"] = [_text(each) for each in torch.cuda.get_rng_state_all()]
    return states


def put_back(states: dict[str, Any]) -> None:
    """Set the states from :func:`capture`, directly or after a JSON round trip."""
    version, keys, gauss = states["python"]
    random.setstate((version, tuple(keys), gauss))
    name, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    torch.set_rng_state(_tensor(states["cpu"]))
    if "cuda" in states and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([_tensor(each) for each in states["cuda"]])


def _text(state: torch.Tensor) -> str:
    return bytes(state.numpy()).hex()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
