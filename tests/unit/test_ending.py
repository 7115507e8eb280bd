"""Runs are ended or named before their nodes end; nodes that were lost are named, too."""

from __future__ import annotations

import os
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_ray import FakeRay
from trainyard import backends
from trainyard.backends.contract import Site, Traits
from trainyard.backends.shared.record import made_with, write_made_from
from trainyard.console.progress import PlainProgress
from trainyard.endpoint import Endpoint
from trainyard.errors import (
    InterruptedRunError,
    LockedOutError,
    NotReadyError,
    OutsideError,
    RequestError,
    TrainyardError,
)
from trainyard.operations import clusters, run_guard
from trainyard.operations.cluster import Cluster
from trainyard.operations.clusters import RunGuard
from trainyard.results import store
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import NOT_ITS_TOKEN
from trainyard.spec.cluster import ClusterSpec, LoadedCluster
from trainyard.steps import Step, no

PROGRESS = PlainProgress(StringIO(), now=lambda: 0.0)
PPO = FakeRay.job("ppo-1", metadata={"trainyard_run": "ppo-1", "trainyard_job": "ppo"})


class FakeBackend:
    """The backend of every cluster: how it lets in, and, from a test, its steps."""

    traits = Traits()

    def __init__(self) -> None:
        self.way_in: TrainyardError | None = None
        self.steps: list[Step] = []

    def connect(self, spec: ClusterSpec, site: Site) -> Endpoint:
        if self.way_in is not None:
            raise self.way_in
        return Endpoint(spec.name, "http://127.0.0.1:1")

    def up_steps(self, spec: ClusterSpec, site: Site) -> list[Step]:
        return self.steps

    def down_steps(self, spec: ClusterSpec, site: Site, *, purge: bool) -> list[Step]:
        return self.steps

    def billed(self, spec: ClusterSpec, site: Site) -> list[str]:
        return ["head i-1 m5.large", "cpu-1 i-2 g5.xlarge"]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch, dashboard: FakeRay) -> FakeBackend:
    """Return the backend of every cluster, with a dashboard."""
    backend = FakeBackend()
    monkeypatch.setattr(backends, "named", lambda _: backend)
    return backend


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    loaded = LoadedCluster(ClusterSpec(name="lab", backend="local"), tmp_path / "lab.yaml")
    return Cluster(loaded, Site(tmp_path / "state", {}, "local"))


def check(
    cluster: Cluster, *, end_runs: bool = False, ends: run_guard.Ends = "cluster"
) -> list[str]:
    """Return what is noted, and not refused."""
    notes: list[str] = []
    run_guard.settle(
        *(cluster, "cluster.down", PROGRESS),
        results=cluster.site.state,
        end_runs=end_runs,
        ends=ends,
        note=notes.append,
    )
    return notes


OWNER = "Only the cluster's owner can ask it."
END_RUNS = "To continue, and lose the results of its runs: trainyard cluster.down --end-runs"


@pytest.mark.parametrize(
    ("by_ray", "why", "where", "hint"),
    [
        (False, "no", "there", OWNER),
        (True, "the cluster rejected the token: no", "http://127.0.0.1:1", NOT_ITS_TOKEN),
    ],
    ids=["by the head", "by Ray"],
)
def test_a_cluster_that_runs_and_lets_only_others_in_is_not_ended_unasked(
    backend: FakeBackend,
    dashboard: FakeRay,
    cluster: Cluster,
    by_ray: bool,
    why: str,
    where: str,
    hint: str,
) -> None:
    if by_ray:
        dashboard.refusal = "no"
    else:
        backend.way_in = LockedOutError("no", where="there")

    with pytest.raises(RequestError) as refused:
        check(cluster)

    unknown = f"whether runs are active is unknown: {why}"
    assert refused.value.lines() == [unknown, f"  at {where}", f"  -> {hint} {END_RUNS}"]
    assert check(cluster, end_runs=True) == [unknown]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("ends", "notes"), [("nodes", 0), ("head", 1)])
def test_results_lost_with_a_head_are_noted_only_if_the_head_ends(
    dashboard: FakeRay, cluster: Cluster, ends: run_guard.Ends, notes: int
) -> None:
    dashboard.ran(FakeRay.job("far-1", "SUCCEEDED", end_time=1000))
    assert len(check(cluster, ends=ends)) == notes


def test_a_known_remedy_of_a_rejected_user_is_in_the_hint(
    backend: FakeBackend, cluster: Cluster
) -> None:
    backend.way_in = LockedOutError("no", hint="Put its token back.")
    with pytest.raises(RequestError) as refused:
        check(cluster)
    assert refused.value.hint == f"Put its token back. {END_RUNS}"


@pytest.mark.parametrize(
    ("error", "notes"),
    [(NotReadyError("no"), []), (OutsideError("no"), ["whether runs are active is unknown: no"])],
)
def test_a_broken_cluster_can_be_ended(
    backend: FakeBackend, cluster: Cluster, error: TrainyardError, notes: list[str]
) -> None:
    backend.way_in = error
    assert check(cluster) == notes


STARTED = '{"seq": 0, "time": 1.0, "event": "run-started", "node_id": "n"}\n'
ENDED = (
    '{"seq": 1, "time": 2.0, "event": "run-ended", "state": "succeeded", "exit": 0, '
    '"seconds": 1.0}\n'
)
RECORDS = {
    "an event that is none": "[1]\n",
    "an event without its fields": '{"seq": 0, "time": 1.0, "event": "trial-ended", "trial": {}}\n',
    "bytes": "\x00\xff\n",
    "no stream on the cluster": "",
}


@pytest.fixture
def run(backend: FakeBackend, dashboard: FakeRay, cluster: Cluster) -> RunDirectory:
    """Return the record of an ended run, on a cluster whose file is no stream of events."""
    record = {
        "run": "job-1",
        "cluster": "lab",
        "job": "job",
        "tasks": ["a"],
        "tune": {"metric": "x"},
    }
    dashboard.ran(FakeRay.job("job-1", "SUCCEEDED", driver_exit_code=0))
    dashboard.files = {"trainyard/job-1/stream.000000.jsonl": ["{}", ""]}
    return store.create(cluster.site.state, record, cluster="", job="")


@pytest.mark.parametrize("events", RECORDS.values(), ids=RECORDS.keys())
def test_nodes_can_be_ended_however_damaged_a_runs_records_are(
    cluster: Cluster, run: RunDirectory, events: str
) -> None:
    run.events.write_bytes(events.encode("latin-1"))
    with pytest.raises(OutsideError) as refused:
        check(cluster)
    assert refused.value.what.startswith("outputs of job-1 would be lost: ")
    assert refused.value.hint == (
        "Repeat the command once the cause is gone. To discard them: trainyard cluster.down "
        "--end-runs"
    )
    (note,) = check(cluster, end_runs=True)
    assert note.startswith("outputs of job-1 are given up: ")


def test_a_report_that_cannot_be_written_is_noted_and_hinders_no_removal(
    cluster: Cluster, run: RunDirectory
) -> None:
    run.events.write_text(STARTED + ENDED)
    (run.path / f".{os.getpid()}.html").mkdir()
    (note,) = check(cluster)
    assert note.startswith("there is no report of job-1: ")


def guard(cluster: Cluster, command: str) -> RunGuard:
    return RunGuard(command, results=cluster.site.state, note=lambda _: None)


def failing(error: BaseException, *, disruptive: bool = False) -> list[Step]:
    def do() -> None:
        raise error

    return [Step("launch", "Launch", lambda: no("nothing"), do, disruptive=disruptive)]


BILLED = (
    "  - runs, and costs: head i-1 m5.large, cpu-1 i-2 g5.xlarge; to end it: trainyard cluster.down"
)


@pytest.mark.parametrize(
    ("error", "raised", "billed"),
    [
        (OutsideError("no"), OutsideError, [BILLED]),
        (KeyboardInterrupt(), InterruptedRunError, [BILLED]),
        (RequestError("no"), RequestError, []),
    ],
)
def test_machines_that_cost_money_after_an_early_end_of_up_are_named(
    backend: FakeBackend,
    cluster: Cluster,
    error: BaseException,
    raised: type[TrainyardError],
    billed: list[str],
) -> None:
    backend.steps = failing(error)
    with pytest.raises(raised) as caught:
        clusters.up(cluster, PROGRESS, guard=guard(cluster, "cluster.up"))
    assert caught.value.lines()[1:2] == billed


@pytest.mark.parametrize(
    ("before", "error", "recorded"),
    [
        (("a=1",), RequestError("no"), ("a=1",)),
        ((), RequestError("no"), ()),
        (None, RequestError("no"), ("b=2",)),
        (("a=1",), OutsideError("no"), ("b=2",)),
    ],
)
def test_a_refused_up_leaves_the_recorded_flags_as_they_were(
    backend: FakeBackend,
    cluster: Cluster,
    before: tuple[str, ...] | None,
    error: TrainyardError,
    recorded: tuple[str, ...],
) -> None:
    source = cluster.loaded.source
    changed = replace(cluster, site=replace(cluster.site, source=source, overrides=("b=2",)))
    changed.site.state.mkdir()
    if before is not None:
        write_made_from(changed.site.state, source, before)
    backend.steps = failing(error)
    with pytest.raises(TrainyardError):
        clusters.up(changed, PROGRESS, guard=guard(changed, "cluster.up"))
    assert made_with(changed.site.state) == recorded


def test_an_interrupted_down_reports_how_to_continue(
    backend: FakeBackend, cluster: Cluster
) -> None:
    backend.steps = failing(KeyboardInterrupt())
    with pytest.raises(InterruptedRunError) as caught:
        clusters.down(cluster, PROGRESS, guard=guard(cluster, "cluster.down"))
    hint = "  -> What is not removed yet stays. To continue, repeat the same command."
    assert caught.value.lines() == ["interrupted", BILLED, hint]


@pytest.mark.parametrize(
    ("storage", "ends", "stays"),
    [
        (None, "cluster", False),
        ({"size": "1GiB"}, "head", True),
        ({"size": "1GiB"}, "cluster", False),
        ({"claim": "mine"}, "cluster", True),
    ],
)
def test_storage_stays_unless_the_cluster_made_it_and_goes_itself(
    tmp_path: Path, storage: Any, ends: run_guard.Ends, stays: bool
) -> None:
    section = {"name": "lab", "backend": "kuberay", "kuberay": {"storage": storage}}
    loaded = LoadedCluster(ClusterSpec.model_validate(section), tmp_path / "lab.yaml")
    cluster = Cluster(loaded, Site(tmp_path / "state", {}, "kuberay"))
    assert run_guard._storage_stays(cluster, ends) is stays


@pytest.mark.parametrize("recreate", [False, True], ids=["nodes", "the head"])
def test_an_up_that_would_end_a_run_is_refused_with_the_command_to_end_it(
    backend: FakeBackend, dashboard: FakeRay, cluster: Cluster, recreate: bool
) -> None:
    backend.steps = failing(AssertionError("the step was run"), disruptive=True)
    dashboard.ran(PPO)
    with pytest.raises(RequestError) as refused:
        clusters.up(cluster, PROGRESS, guard=guard(cluster, "cluster.up"), recreate=recreate)
    assert refused.value.lines()[0] == "1 run is still active on cluster lab"
    assert (
        refused.value.hint == "Stop it and fetch the results first: trainyard cluster.up --end-runs"
    )


DRIVER = {"trainyard_run": "ppo-1", "trainyard_task": "seed=0", "trainyard_attempt": "2"}


@pytest.mark.usefixtures("backend")
def test_drivers_of_tasks_count_to_their_run(dashboard: FakeRay, cluster: Cluster) -> None:
    drivers = [FakeRay.job("", metadata=DRIVER, job_id=f"0{number}000000") for number in (3, 4)]
    stranger = FakeRay.job("", metadata={}, job_id="05000000")
    dashboard.ran(PPO, *drivers, stranger)

    with pytest.raises(RequestError) as refused:
        check(cluster)

    assert refused.value.lines()[:3] == [
        "2 runs are still active on cluster lab",
        "  - ppo-1: job ppo, by ?, just begun",
        "  - Ray job 05000000: not dispatched by Trainyard, just begun",
    ]

    # Its run is over, or died.
    dashboard.ran(drivers[0])
    with pytest.raises(RequestError) as refused:
        check(cluster)

    assert (
        refused.value.lines()[1]
        == "  - ppo-1: its task seed=0 is still connected to Ray, just begun"
    )
