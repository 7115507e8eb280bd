"""Stand-in for Ray, for schola-train: prints its calls, and rejects what Ray 2.60 rejects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__version__ = "2.60.0"


def init(**how: Any) -> None:
    print("ray.init", how)


def shutdown() -> None:
    print("ray.shutdown")


def nodes() -> list[dict[str, Any]]:
    other = {"CPU": 4.0, "node:10.0.0.1": 1.0}
    mine = {"CPU": 4.0, "node:__internal_head__": 1.0, "node:10.0.0.2": 1.0}
    return [{"NodeID": "other", "Resources": other}, {"NodeID": "mine", "Resources": mine}]


def get_runtime_context() -> Any:
    return SimpleNamespace(get_node_id=lambda: "mine")
