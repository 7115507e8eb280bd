"""What the steps of `cluster.up` are called."""

from __future__ import annotations

import os
from pathlib import Path

from trainyard.backends.contract import Tools
from trainyard.backends.local import machine, records
from trainyard.backends.local.layout import node_plans
from trainyard.backends.local.records import ClusterFiles
from trainyard.backends.local.up import up_steps
from trainyard.seams import processes
from trainyard.spec import ClusterSpec

LAB = ClusterSpec.model_validate(
    {"name": "lab", "backend": "local", "head": {"cpus": 1}, "workers": [{"name": "cpu", "count": 2, "cpus": 1}]}
)


def start_titles(state: Path) -> list[str]:
    return [step.title for step in up_steps(LAB, Tools(state, {})) if step.title.startswith("Start")]


def test_a_new_cluster_is_started_as_a_whole(tmp_path: Path) -> None:
    assert start_titles(tmp_path) == ["Start the head and 2 workers"]


def test_a_repair_names_the_nodes_that_it_starts(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    files.prepare()
    alive = processes.identify(os.getpid())
    assert alive is not None
    head, first, _ = node_plans(LAB, cpus=machine.cpus(), memory=machine.memory(), gpu_ids=())
    for plan in (head, first):
        records.write_node(files, plan, gcs_port=1000, process=alive)
    assert start_titles(tmp_path) == ["Start cpu-1"]
