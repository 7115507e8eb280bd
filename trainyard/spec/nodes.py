"""Head and groups of workers: sections of the cluster file; and the Ray nodes that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from trainyard.spec.fields import Complaint, Duration, Name, Section, Size, setting
from trainyard.spec.units import SIZES, format_size

SMALLEST_NODE = 128 * SIZES["MiB"]


def _not_head(name: str) -> str:
    if name == "head":
        raise ValueError("must not be 'head': that is the head node's name")
    return name


def _large_enough(memory: int) -> int:
    """Return a node's memory that Ray can start with: its object store alone takes at least 75 MiB."""
    if memory < SMALLEST_NODE:
        raise ValueError(f"must be at least {format_size(SMALLEST_NODE)}, which Ray itself needs")
    return memory


GroupName = Annotated[Name, AfterValidator(_not_head)]
NodeMemory = Annotated[Size, AfterValidator(_large_enough)]


@dataclass(frozen=True)
class NodeSpec:
    """One Ray node that the file asks for: `head`, or `<group>-<index>`."""

    name: str
    group: str
    cpus: int | None
    memory: int | None
    gpus: int


class Head(Section):
    """The node that holds Ray's head: scheduler, dashboard, and the runner of every run."""

    cpus: int | None = setting(None, "CPUs that Ray may use on the head; 0 keeps tasks off it.", ge=0, le=1024)
    memory: NodeMemory | None = setting(None, "Memory that Ray may use on the head.")
    gpus: int = setting(0, "Whole GPUs of the head.", ge=0, le=64)


class WorkerGroup(Section):
    """Nodes that are alike."""

    name: GroupName = Field(description="The group's name; its nodes are NAME-0, NAME-1 and so on.")
    min: int | None = setting(
        None, "The fewest nodes of a group that grows and shrinks; 0 if left out.", ge=0, le=10_000
    )
    max: int | None = setting(None, "The most nodes of a group that grows and shrinks.", ge=1, le=10_000)
    count: int | None = setting(
        None, "How many nodes, fixed; 1 unless min and max are given instead.", ge=0, le=10_000, validate_default=True
    )
    cpus: int | None = setting(None, "CPUs that Ray may use on each node.", ge=0, le=1024)
    memory: NodeMemory | None = setting(None, "Memory that Ray may use on each node.")
    gpus: int = setting(0, "Whole GPUs of each node.", ge=0, le=64)
    idle_timeout: Duration | None = setting(
        None, "How long a node of a growing group may be idle before it is removed."
    )

    @field_validator("count")
    @classmethod
    def _fixed(cls, count: int | None, info: ValidationInfo) -> int | None:
        grows = info.data.get("min") is not None or info.data.get("max") is not None
        return count if count is not None or grows else 1

    def complaints(self) -> Iterator[Complaint]:
        """Complain unless a group is either fixed (count) or grows and shrinks (min, max)."""
        if self.count is not None and (self.min is not None or self.max is not None):
            yield Complaint((), "has count as well as min or max: count is a fixed size, min and max let Ray choose")
        elif self.min is not None and self.max is None:
            yield Complaint((), "has min but no max: give max too, or count for a fixed size")
        elif self.min is not None and self.max is not None and self.min > self.max:
            yield Complaint(("min",), f"must be at most max ({self.max})", self.min)
        if self.idle_timeout is not None and self.max is None:
            yield Complaint(("idle_timeout",), "means something only for a group with min and max")

    @property
    def wanted(self) -> int:
        return self.min or 0 if self.count is None else self.count

    @property
    def most(self) -> int:
        return self.wanted if self.max is None else self.max

    @property
    def grows(self) -> bool:
        return self.most > self.wanted
