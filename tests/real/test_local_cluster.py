"""A local cluster as its users see it: made, queried, made again, removed."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.real.jobs import new_mark, newest, running, write_job
from tests.real.yard import HEAD_AND_TWO_WORKERS, HEAD_AND_WORKER, Yard, wait_until
from trainyard.seams import processes


@pytest.mark.core
def test_up_makes_every_node_and_says_what_to_type_next(yard: Yard) -> None:
    assert yard.states() == {"head": "up", "gpu-0": "up", "gpu-1": "up"}
    again = yard.run("cluster.up")
    assert "cluster yard is up: http://127.0.0.1:" in again.stdout
    assert again.stderr.splitlines()[-1] == "next: trainyard smoke.run"


@pytest.mark.core
def test_a_second_up_finds_everything_done_and_starts_nothing(yard: Yard) -> None:
    before = {process.pid for process in yard.processes()}
    steps = yard.json("cluster.up")["steps"]
    assert [step["changed"] for step in steps] == [False, False]
    assert before <= {process.pid for process in yard.processes()}


def test_status_says_that_gpus_are_simulated(yard: Yard) -> None:
    document = yard.json("cluster.status")
    assert (document["state"], document["backend"], document["simulated_gpus"]) == (
        "up",
        "local",
        True,
    )
    assert [node["gpus"] for node in document["nodes"]] == [0, 2, 2]
    assert "2 (simulated)" in yard.run("cluster.status").stdout


@pytest.mark.core
def test_no_process_of_a_node_listens_beyond_the_loopback_address(yard: Yard) -> None:
    listening = {
        connection.laddr.ip
        for process in yard.processes()
        for connection in process.net_connections(kind="all")
        if connection.status == "LISTEN" and connection.laddr
    }
    assert listening
    # An IPv6 socket bound to the IPv4 loopback address accepts no other connections.
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_everything_that_is_written_is_readable_by_its_owner_only(yard: Yard) -> None:
    modes = {
        path: stat.S_IMODE(path.stat().st_mode) for path in [yard.state, *yard.state.rglob("*")]
    }
    assert set(modes.values()) == {0o600, 0o700}
    assert stat.S_IMODE(yard.temp.stat().st_mode) == 0o700


def test_logs_name_the_node_of_each_line(yard: Yard) -> None:
    lines = yard.run("cluster.logs", "--no-follow").stdout.splitlines()
    assert {line.split(" ", 1)[0] for line in lines} == {"head", "gpu-0", "gpu-1"}
    # Before the last lines may be some of a raylet's that are no state dump (only --all shows
    # dumps).
    every = yard.run("cluster.logs", "--no-follow", "--all").stdout.splitlines()
    assert any(line.startswith("gpu-0 raylet.out | ") for line in every)
    lines = yard.run("cluster.logs", "gpu-1", "--no-follow").stdout.splitlines()
    assert {line.split(" ", 1)[0] for line in lines} == {"gpu-1"}


def test_there_is_no_shell_on_processes_of_this_machine(yard: Yard) -> None:
    refused = yard.run("cluster.shell", expect=2)
    assert "cluster yard (local) has no nodes on which a shell could be started" in refused.stderr


def test_open_names_the_file_of_the_token_and_never_the_token(yard: Yard) -> None:
    printed = yard.run("cluster.open").stdout
    assert str(yard.state / "token") in printed
    assert yard.token() not in printed


def test_a_run_with_settings_that_its_cluster_lacks_is_refused(yard: Yard) -> None:
    write_job(yard, "asks", "command: ['true']\n")
    refused = yard.run(
        "train.dispatch",
        "asks",
        "--set",
        "cluster.env.ZZ=a b",
        "--set",
        "cluster.head.cpus=7",
        expect=2,
    )

    assert refused.stderr.splitlines()[-3:] == [
        f"error: cluster {yard.cluster} was made without --set 'env.ZZ=a b', --set head.cpus=7, "
        "and a run does not "
        "change it",
        f"  at {Path('clusters', yard.cluster)}.yaml",
        f"  -> Change it first: trainyard cluster.up -f {Path('clusters', yard.cluster)}.yaml "
        "--set 'env.ZZ=a b' "
        "--set head.cpus=7",
    ]

    yard.run("train.dispatch", "asks", "--set", f"cluster.name={yard.cluster}", "--skip-smoke")


def test_list_names_the_cluster_with_its_address(yard: Yard) -> None:
    listed = {one["name"]: one for one in yard.json("cluster.list")["clusters"]}
    assert listed["yard"]["state"] == "up"
    assert listed["yard"]["address"].startswith("http://127.0.0.1:")


def test_clusters_whose_names_begin_alike_go_together_after_a_yes(fresh: Yard) -> None:
    first, second, theirs = (f"{fresh.cluster}-{letter}" for letter in "abc")
    for name in (first, second):
        fresh.write_cluster(
            f"name: {name}\nbackend: local\nhead: {{{{cpus: 1, memory: 1GiB}}}}\n", name=name
        )
        fresh.run("cluster.up", "-f", name)

    address = fresh.json("cluster.status", "-f", first)["address"]
    fresh.write_cluster(
        f"name: {theirs}\nbackend: existing\nauth: none\nexisting: {{{{address: '{address}'}}}}\n",
        name=theirs,
    )
    # The file of the second cluster is lost; this machine's record still names the cluster.
    (fresh.home / "clusters" / f"{second}.yaml").unlink()
    refused = fresh.run("cluster.down", "--all", fresh.cluster, expect=2).stderr
    assert f"error: remove 2 clusters ({first}, {second}): not without a yes\n" in refused
    assert fresh.json("--dry", "cluster.down", "--all", fresh.cluster)["would"] == [first, second]
    assert fresh.json("cluster.down", "--all", "nothing", "--yes")["clusters"] == []
    assert (
        fresh.run("cluster.down", "--all", fresh.cluster, "--yes", "--purge", expect=2).stdout == ""
    )
    done = fresh.run("cluster.down", "--all", fresh.cluster, "--yes")
    assert done.stdout == f"removed: {first}, {second}\n"
    assert f"note: {theirs} stays, since another administrator runs it\n" in done.stderr
    assert {each["state"] for each in fresh.json("cluster.list")["clusters"]} == {"down"}


@pytest.mark.core
def test_down_leaves_nothing_and_a_changed_file_is_followed(fresh: Yard) -> None:
    temporary = fresh.home / "tmp"
    temporary.mkdir()
    fresh.environ["TMPDIR"] = str(temporary)
    fresh.write_cluster(HEAD_AND_WORKER)
    assert [step["state"] for step in fresh.json("cluster.plan")["steps"]] == ["would", "after"]
    assert fresh.run("--dry", "cluster.up").returncode == 0
    assert fresh.leftovers() == []
    fresh.run("cluster.up")
    head = fresh.keeper("head")

    fresh.run("cluster.up", "--set", "workers.0.cpus=2")
    assert fresh.json("cluster.status", "--set", "workers.0.cpus=2")["nodes"][1]["cpus"] == 2

    fresh.run("cluster.up", "--set", "workers.0.count=0")
    assert fresh.states() == {"head": "up", "cpu-0": "down"}
    assert fresh.keeper("head") == head

    refused = fresh.run("cluster.up", "--set", "head.cpus=2", expect=2)
    assert "the head in the cluster file is not the head that runs" in refused.stderr
    assert fresh.keeper("head") == head

    fresh.run("--dry", "cluster.down")
    assert fresh.states()["head"] == "up"
    fresh.run("smoke.run", "--set", "workers.0.count=0")
    assert fresh.json("cluster.status")["runs"] == []
    done = fresh.run("cluster.down")
    assert "nothing of it is left" in done.stdout
    assert fresh.leftovers() == [] and list(temporary.iterdir()) == []
    assert fresh.run("cluster.down").returncode == 0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a cluster with one worker for tests to break; each but the last leaves it whole."""
    pair = Yard(tmp_path_factory.mktemp("pair"), cluster="pair")
    pair.write_cluster(HEAD_AND_WORKER)
    with pair.up():
        yield pair


@pytest.mark.core
def test_a_killed_raylet_makes_the_cluster_partial_and_up_repairs_it(pair: Yard) -> None:
    head = pair.keeper("head")
    pair.raylet("cpu-0").kill()
    wait_until(lambda: pair.states()["cpu-0"] == "down", seconds=20, what="cpu-0 is down")
    assert pair.json("cluster.status")["state"] == "partial"
    assert "cpu-0" in [
        finding["subject"] for finding in pair.json("cluster.doctor", expect=5)["findings"]
    ]
    pair.run("cluster.up")
    assert pair.states() == {"head": "up", "cpu-0": "up"}
    assert pair.keeper("head") == head


def test_a_node_starts_where_one_before_left_its_directory(pair: Yard) -> None:
    pair.raylet("cpu-0").kill()
    wait_until(lambda: pair.states()["cpu-0"] == "down", seconds=20, what="cpu-0 is down")
    # No record of the node is left, but its directory is, writable by all users as Ray makes it.
    (pair.state / "nodes" / "cpu-0.json").unlink()
    pair.run("cluster.up")
    assert pair.states() == {"head": "up", "cpu-0": "up"}


def test_recreate_starts_all_nodes_again_and_ends_leftover_processes(pair: Yard) -> None:
    before = pair.keeper("head")
    (keeper := psutil.Process(pair.keeper("cpu-0").pid)).kill()
    keeper.wait(30)
    assert pair.states() == {"head": "up", "cpu-0": "down"}
    pair.run("cluster.up", "--recreate")
    assert pair.states() == {"head": "up", "cpu-0": "up"}
    assert sum(process.info["name"] == "raylet" for process in pair.processes()) == 2
    assert pair.keeper("head") != before
    assert not processes.alive(before)


# A damaged event file: the step of its scalar is a number of 12 bytes.
DAMAGED = bytes.fromhex(
    "19" + 11 * "00" + "10" + 11 * "ff" + "01" + "2a0a0a080a0178150000803f" + 4 * "00"
)


def test_runs_end_with_their_nodes_only_if_asked_after_a_fetch(pair: Yard) -> None:
    leaves = (
        "import os, pathlib, sys, time\npathlib.Path(os.environ['TRAINYARD_OUTPUT'], "
        "'x').write_text('made')\n"
    )
    damages = (
        "pathlib.Path(os.environ['TRAINYARD_OUTPUT'], "
        f"'events.out.tfevents.1.h').write_bytes({DAMAGED!r})\n"
    )
    write_job(pair, "quick", "command: [python3, task.py]\n", task=leaves + damages)
    pair.run("train.dispatch", "quick", "--skip-smoke")
    assert pair.json("cluster.status")["runs"] == []
    unreadable = newest(pair)
    with (unreadable / "events.jsonl").open("ab") as events:
        events.write(b"\x00\n")

    mark = new_mark()
    write_job(
        pair,
        "slow",
        f"command: [python3, task.py, '{mark}']\n",
        task=f"{leaves}time.sleep(float(sys.argv[1]))",
    )

    pair.run("train.dispatch", "quick", "--no-wait", "--skip-smoke")
    quick = newest(pair)
    wait_until(
        lambda: pair.json("train.status", quick.name)["state"] == "succeeded",
        seconds=120,
        what="it ended",
    )

    pair.run("train.dispatch", "slow", "--no-wait", "--skip-smoke")
    slow = newest(pair)
    wait_until(lambda: bool(running(mark)), seconds=120, what="the task runs")
    theirs = {"entrypoint": f"sleep {new_mark()}", "submission_id": "theirs"}

    answer = httpx.post(
        f"{pair.address()}/api/jobs/",
        json=theirs,
        headers={"Authorization": f"Bearer {pair.token()}"},
        timeout=30,
    )

    assert answer.status_code == 200, answer.text

    for change in (["cluster.scale", "cpu=0"], ["cluster.up", "--recreate"], ["cluster.down"]):
        refused = pair.run(*change, expect=2)
        assert "error: 2 runs are still active on cluster pair\n" in refused.stderr
        assert f"  - {slow.name}: job slow, by " in refused.stderr
        assert "  - theirs: not dispatched by Trainyard, " in refused.stderr
        assert refused.stderr.endswith(
            f"fetch the results first: trainyard {' '.join(change)} --end-runs\n"
        )

    assert pair.states() == {"head": "up", "cpu-0": "up"}
    assert running(mark)
    planned = pair.json("cluster.plan", "--set", "workers.0.count=0")
    assert [step["title"] for step in planned["steps"] if step["disruptive"]] == ["Remove cpu-0"]
    assert {run["run"] for run in planned["ends"]} == {slow.name, "theirs"}

    down = pair.run("cluster.down", "--end-runs")
    assert (
        f"outputs of {unreadable.name} are given up: not an event of Trainyard's runner: "
        in down.stderr
    )
    assert pair.leftovers() == []
    assert [
        (run / "outputs" / run.name.split("-")[0] / "x").read_text() for run in (quick, slow)
    ] == ["made", "made"]
    assert pair.json("train.status", slow.name)["state"] == "stopped"
    assert (slow / "report.html").exists()
    assert not running(mark)


def test_simulated_gpus_have_to_be_asked_for_and_one_machine_does_not_grow(fresh: Yard) -> None:
    fresh.write_cluster(HEAD_AND_TWO_WORKERS)
    refused = fresh.run(
        "cluster.up", "--set", "local.simulated_gpus=false", "--set", "workers.0.gpus=32", expect=3
    )
    assert "the cluster file wants 64 GPUs, this machine has" in refused.stderr
    refused = fresh.run("cluster.up", "--set", "workers=[{name: burst, min: 1, max: 3}]", expect=2)
    assert "the local backend cannot grow and shrink worker groups" in refused.stderr
    assert fresh.leftovers() == []
