"""Nodes that Trainyard makes: those that stay, go or are started, and the messages about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_ray import FakeRay
from tests.unit.step_lists import refuse_lost_ids
from trainyard import steps
from trainyard.backends.contract import Site
from trainyard.backends.shared import ray_nodes, record, single_host
from trainyard.backends.shared.leash import Leash
from trainyard.backends.shared.logs import LogFile
from trainyard.backends.shared.ray_nodes import Capacity, NodePlan
from trainyard.backends.shared.single_host import Machine, ObservedNode
from trainyard.errors import (
    NotReadyError,
    OutsideError,
    PrerequisiteError,
    RequestError,
    TrainyardError,
)
from trainyard.seams.ray_types import node_from
from trainyard.spec.cluster import ClusterSpec

GIBIBYTE = 1024**3
CPU = {"name": "cpu", "count": 2, "cpus": 1}
ALL = ("head", "cpu-0", "cpu-1")


def spec_of(backend: str = "local", **fields: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "lab", "backend": backend, **fields})


def plans_of(spec: ClusterSpec, *gpu_ids: str, simulated: bool = False) -> tuple[NodePlan, ...]:
    """Return the plans of a machine with 8 CPUs, 10 GiB and these GPUs."""
    capacity = Capacity(cpus=8, memory=10 * GIBIBYTE, gpu_ids=gpu_ids)
    return ray_nodes.node_plans(spec, capacity, may_simulate=simulated, machine="this machine")


class FakeMachine(Machine):
    """A machine that has the nodes of an earlier file, and the address of its dashboard, if any."""

    existing: dict[str, ObservedNode]
    dashboard: str | None
    host = "127.0.0.1"

    def nodes(self) -> dict[str, ObservedNode]:
        return self.existing

    @property
    def plans(self) -> tuple[NodePlan, ...]:
        return plans_of(self.spec)

    def ray_address(self) -> str:
        return "127.0.0.1:6379"

    def address(self) -> str | None:
        return self.dashboard

    def log_files(self, node: str) -> Iterator[LogFile]:
        yield from ()

    def start(self, missing: Sequence[str]) -> None:
        raise NotImplementedError

    def remove(self, names: Iterable[str]) -> None:
        raise NotImplementedError

    @property
    def leash(self) -> Leash:
        return Leash(lambda: None, lambda: None, lambda leash: None, lambda: None)

    def end_reason(self, name: str) -> TrainyardError:
        raise NotImplementedError


def nodes_of(
    *, running: Sequence[str] = ALL, has_run: bool = True, **fields: Any
) -> dict[str, ObservedNode]:
    """Return the nodes that were made for a file."""
    plans = plans_of(spec_of(**{"workers": [CPU], **fields}))
    return {
        plan.name: ObservedNode(
            plan.recorded(),
            1,
            plan.name in running,
            has_run,
            detail="" if plan.name in running else "exited",
        )
        for plan in plans
    }


def fake(
    made: dict[str, ObservedNode],
    *,
    recreate: bool = False,
    dashboard: str | None = None,
    **fields: Any,
) -> FakeMachine:
    lab = FakeMachine(
        spec_of(**{"workers": [CPU], **fields}),
        Site(Path("/none"), {}, "local").wishing(recreate=recreate),
    )
    object.__setattr__(lab, "existing", made)
    object.__setattr__(lab, "dashboard", dashboard)
    return lab


@pytest.mark.parametrize(
    ("fields", "running", "missing", "surplus"),
    [
        ({}, ALL, (), ()),
        ({}, ("head", "cpu-0"), ("cpu-1",), ("cpu-1",)),
        ({"workers": [{**CPU, "count": 1}]}, ALL, (), ("cpu-1",)),
        ({"workers": [{**CPU, "count": 3}]}, ALL, ("cpu-2",), ()),
        ({"workers": [{**CPU, "cpus": 4}]}, ALL, ("cpu-0", "cpu-1"), ("cpu-0", "cpu-1")),
        # No worker outlives its head.
        ({}, ("cpu-0", "cpu-1"), ALL, ALL),
        ({"head": {"cpus": 2}}, ALL, ALL, ALL),
    ],
)
def test_nodes_are_compared_with_what_runs(
    fields: dict[str, Any],
    running: tuple[str, ...],
    missing: tuple[str, ...],
    surplus: tuple[str, ...],
) -> None:
    assert fake(nodes_of(running=running), **fields).difference() == single_host.Difference(
        missing, surplus
    )


@pytest.mark.parametrize(
    ("made", "recreate", "titles"),
    [
        ({}, False, ["Start the head and 2 workers"]),
        (nodes_of(running=("head", "cpu-0")), False, ["Remove cpu-1", "Start cpu-1"]),
        (nodes_of(), True, ["Remove head, cpu-0, cpu-1", "Start the head and 2 workers"]),
        # A head that never ran is replaced without being asked.
        (
            nodes_of(head={"cpus": 2}, has_run=False),
            False,
            ["Remove head, cpu-0, cpu-1", "Start the head and 2 workers"],
        ),
    ],
)
def test_a_repair_names_the_nodes_that_it_starts(
    made: dict[str, ObservedNode], recreate: bool, titles: list[str]
) -> None:
    planned = single_host.node_steps(fake(made, recreate=recreate))
    refuse_lost_ids(planned)
    assert [step.title for step in planned] == [*titles, "All 3 nodes answer"]


def test_another_head_is_planned_with_what_differs_and_refused() -> None:
    lab = fake(
        nodes_of(head={"cpus": 1}, env={"OLD": "a"}),
        head={"cpus": 2},
        env={"NAME": "secret", "OLD": "b"},
    )

    refusal, *_ = single_host.node_steps(lab)
    (planned,) = steps.plan([refusal])
    differs = "cpus: 1 now, 2 desired; env.NAME is new; env.OLD differs"
    assert (planned.title, planned.detail) == (
        "Replace the head that runs",
        f"needs --recreate, which ends everything on the cluster: {differs}",
    )

    with pytest.raises(RequestError) as caught:
        refusal.do()

    assert caught.value.lines() == [
        (
            "the head in the cluster file is not the head that runs; replacing it ends everything on "
            "the cluster"
        ),
        f"  at {differs}",
        "  -> If that is meant: trainyard cluster.up --recreate",
    ]


@pytest.mark.parametrize(
    ("alive", "answer"),
    [
        (("head", "cpu-0"), steps.no("waiting for cpu-1")),
        ((*ALL, "cpu-2"), steps.no("Ray still counts cpu-2")),
        (ALL, steps.YES),
    ],
)
def test_all_answer_once_ray_counts_these_nodes_and_no_others(
    dashboard: FakeRay, alive: Sequence[str], answer: steps.Answer
) -> None:
    dashboard.has(*map(FakeRay.node, alive))
    *_, answers = single_host.node_steps(fake(nodes_of(), dashboard="http://127.0.0.1:1"))
    assert answers.done() == answer


def test_a_head_whose_dashboard_is_dead_is_not_waited_for() -> None:
    made = nodes_of()
    made["head"] = replace(made["head"], started=1.0)
    *_, answers = single_host.node_steps(fake(made))
    with pytest.raises(
        NotReadyError, match="the head runs, and its dashboard does not answer any more"
    ):
        answers.done()


@pytest.mark.parametrize("text", ["{", "{}", "[]", "null"])
def test_a_record_that_is_damaged_is_an_error_with_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(OutsideError, match="the record of a cluster is damaged") as caught:
        record.recorded_backend(tmp_path)
    assert caught.value.where == str(tmp_path / "cluster.json")


def test_a_record_of_an_unknown_backend_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"backend": "ec3"}')
    with pytest.raises(OutsideError, match="lacks: ec3") as caught:
        record.recorded_backend(tmp_path)
    assert caught.value.where == str(tmp_path / "cluster.json")


def test_status_reports_each_node_and_its_differences_from_the_file() -> None:
    now = fake(
        nodes_of(running=("head", "cpu-0")), workers=[{**CPU, "count": 3, "cpus": 2}]
    ).status()

    assert [(node.name, node.state, node.detail) for node in now.nodes] == [
        ("head", "starting", "it runs, and is not in Ray (yet, or any more)"),
        ("cpu-0", "starting", "it runs, and is not in Ray (yet, or any more)"),
        ("cpu-1", "broken", "exited"),
        ("cpu-2", "absent", ""),
    ]

    assert (now.state, now.differences) == (
        "partial",
        ("cpu-0: cpus: 1 now, 2 desired", "cpu-1: cpus: 1 now, 2 desired"),
    )
    assert fake({}).status().state == "absent"

    with pytest.raises(NotReadyError):
        fake({}).endpoint()


def test_real_gpus_are_split_over_the_nodes_in_order() -> None:
    spec = spec_of(head={"gpus": 1}, workers=[{"name": "gpu", "count": 2, "gpus": 2}])
    assert [plan.gpu_ids for plan in plans_of(spec, "0", "1", "2", "3", "6")] == [
        ("0",),
        ("1", "2"),
        ("3", "6"),
    ]


def test_more_gpus_than_there_are_is_an_error_that_names_both_ways_out() -> None:
    with pytest.raises(PrerequisiteError) as raised:
        plans_of(spec_of(workers=[{"name": "gpu", "count": 2, "gpus": 1}]), "0")
    assert str(raised.value) == (
        "the cluster file wants 2 GPUs, this machine has 1\n"
        "  at gpu-0: 1, gpu-1: 1\n"
        "  -> `nvidia-smi` lists the GPUs. Ask for fewer GPUs, or set "
        "`local: {simulated_gpus: true}` to try the layout without GPUs."
    )


def test_a_node_without_requests_may_use_the_machine_and_zero_cpus_is_zero() -> None:
    head = plans_of(spec_of())[0]
    assert (head.cpus, head.memory, head.object_store) == (8, 10 * GIBIBYTE, GIBIBYTE)
    assert plans_of(spec_of(head={"cpus": 0}))[0].cpus == 0


@pytest.mark.parametrize(
    ("joined", "started", "is_gone"),
    [
        (100.0, {"cpu-0": 130.0}, True),
        (133.0, {"cpu-0": 130.0}, False),
        # A clock may have been corrected by half a second.
        (129.5, {"cpu-0": 130.0}, False),
        (None, {"cpu-0": 130.0}, False),
        (100.0, {}, False),
    ],
)
def test_a_node_that_joined_before_its_process_started_is_the_former_one(
    joined: float | None, started: dict[str, float], is_gone: bool
) -> None:
    row = {
        "node_id": "1",
        "node_name": "cpu-0",
        "state": "ALIVE",
        "start_time_ms": int((joined or 0) * 1000),
    }
    assert ray_nodes.is_predecessor(node_from(row), started) is is_gone
