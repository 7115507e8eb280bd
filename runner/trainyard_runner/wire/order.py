"""An order: the data that the head sends a node to run one attempt."""

from __future__ import annotations

from typing import Any, TypedDict


class Restored(TypedDict):
    """An archive of outputs, which is unpacked after `removed` is deleted."""

    removed: list[str]
    parts: list[Any]  # references into Ray's object store


class _OnNode(TypedDict, total=False):
    ray_address: str  # set by the node: the head's address, as this node reaches it


class Order(_OnNode):
    """One attempt of a task.

    An order is a dict, because Ray unpickles it before a node has this package.
    """

    run: str
    task: str
    index: int  # the task's place in the run
    count: int  # number of the run's tasks
    attempt: int
    command: list[str]
    env: dict[str, str]
    ray_environment: dict[str, Any]  # the runtime_env of the command's own Ray tasks and actors
    has_own_package: bool  # the attempt gets its own copy of `ray_environment`'s working directory
    cpus: float
    gpus: float
    timeout: float | None  # seconds
    outputs: list[str]  # declared outputs
    watch: dict[str, Any] | None  # trainyard/spec/watch.py
    master: str | None  # in a gang, the address of the first task's node
    together: bool  # the task is one of a gang
    every: float  # seconds between looks at the attempt's outputs
    limit: int  # most bytes of the outputs, and of a checkpoint
    held: int | None  # as in node/outputs.py:OutputWatch
    checkpoint: list[Any]  # references to parts of the checkpoint to begin from
    restored: list[Restored]
