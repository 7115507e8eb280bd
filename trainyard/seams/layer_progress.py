"""How far a pull or push is: Docker reports every layer by itself, people want one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MB = 1_000_000

# What Docker says when a layer needs nothing more (docker/distribution, pull and push).
_ENDED = frozenset({"Pull complete", "Already exists", "Pushed", "Layer already exists"})
_MOVING = frozenset({"Downloading", "Pushing"})


class LayerTally:
    """Counts layers and bytes of one pull or push."""

    def __init__(self) -> None:
        self._ended: dict[str, bool] = {}
        self._bytes: dict[str, tuple[int, int]] = {}

    def saw(self, entry: Mapping[str, Any]) -> bool:
        """Take one entry of Docker's stream; say whether it was about a layer."""
        layer, status = entry.get("id"), entry.get("status", "")
        if not layer or status.startswith(("Pulling from", "Digest", "Status")):
            return False
        self._ended[layer] = status in _ENDED or status.startswith("Mounted from")
        detail = entry.get("progressDetail") or {}
        if status in _MOVING and detail.get("total"):
            self._bytes[layer] = (detail.get("current", 0), detail["total"])
        elif layer in self._bytes:
            self._bytes[layer] = (self._bytes[layer][1],) * 2
        return True

    def text(self) -> str:
        """Return how far it is: `2 of 5 layers, 31 of 120 MB`."""
        ended, total = sum(self._ended.values()), len(self._ended)
        moved = sum(current for current, _ in self._bytes.values()) / MB
        whole = sum(size for _, size in self._bytes.values()) / MB
        counted = f"{ended} of {total} layers"
        return f"{counted}, {moved:.0f} of {whole:.0f} MB" if whole >= 1 else counted
