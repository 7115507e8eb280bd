"""The head and the groups of workers; all nodes of a group are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from trainyard.spec.docker import Image
from trainyard.spec.fields import (
    Complaint,
    Duration,
    Listed,
    Name,
    Section,
    Size,
    rule,
    same_names,
    setting,
)
from trainyard.spec.ray_nodes import (
    IMAGE_TEXT,
    LABELS_TEXT,
    RAY_START_TEXT,
    RESOURCES_TEXT,
    NodeLabels,
    NodeResources,
    RayStart,
)

# KubeRay would take a worker group of such a name for the head's.
_OF_THE_HEAD = ("head", "headgroup")


def _not_of_the_head(name: str) -> str:
    if name in _OF_THE_HEAD:
        raise ValueError("must not be one of the head's names: head, headgroup")
    return name


GroupName = Annotated[Name, AfterValidator(_not_of_the_head)]


@dataclass(frozen=True)
class NodeSpec:
    """One Ray node, named `head` or GROUP-INDEX."""

    name: str
    group: str
    cpus: int | None
    memory: int | None
    gpus: int
    resources: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    ray_start: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, group: str, declared: Head | WorkerGroup) -> NodeSpec:
        """Build a node with its group's settings."""
        return cls(
            name,
            group,
            declared.cpus,
            declared.memory,
            declared.gpus,
            resources=declared.resources,
            labels=declared.labels,
            ray_start=declared.ray_start,
        )


class Head(Section):
    """The node of Ray's head, with scheduler, dashboard and all runners."""

    cpus: int | None = setting(
        None, "CPUs that Ray may use on the head; 0 keeps tasks off it.", ge=0, le=1024
    )
    memory: Size | None = setting(None, "Memory that Ray may use on the head.")
    gpus: int = setting(0, "Whole GPUs of the head.", ge=0, le=64)
    image: Image | None = setting(None, IMAGE_TEXT)
    resources: NodeResources = setting({}, RESOURCES_TEXT)
    labels: NodeLabels = setting({}, LABELS_TEXT)
    ray_start: RayStart = setting({}, RAY_START_TEXT)


class WorkerGroup(Section):
    """Worker nodes of one shape."""

    name: GroupName = Field(description="The group's name; its nodes are NAME-0, NAME-1 and so on.")
    min: int | None = setting(
        None, "The fewest nodes of a group that grows and shrinks; 0 if left out.", ge=0, le=10_000
    )
    max: int | None = setting(
        None, "The most nodes of a group that grows and shrinks.", ge=1, le=10_000
    )
    count: int | None = setting(
        None,
        "The fixed number of nodes; 1 unless min or max is given instead.",
        ge=0,
        le=10_000,
        validate_default=True,
    )
    cpus: int | None = setting(None, "CPUs that Ray may use on each node.", ge=0, le=1024)
    memory: Size | None = setting(None, "Memory that Ray may use on each node.")
    gpus: int = setting(0, "Whole GPUs of each node.", ge=0, le=64)
    image: Image | None = setting(None, IMAGE_TEXT)
    resources: NodeResources = setting({}, RESOURCES_TEXT)
    labels: NodeLabels = setting({}, LABELS_TEXT)
    ray_start: RayStart = setting({}, RAY_START_TEXT)
    idle_timeout: Duration | None = setting(
        None, "How long a node of a growing group may be idle before it is removed."
    )

    @field_validator("count")
    @classmethod
    def _fixed(cls, count: int | None, info: ValidationInfo) -> int | None:
        grows = info.data.get("min") is not None or info.data.get("max") is not None
        if count is None and not grows:
            return 1
        return count

    def complaints(self) -> Iterator[Complaint]:
        """Require count, or max with an optional min and idle_timeout."""
        if (self.count is None) == (self.max is None) or (
            self.min is not None and self.max is None
        ):
            yield Complaint(
                (),
                "needs either count (a fixed size) or max, perhaps with min (Ray chooses between "
                "them)",
            )
        elif self.max is not None and self.least > self.max:
            yield Complaint(("min",), f"must be at most max ({self.max})", self.min)
        if self.idle_timeout is not None and self.max is None:
            yield Complaint(("idle_timeout",), "has no effect without max: the group never shrinks")

    @property
    def least(self) -> int:
        if self.count is None:
            return self.min or 0
        return self.count

    @property
    def most(self) -> int:
        if self.max is None:
            return self.least
        return self.max

    @property
    def grows(self) -> bool:
        return self.most > self.least


Groups = Annotated[
    Listed[WorkerGroup],
    rule(lambda groups: same_names([group.name for group in groups], "workers")),
]
