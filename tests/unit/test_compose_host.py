"""What may be too little on a Docker host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from trainyard.backends.compose.host import warnings
from trainyard.backends.ray_nodes import NodePlan, Room, node_plans
from trainyard.seams.docker.engine import Engine
from trainyard.spec import ClusterSpec

GIBIBYTE = 1024**3


@dataclass(frozen=True)
class Host:
    """A Docker engine of which only the size of its machine is asked."""

    memory: int

    def info(self) -> dict[str, Any]:
        return {"MemTotal": self.memory}


def plans(*, workers: int) -> tuple[NodePlan, ...]:
    spec = ClusterSpec.model_validate(
        {"name": "lab", "backend": "compose", "workers": [{"name": "w", "count": workers}]}
    )
    return node_plans(spec, Room(cpus=2, memory=8 * GIBIBYTE, gpu_ids=()), simulated=False, machine="the Docker host")


def test_object_stores_that_fit_into_half_of_the_host_are_fine() -> None:
    assert warnings(cast(Engine, Host(memory=8 * GIBIBYTE)), plans(workers=3), None) == []


def test_object_stores_of_more_than_half_of_the_host_are_a_warning() -> None:
    hint = "write less `memory` for the nodes, or a smaller compose.shm_size"
    assert warnings(cast(Engine, Host(memory=8 * GIBIBYTE)), plans(workers=4), None) == [
        f"the nodes' object stores may take 5GiB of the host's 8GiB of memory: {hint}"
    ]
