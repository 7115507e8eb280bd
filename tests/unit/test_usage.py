"""The use of a cluster: Ray's answer, and how it is printed."""

from __future__ import annotations

import pytest

from trainyard.backends.contract import ClusterStatus, NodeStatus
from trainyard.console.report import Table
from trainyard.operations.usage import RunNow, Usage
from trainyard.seams.ray_types import Amounts, usage_from
from trainyard.tasks import cluster_status

GIB = 2**30


def summary(**said: str) -> dict[str, object]:
    raylets = [{"raylet": {"nodeId": f"id-{name}", "nodeName": name}} for name in ("head", "gpu-0")]
    return {
        "data": {
            "summary": raylets,
            "nodeLogicalResources": {f"id-{name}": text for name, text in said.items()},
        }
    }


@pytest.mark.parametrize(
    ("said", "used", "free"),
    [
        (
            "0.0/2.0 CPU\n0B/1.00GiB memory\n0B/300.00MiB object_store_memory",
            (0, 0, 0),
            (2, 0, GIB),
        ),
        (
            "1.5/4.0 CPU\n2.0/2.0 GPU\n512.00MiB/1.00GiB memory",
            (1.5, 2, GIB / 2),
            (2.5, 0, GIB / 2),
        ),
        # Resources of a placement group are free to no other task, used or not.
        (
            "1.0/4.0 CPU (1.0 used of 3.0 reserved in placement groups)\n0B/1.00GiB memory",
            (3, 0, 0),
            (1, 0, GIB),
        ),
    ],
)
def test_used_and_free_resources_are_read_from_rays_output(
    said: str, used: tuple[float, ...], free: tuple[float, ...]
) -> None:
    found = usage_from(summary(head=said))
    assert {
        name: [(one.cpus, one.gpus, one.memory) for one in both] for name, both in found.items()
    } == {"head": [used, free]}


def test_the_status_of_a_cluster_names_free_resources_and_runs() -> None:
    nodes = tuple(NodeStatus(name, name, "127.0.0.1", "up", 4, 2) for name in ("head", "gpu-0"))
    usage = Usage(
        {"head": (Amounts(3, 0.5, GIB), Amounts(1, 1.5, GIB))},
        (
            RunNow("cartpole-1", "cartpole", "anna", 3, 12, 75.0),
            RunNow("raysubmit_1", None, None, None, None, None),
        ),
    )

    shown = cluster_status.status_report(ClusterStatus("lab", "local", "up", nodes), usage).body
    assert [list(map(list, part.rows)) for part in shown if isinstance(part, Table)] == [
        [
            ["head", "head", "127.0.0.1", "up", 4, "2", "1 CPU, 1.5 GPUs, 1.0 GiB"],
            ["gpu-0", "gpu-0", "127.0.0.1", "up", 4, "2", "?"],
        ],
        [
            ["cartpole-1", "cartpole", "anna", 3, 12, "1 min 15 s"],
            ["raysubmit_1", None, None, "?", "?", "–"],
        ],
    ]
