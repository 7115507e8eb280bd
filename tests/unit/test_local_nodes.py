"""Which nodes stay, which go, which are started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainyard.backends.local import nodes, records
from trainyard.backends.local.layout import NodePlan, Ports, node_plans
from trainyard.backends.local.records import ClusterFiles, ClusterRecord, NodeRecord
from trainyard.errors import LeftoverError
from trainyard.seams.processes import ProcessId
from trainyard.spec import ClusterSpec

ALL = frozenset({"head", "cpu-0", "cpu-1"})


def _plans(**fields: Any) -> tuple[NodePlan, ...]:
    workers = [{"name": "cpu", "count": 2, "cpus": 1}]
    spec = ClusterSpec.model_validate({"name": "lab", "backend": "local", "workers": workers, **fields})
    return node_plans(spec, cpus=8, memory=1024**3, gpu_ids=())


def _recorded(*, gcs_port: int = 1000) -> dict[str, NodeRecord]:
    return {
        plan.name: NodeRecord(plan.name, plan.group, 1, 0, plan.as_text(), gcs_port, ProcessId(7, "then"))
        for plan in _plans()
    }


def _changes(recorded: dict[str, NodeRecord], running: frozenset[str], **fields: Any) -> tuple[list[str], list[str]]:
    difference = nodes.compare(_plans(**fields), recorded, running=running)
    return [plan.name for plan in difference.missing], list(difference.unwanted)


def test_nothing_is_done_to_a_cluster_that_is_as_its_file_says() -> None:
    assert _changes(_recorded(), ALL) == ([], [])


def test_everything_is_started_where_nothing_was() -> None:
    assert _changes({}, frozenset()) == (["head", "cpu-0", "cpu-1"], [])


def test_a_surplus_worker_goes() -> None:
    assert _changes(_recorded(), ALL, workers=[{"name": "cpu", "count": 1, "cpus": 1}]) == ([], ["cpu-1"])


def test_a_missing_worker_is_started() -> None:
    workers = [{"name": "cpu", "count": 3, "cpus": 1}]
    assert _changes(_recorded(), ALL, workers=workers) == (["cpu-2"], [])


def test_a_changed_worker_is_replaced() -> None:
    workers = [{"name": "cpu", "count": 2, "cpus": 4}]
    assert _changes(_recorded(), ALL, workers=workers) == (["cpu-0", "cpu-1"], ["cpu-0", "cpu-1"])


def test_a_dead_worker_is_replaced() -> None:
    assert _changes(_recorded(), ALL - {"cpu-1"}) == (["cpu-1"], ["cpu-1"])


def test_no_worker_outlives_its_head() -> None:
    everyone = ["head", "cpu-0", "cpu-1"]
    assert _changes(_recorded(), ALL - {"head"}) == (everyone, everyone)
    assert _changes(_recorded(), ALL, head={"cpus": 2}) == (everyone, everyone)


def test_a_worker_of_an_earlier_head_is_replaced() -> None:
    recorded = {**_recorded(gcs_port=2000), "head": _recorded()["head"]}
    assert _changes(recorded, ALL) == (["cpu-0", "cpu-1"], ["cpu-0", "cpu-1"])


def test_records_are_read_as_they_were_written_the_head_first(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "lab")
    files.nodes.mkdir(parents=True)
    for plan in reversed(_plans()):
        records.write_node(files, plan, gcs_port=1000, process=ProcessId(7, "then"))
    found = records.read_nodes(files)
    assert list(found) == ["head", "cpu-0", "cpu-1"]
    assert found["cpu-0"].process == ProcessId(7, "then")
    cluster = ClusterRecord("lab", Ports(1, 2), True, "token")
    records.write_cluster(files, cluster)
    assert records.read_cluster(files) == cluster


def test_without_records_there_is_nothing(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "lab")
    assert records.read_nodes(files) == {}
    assert records.read_cluster(files) is None
    assert records.read_token(files) is None


def test_the_socket_path_of_any_node_fits_into_what_the_system_allows(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / ("deep/" * 40) / "lab")
    session = "session_2026-12-31_23-59-59_999999_4194304"
    socket = files.node_temp("a-group-with-a-very-long-name-indeed-9999") / session / "sockets" / "plasma_store"
    # 107 bytes, and a user's number may have 10 digits where this one has fewer
    assert len(str(socket)) + 10 - len(str(files.temp.parent.name.removeprefix("trainyard-"))) <= 107


def test_the_last_words_are_those_of_the_daemon_that_ended(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "lab")
    files.nodes.mkdir(parents=True)
    files.node_log("head").write_text("Local node IP: 127.0.0.1\nbind: address already in use\n")
    assert nodes.last_words(files, "head") == (
        files.node_log("head"),
        ["Local node IP: 127.0.0.1", "bind: address already in use"],
    )
    assert nodes.last_words(files, "cpu-0")[1] == ["(it said nothing)"]


def test_processes_that_do_not_end_are_named() -> None:
    with pytest.raises(LeftoverError) as raised:
        nodes.refuse_leftovers(frozenset({ProcessId(12, "then"), ProcessId(7, "then")}))
    assert str(raised.value) == (
        "2 processes of the cluster do not end\n"
        "  at pids 7, 12\n"
        "  -> Repeat the same command; `ps -o pid,stat,wchan,args -p PID` says what one waits for."
    )
