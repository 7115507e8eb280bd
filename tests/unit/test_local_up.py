"""What the steps of `cluster.up` are called."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from trainyard import steps
from trainyard.backends.contract import Tools
from trainyard.backends.local import machine, records
from trainyard.backends.local.layout import node_plans
from trainyard.backends.local.records import ClusterFiles
from trainyard.backends.local.up import up_steps
from trainyard.errors import RequestError
from trainyard.seams import processes
from trainyard.spec import ClusterSpec

LAB = ClusterSpec.model_validate(
    {"name": "lab", "backend": "local", "head": {"cpus": 1}, "workers": [{"name": "cpu", "count": 2, "cpus": 1}]}
)


def start_titles(state: Path) -> list[str]:
    return [step.title for step in up_steps(LAB, Tools(state, {}, "local")) if step.title.startswith("Start")]


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


def test_another_head_is_planned_with_what_differs_and_refused_unless_it_is_meant(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    files.prepare()
    alive = processes.identify(os.getpid())
    assert alive is not None
    for plan in node_plans(LAB, cpus=machine.cpus(), memory=machine.memory(), gpu_ids=()):
        records.write_node(files, plan, gcs_port=1000, process=alive)
    other = LAB.model_copy(update={"head": LAB.head.model_copy(update={"cpus": 2}), "env": {"NAME": "secret"}})
    tools = Tools(tmp_path, {}, "local")
    planned = steps.plan(up_steps(other, tools))
    assert (planned[0].title, planned[0].state, planned[0].detail) == (
        "Replace the head that runs",
        "would",
        "needs --recreate, which ends everything on the cluster: cpus: 1 now, 2 wanted; env.NAME is new",
    )
    with pytest.raises(RequestError) as caught:
        up_steps(other, tools)[0].do()
    assert caught.value.lines() == [
        "the head in the cluster file is not the head that runs; to replace it ends everything on the cluster",
        "  at cpus: 1 now, 2 wanted; env.NAME is new",
        "  -> If that is meant: invoke cluster.up --recreate",
    ]
    assert "Replace the head that runs" not in [step.title for step in up_steps(other, replace(tools, recreate=True))]
