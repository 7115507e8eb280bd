"""An order: one attempt, as the head gives it to the node that runs it."""

from __future__ import annotations

from typing import Any, TypedDict


class Restored(TypedDict):
    """An archive of the task's outputs; `removed` files go before it is unpacked."""

    removed: list[str]
    parts: list[Any]  # references into Ray's object store


class _OnNode(TypedDict, total=False):
    ray_address: str  # set by the node; the head's address as that node knows it


class Order(_OnNode):
    """A dict, not a dataclass: Ray unpickles it before a node has this package."""

    run: str
    task: str
    index: int  # of the task in its run
    count: int  # tasks of the run
    attempt: int
    command: list[str]
    env: dict[str, str]
    ray_environment: dict[str, Any]  # the runtime_env of the command's own Ray tasks and actors
    has_own_package: bool  # `ray_environment` gets a working directory that no other attempt has
    cpus: float
    gpus: float
    timeout: float | None  # seconds
    outputs: list[str]  # declared ones
    watch: dict[str, Any] | None  # trainyard/spec/watch.py
    grace: float  # seconds from SIGTERM to SIGKILL
    master: str | None  # of a gang: the address of its first task's node
    together: bool  # it is one of a gang
    every: float  # seconds from one look at its outputs to the next
    limit: int  # bytes of its outputs
    held: int | None  # bytes of partial archives that the head has; None if it has none
    checkpoint: list[Any]  # references to the parts of the checkpoint to begin with
    restored: list[Restored]
