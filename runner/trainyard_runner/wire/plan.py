"""The plan of a run, which the operator's machine writes and the head reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainyard_runner.wire.resume import Resume
from trainyard_runner.wire.room import NO_ROOM, Room


class Shape(NamedTuple):
    """The needs of a task that decide where it fits."""

    amounts: tuple[float | None, ...]
    custom: tuple[tuple[str, float], ...]
    node_name: str | None
    node_group: str | None
    actors: Room


@dataclass(frozen=True)
class Task:
    """One command of the job, with its resources, placement and retries."""

    index: int  # the task's place in the plan, or the repeat of a configuration
    name: str
    command: tuple[str, ...]
    env: dict[str, str]
    cpus: float = 1.0
    gpus: float = 0.0
    memory: int | None = None
    # A part of one node, instead of `cpus`, `gpus` and `memory`: 0.5 is half of the node.
    share: float | None = None
    on_gpus: bool = False  # the share must come from a node with GPUs
    custom: Mapping[str, float] = field(default_factory=dict)  # Ray's custom resources
    node_name: str | None = None
    node_group: str | None = None
    retries: int = 0
    final_exit_codes: tuple[int, ...] = ()  # a task that ends with one of these is not retried
    timeout: float | None = None  # seconds
    outputs: tuple[str, ...] = ()
    watch: dict[str, Any] | None = None  # trainyard/spec/watch.py
    actors: Room = NO_ROOM  # resources to keep free for the task's actors and Ray tasks
    continues: str | None = None  # the former run's task whose checkpoint this task continues

    @property
    def shape(self) -> Shape:
        amounts: tuple[float | None, ...] = (self.cpus, self.gpus, self.memory)
        if self.share is not None:
            amounts = (self.share, self.on_gpus)
        custom = tuple(sorted(self.custom.items()))
        return Shape(amounts, custom, self.node_name, self.node_group, self.actors)


@dataclass(frozen=True)
class ExpectedNode:
    """A node of the cluster file; only an autoscaler makes `optional` ones."""

    name: str
    group: str | None = None
    cpus: int | None = None
    gpus: int = 0
    memory: int | None = None  # bytes
    optional: bool = False
    resources: Mapping[str, float] = field(default_factory=dict)  # Ray's custom resources


@dataclass(frozen=True)
class Gate:
    """The smoke test's settings and expectations.

    `nodes`: the declared nodes, None if unknown. `ray`: the expected version of
    Ray, None for the head's version. `needs`: the job's key `smoke`.
    `names_change`: a recreated node gets another name.
    """

    skip: bool = False
    simulated_gpus: bool = False
    nodes: tuple[ExpectedNode, ...] | None = None
    ray: str | None = None
    needs: dict[str, Any] = field(default_factory=dict)
    names_change: bool = False


@dataclass(frozen=True)
class Plan:
    """The data that the head needs to run a job."""

    run: str
    cluster: str
    gate: Gate
    job: str | None = None
    package: str | None = None
    package_parts: tuple[str, ...] = ()
    runtime_env: dict[str, Any] | None = None
    together: bool = False
    tasks: tuple[Task, ...] = ()
    outputs_each_attempt: bool = False
    outputs_limit: int = 20 * 1024**3  # bytes of one task
    outputs_every: float = 30.0  # seconds
    sweep: dict[str, Any] | None = None  # trainyard/spec/tune.py; `tasks` is empty then
    study: str = ""  # study.journal of the former sweep, if this one continues it
    former: str = ""  # the name of the former sweep's run
    resume: Resume | None = None  # the run that this one resumes; never a sweep


def read(text: bytes) -> Plan:
    """Read the JSON of a plan: the fields of `Plan`."""
    raw: dict[str, Any] = json.loads(text)
    gate = raw["gate"]
    if gate["nodes"] is not None:
        gate["nodes"] = tuple(ExpectedNode(**node) for node in gate["nodes"])

    raw["package_parts"] = tuple(raw["package_parts"])
    raw["tasks"] = tuple(map(task_of, raw["tasks"]))
    raw["gate"] = Gate(**gate)
    raw["resume"] = Resume.of(raw["resume"])
    return Plan(**raw)


def task_of(raw: dict[str, Any]) -> Task:
    """Read a task of a plan or of a sweep's template."""
    fields = dict(raw)
    for name in ("command", "outputs", "final_exit_codes"):
        fields[name] = tuple(raw[name])
    fields["actors"] = Room.of(raw["actors"])
    return Task(**fields)
