"""Let concurrent tasks, one per GPU of a node, report the GPUs they see."""

from __future__ import annotations

import os
import time
from typing import Any

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_list, _internal_kv_put

_NAMESPACE = b"trainyard"
_EVERY = 0.05
# Seconds that a task waits for the node's other tasks. A worker for a GPU task takes 0.6 to 1.9 s
# to start, and ten times as long on a busy node.
MEET_SECONDS = 20.0


def look(question: dict[str, Any]) -> dict[str, Any]:
    """Wait until all tasks of the node run; return the GPUs of this task.

    `question`: "meeting" is the barrier's name, "index" this task's number,
    "count" the number of tasks. In the answer, "assigned" lists the GPUs from
    Ray, "visible" is CUDA_VISIBLE_DEVICES, and "met" is false if some tasks did
    not run within MEET_SECONDS.
    """
    found = {
        "assigned": [str(gpu) for gpu in ray.get_gpu_ids()],
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    met = _meet(question["meeting"], question["index"], count=question["count"])
    return {**found, "met": met}


def forget(meeting: str) -> None:
    _internal_kv_del(_key(meeting), del_by_prefix=True, namespace=_NAMESPACE)


def _meet(meeting: str, index: int, *, count: int) -> bool:
    key = _key(meeting) + str(index).encode()
    _internal_kv_put(key, b"here", overwrite=True, namespace=_NAMESPACE)
    give_up = time.monotonic() + MEET_SECONDS
    while len(_internal_kv_list(_key(meeting), namespace=_NAMESPACE)) < count:
        if time.monotonic() > give_up:
            return False
        time.sleep(_EVERY)
    return True


def _key(meeting: str) -> bytes:
    return f"gpus:{meeting}:".encode()
