"""A cluster of containers on a real Docker engine: made, used, changed, found again, removed."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from ray.core.generated import ray_client_pb2
from ray.core.generated.ray_client_pb2_grpc import RayletDriverStub

from tests.bed.engine import BedEngine
from tests.real import flavour, matrix, own_files
from tests.real.containers import left_of
from tests.real.forwarded import assert_forwarded, forwarding
from tests.real.jobs import events, newest, write_job
from tests.real.yard import Done, Yard, wait_until
from trainyard.backends.shared import ray_nodes
from trainyard.seams.ray_api import RayApi

LAB = """
name: {name}
backend: compose
image: trainyard-bed/ray:1
head: {{cpus: 1, memory: 1GiB}}
workers:
  - name: cpu
    count: 2
    cpus: 1
    memory: 1GiB
    image: trainyard-bed/flavour:1
    resources: {{A100: 2}}
    labels: {{zone: a}}
    ray_start: {{metrics-export-port: 18080}}
env: {{PRICE: "5$HOME"}}
compose:
  mounts: [{{source: /etc/ssl, target: /data/ssl, read_only: true}}]
"""
ALONE = """
name: {name}
backend: compose
image: trainyard-bed/ray:1
head: {{cpus: 1, memory: 1GiB}}
auth: none
"""
NODES = ("head", "cpu-0", "cpu-1")
# The first attempt waits, so that its node can be lost; the next attempt ends at once.
WAITS = """
    import os, pathlib, time
    mark = pathlib.Path("/outputs/" + os.environ["TRAINYARD_RUN"])
    if mark.exists():
        raise SystemExit(0)
    mark.touch()
    print("waiting", flush=True)
    time.sleep(600)
    """


@pytest.fixture(scope="module")
def lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a head and two workers in containers; each test leaves them as it found them."""
    flavour.make(engine)
    lab = Yard(tmp_path_factory.mktemp("lab"), cluster="compose-lab", environ=engine.environ())
    lab.write_cluster(LAB)
    with lab.up():
        yield lab
    assert left_of(engine, "compose-lab") == []


@pytest.fixture
def other(engine: BedEngine, tmp_path: Path) -> Iterator[Yard]:
    """Give a place for another cluster on the same engine."""
    other = Yard(tmp_path, cluster="compose-other", environ=engine.environ())
    yield other
    other.remove_all()


@dataclass(frozen=True)
class Replaced:
    """A cluster of one node whose head first ended at its start.

    `failed` is the `up` that failed, `status` the state after it, `made` the `up` that replaced the
    head.
    """

    yard: Yard
    failed: Done
    status: dict[str, Any]
    made: Done


@pytest.fixture(scope="module")
def replaced(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replaced]:
    """Give another cluster on the same engine, whose first head never ran."""
    beside = Yard(
        tmp_path_factory.mktemp("beside"), cluster="compose-beside", environ=engine.environ()
    )
    beside.write_cluster(ALONE + "compose: {{limits: true}}\n")
    try:
        failed = beside.run("cluster.up", "--set", "env.RAY_TMPDIR=/proc/none", expect=6)
        yield Replaced(beside, failed, beside.json("cluster.status"), beside.run("cluster.up"))
    finally:
        beside.remove_all()


def inspected(engine: BedEngine, node: str, name: str = "compose-lab") -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(
        engine.docker("inspect", f"trainyard-{name}-{node}").stdout
    )
    return found[0]


def ids(engine: BedEngine, name: str = "compose-lab") -> dict[str, str]:
    """Return the id of each node's container."""
    listed = engine.docker(
        *("ps", "-a", "--no-trunc", "--filter", f"label=io.trainyard.cluster={name}"),
        *("--format", '{{.Label "io.trainyard.node"}} {{.ID}}'),
    ).stdout
    return dict(line.split() for line in listed.splitlines())


def in_node(engine: BedEngine, node: str, script: str) -> str:
    """Run a shell script in a node, as the image's user; return its output."""
    return engine.docker("exec", f"trainyard-compose-lab-{node}", "sh", "-c", script).stdout


@pytest.mark.core
def test_status_and_list_name_every_node_and_up_again_changes_nothing(
    lab: Yard, engine: BedEngine
) -> None:
    now = lab.json("cluster.status")
    assert now["state"] == "up"
    nodes = [(node["name"], node["group"], node["cpus"]) for node in now["nodes"]]
    assert nodes == [("head", "head", 1), ("cpu-0", "cpu", 1), ("cpu-1", "cpu", 1)]
    listed = {one["name"]: one["state"] for one in lab.json("cluster.list")["clusters"]}
    assert listed["compose-lab"] == "up"
    before = ids(engine)
    assert {step["state"] for step in lab.json("cluster.plan")["steps"]} == {"already"}
    lab.run("cluster.up")
    assert ids(engine) == before


@pytest.mark.core
def test_only_dashboard_and_ray_client_are_on_loopback_and_need_the_token(
    lab: Yard, engine: BedEngine
) -> None:
    ports = {node: inspected(engine, node)["NetworkSettings"]["Ports"] for node in NODES}
    published = {
        node: {port: bound for port, bound in own.items() if bound} for node, own in ports.items()
    }
    assert {node: sorted(own) for node, own in published.items() if own} == {
        "head": ["10001/tcp", "8265/tcp"]
    }
    assert {one["HostIp"] for bound in published["head"].values() for one in bound} == {"127.0.0.1"}
    assert httpx.get(f"{lab.address()}/api/version").status_code == 401

    ping = ray_client_pb2.ClusterInfoRequest(type=ray_client_pb2.ClusterInfoType.PING)

    with grpc.insecure_channel(
        f"127.0.0.1:{published['head']['10001/tcp'][0]['HostPort']}"
    ) as channel:
        server = RayletDriverStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            server.ClusterInfo(ping, timeout=20)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        server.ClusterInfo(ping, timeout=60, metadata=[("authorization", f"Bearer {lab.token()}")])


@pytest.mark.core
def test_the_token_is_in_no_description_of_a_container(lab: Yard, engine: BedEngine) -> None:
    assert lab.token() not in engine.docker("inspect", *ids(engine).values()).stdout
    assert in_node(engine, "cpu-0", "cat /run/secrets/trainyard-token") == lab.token()


@pytest.mark.core
def test_drivers_of_a_command_are_like_it_on_nodes_that_share_no_disk(lab: Yard) -> None:
    directory = matrix.write(lab, "uv")
    lab.run("train.dispatch", directory.name, "--skip-smoke", expect=1)
    printed = (newest(lab) / "logs" / f"{directory.name}.1.log").read_text()
    assert matrix.found(printed) == matrix.everywhere(nodes=3)


def test_each_attempt_has_files_of_its_own(lab: Yard) -> None:
    own_files.of_a_matrix_with_retries(lab)
    own_files.of_tasks_together(lab)
    own_files.of_actors(lab)


def test_variables_and_mounts_reach_every_node_as_they_were_written(
    lab: Yard, engine: BedEngine
) -> None:
    for node in NODES:
        assert in_node(engine, node, 'echo "$PRICE"') == "5$HOME\n"
        # With these settings Ray notices within a minute that a machine no longer answers.
        variables = dict(
            line.split("=", 1) for line in in_node(engine, node, "env").splitlines() if "=" in line
        )
        assert ray_nodes.settings().items() <= variables.items()
        assert (
            in_node(engine, node, "ls /data/ssl && touch /data/ssl/x 2>&1 || true")
            .splitlines()[-1]
            .endswith("Read-only file system")
        )


def test_workers_run_another_image_and_the_gate_compares_ray_and_python(
    lab: Yard, engine: BedEngine
) -> None:
    assert [in_node(engine, node, "echo $FLAVOUR").strip() for node in ("head", "cpu-0")] == [
        "",
        "workers",
    ]
    versions = [check for check in lab.json("smoke.run")["checks"] if check["name"] == "versions"]
    assert [(check["node"], check["ok"]) for check in versions] == [(node, True) for node in NODES]


def test_a_group_has_its_resources_labels_and_parameters_of_ray(
    lab: Yard, engine: BedEngine
) -> None:
    with RayApi(lab.address(), lab.token()) as ray:
        found = {
            node.name: (node.custom.get("A100"), node.labels.get("zone")) for node in ray.nodes()
        }

    assert found == {"head": (None, None), "cpu-0": (2, "a"), "cpu-1": (2, "a")}
    assert "--metrics-export-port=18080" in in_node(
        engine, "cpu-0", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'"
    )
    job = (
        "command: [hostname]\nmatrix: {n: [0, 1]}\nenv: {N: '{n}'}\nresources: {cpus: 0.5, "
        "custom: {A100: 2}}\n"
    )
    lab.run("train.dispatch", write_job(lab, "special", job), "--skip-smoke")
    assert {task["attempts"][0]["node"] for task in lab.json("train.status")["tasks"]} <= {
        "cpu-0",
        "cpu-1",
    }
    more = lab.run(
        "train.dispatch", "special", "--set", "resources.custom.A100=3", "--skip-smoke", expect=2
    )
    assert "asks for 0.5 CPUs, 3 A100; the largest node has 1 CPU, 0 GPUs, 2 A100" in more.stderr


def test_every_node_is_healthy_and_writes_outputs_as_the_image_s_user(
    lab: Yard, engine: BedEngine
) -> None:
    in_node(engine, "cpu-0", "id -u > /outputs/who")
    assert in_node(
        engine, "head", "cat /outputs/who; rm -f /outputs/mine; touch /outputs/mine && echo fine"
    ) == ("1000\nfine\n")

    def healthy() -> bool:
        return all(
            inspected(engine, node)["State"]["Health"]["Status"] == "healthy" for node in NODES
        )

    wait_until(healthy, seconds=60, what="all containers are healthy")


def test_logs_show_what_every_node_says(lab: Yard) -> None:
    lines = lab.run("cluster.logs", "--no-follow").stdout.splitlines()
    for node in NODES:
        assert any(line.startswith(f"{node} container | ") for line in lines)
        assert any(line.startswith(f"{node} raylet.out | ") for line in lines)
    # The dashboard's log lines about Trainyard's own requests are left out.
    assert not any("/api/v0/logs/file" in line for line in lines)


def test_logs_of_a_node_are_its_own_and_a_wrong_name_lists_the_right_ones(lab: Yard) -> None:
    lines = lab.run("cluster.logs", "cpu-1", "--no-follow").stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"cpu-1"}
    for words in (("cluster.logs", "--no-follow"), ("cluster.shell",)):
        unknown = lab.run(*words, "cpu-9", expect=2)
        assert unknown.stderr == (
            "error: cluster compose-lab has no node 'cpu-9'; did you mean 'cpu-1'?\n  -> It has: "
            "head, cpu-0, cpu-1\n"
        )


def test_cluster_shell_exits_with_the_code_of_its_command_on_a_node(
    lab: Yard, engine: BedEngine
) -> None:
    done = lab.run(
        "cluster.shell", "cpu-1", "--command", "hostname; echo gone wrong >&2; exit 7", expect=7
    )
    assert (done.stdout, done.stderr) == (in_node(engine, "cpu-1", "hostname"), "gone wrong\n")
    container = ["exec", "-i", "trainyard-compose-lab-head", "bash", "-c", "ls -l"]
    docker = ["docker", "--host", engine.environ()["DOCKER_HOST"], *container]
    assert lab.json("cluster.shell", "--command", "ls -l") == {"command": docker}
    bare = Yard(lab.home, cluster=lab.cluster, environ={**lab.environ, "PATH": "/nowhere"})
    missing = bare.run("cluster.shell", "--command", "ls -l", expect=3)
    assert missing.stderr.startswith(
        "error: docker is not installed\n  -> Install it, or run this where it is: docker -"
    )


def test_a_port_of_a_node_is_open_here_until_ctrl_c(lab: Yard) -> None:
    assert_forwarded(lab, "cpu-1")
    with forwarding(lab, "cpu-1", port=1) as (address, command):
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(address, trust_env=False)
        taken = lab.run(
            "cluster.forward", "cpu-1", f"{address.rpartition(':')[2]}:1", expect=2
        ).stderr

    assert (
        "of this machine cannot be used: Address already in use\n  -> Name another one: 16006:6006"
        in taken
    )
    assert command.stdout
    said = command.stdout.read()
    assert "It leads to port 1 of cpu-1, and is open until Ctrl-C." in said
    assert "note: a connection to cpu-1 failed: port 1: Connection refused" in said
    assert command.returncode == 0
    unknown = lab.run("cluster.forward", "cpu-9", "6006", expect=2).stderr
    assert "has no node 'cpu-9'; did you mean 'cpu-1'?" in unknown
    assert "'x' is no port" in lab.run("cluster.forward", "cpu-1", "x", expect=2).stderr


def test_a_shell_on_a_terminal_is_one(lab: Yard, engine: BedEngine) -> None:
    ours, theirs = pty.openpty()
    command = ["setsid", "--ctty", "--wait", *lab.command("cluster.shell")]
    shell = subprocess.Popen(
        command, cwd=lab.home, env=lab.env(), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)

    def typed(text: bytes, shown: bytes) -> None:
        os.write(ours, text)
        seen = b""
        while shown not in seen:
            assert select.select([ours], [], [], 60)[0], (
                f"after 60 s still not {shown!r}, but {seen!r}"
            )
            seen += os.read(ours, 1000)

    def sleeps() -> bool:
        return "sleep 600" in engine.docker("top", ids(engine)["head"]).stdout

    try:
        typed(b"tty; echo $((6 * 7))\n", b"/dev/pts/0\r\n42\r\n")
        typed(b"echo began; sleep 600\n", b"began\r\n")
        # Until `sleep` is in the foreground, the shell would get Ctrl-C.
        wait_until(sleeps, seconds=30, what="the shell runs it")
        typed(b"\x03echo $?\n", b"130\r\n")
        os.write(ours, b"exit 7\n")
        assert shell.wait(timeout=30) == 7
    finally:
        shell.kill()
        os.close(ours)


def test_a_run_survives_a_worker_that_is_killed_and_up_brings_it_back(
    lab: Yard, engine: BedEngine
) -> None:
    head = ids(engine)["head"]
    job = "command: [python3, wait.py]\nnode: {group: cpu}\nresources: {cpus: 1}\n"
    write_job(lab, "waits", job, wait=WAITS)
    command = lab.start("train.dispatch", "waits", "--skip-smoke")

    try:
        wait_until(
            lambda: bool(list(lab.results.glob("*/logs/waits.1.log"))),
            seconds=60,
            what="the task has started",
        )

        started = next(
            event for event in events(newest(lab)) if event["event"] == "attempt-started"
        )
        engine.docker("kill", f"trainyard-compose-lab-{started['node']}")
        assert command.wait(timeout=120) == 0
    finally:
        command.kill()

    ended = [event for event in events(newest(lab)) if event["event"] == "attempt-ended"]
    assert [one["outcome"] for one in ended] == ["lost", "succeeded"]
    assert lab.states()[started["node"]] == "down"
    assert started["node"] in [
        finding["subject"] for finding in lab.json("cluster.doctor", expect=5)["findings"]
    ]
    # Docker reports the node as down: no command waits for Ray to notice.
    failed = lab.run("smoke.run", expect=5)
    assert "smoke test failed: nodes: exited, exit code 137" in failed.stderr
    assert f"Start {started['node']}" in [
        step["title"] for step in lab.json("cluster.plan")["steps"]
    ]
    lab.run("cluster.up")
    assert set(lab.states().values()) == {"up"}
    assert ids(engine)["head"] == head


def test_workers_that_lost_their_head_come_back_by_themselves(lab: Yard, engine: BedEngine) -> None:
    before = ids(engine)
    engine.docker("restart", "-t", "0", "trainyard-compose-lab-head")
    lab.run("cluster.up")
    assert set(lab.states().values()) == {"up"}
    assert ids(engine) == before


def test_another_head_is_made_only_when_that_is_meant(lab: Yard, engine: BedEngine) -> None:
    before = ids(engine)
    refused = lab.run(
        *(
            "cluster.up",
            "--set",
            "head.cpus=2",
            "--set",
            "env.PRICE=six",
            "--set",
            "compose.mounts=[]",
        ),
        expect=2,
    )

    assert refused.stderr.splitlines()[-3:] == [
        (
            "error: the head in the cluster file is not the head that runs; replacing it ends "
            "everything on the cluster"
        ),
        (
            "  at cpus: 1 now, 2 desired; env.PRICE differs; mount /etc/ssl at /data/ssl (read "
            "only) is gone"
        ),
        "  -> If that is meant: trainyard cluster.up --set head.cpus=2 --set env.PRICE=six "
        "--set 'compose.mounts=[]' --recreate",
    ]

    assert ids(engine) == before
    plan = lab.json("cluster.plan", "--set", "head.cpus=2")["steps"]
    assert (
        plan[0]["seen"]
        == "needs --recreate, which ends everything on the cluster: cpus: 1 now, 2 desired"
    )

    assert [step["title"] for step in plan if step["state"] != "already"] == [
        "Replace the head that runs",
        "Remove head, cpu-0, cpu-1",
        "Start the head and 2 workers",
        "All 3 nodes answer",
    ]


def test_a_cluster_that_cannot_be_made_reports_the_cause(other: Yard, engine: BedEngine) -> None:
    other.write_cluster(ALONE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refusals = {
            "compose.mounts=[{source: /no/such/directory, target: /data}]": (
                3,
                "the Docker host does not have a directory of compose.mounts: /no/such/directory",
            ),
            "image=trainyard-bed/base:1": (6, "exec ray failed: No such file or directory"),
            f"compose.dashboard_port={port}": (
                6,
                "Leave out compose.dashboard_port: then a free port is taken.",
            ),
        }
        for change, (code, message) in refusals.items():
            assert message in other.run("cluster.up", "--set", change, expect=code).stderr


def test_a_head_that_never_ran_shows_its_last_words_and_is_replaced(replaced: Replaced) -> None:
    assert (
        "head ended while it was starting (exit code 1); its last output:\n"
        in replaced.failed.stderr
    )
    assert replaced.status["state"] != "up"
    assert re.search(
        r"head: .*(restarting, exit code 1|started it again \d+ times)", replaced.status["seen"]
    )
    assert "Remove head" in replaced.made.stderr
    assert replaced.yard.states() == {"head": "up"}


def test_fewer_workers_leave_the_others_alone(lab: Yard, engine: BedEngine) -> None:
    before, address = ids(engine), lab.address()
    planned = lab.json("cluster.plan", "--set", "workers.0.count=1")["steps"]
    assert [step["title"] for step in planned if step["disruptive"]] == ["Remove cpu-1"]
    lab.run("cluster.up", "--set", "workers.0.count=1")
    assert ids(engine) == {name: before[name] for name in ("head", "cpu-0")}
    with RayApi(address, lab.token()) as ray:
        assert {node.name for node in ray.nodes() if node.alive} == {"head", "cpu-0"}
    checks = lab.json("smoke.run", "--set", "workers.0.count=1")["checks"]
    assert {check["node"] for check in checks} == {"head", "cpu-0", None}
    lab.run("cluster.up")
    assert ids(engine).items() >= {name: before[name] for name in ("head", "cpu-0")}.items()
    assert set(lab.states().values()) == {"up"}


def test_two_clusters_side_by_side_do_not_see_each_other(
    lab: Yard, replaced: Replaced, engine: BedEngine
) -> None:
    before, beside = ids(engine), replaced.yard
    made = inspected(engine, "head", "compose-beside")["HostConfig"]
    assert (made["NanoCpus"], made["CapDrop"], made["SecurityOpt"]) == (
        10**9,
        ["ALL"],
        ["no-new-privileges:true"],
    )

    assert made["Memory"] > 1024**3
    assert made["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "3"}
    assert httpx.get(f"{beside.address()}/api/version").status_code == 200
    assert (
        in_node(engine, "cpu-0", "getent hosts trainyard-compose-beside-head || echo unknown")
        == "unknown\n"
    )
    # Neither the file's present content nor its other Docker address matters to `down`.
    file = beside.write_cluster(ALONE + "compose: {{docker: ssh://nobody@nowhere.invalid}}\n")
    done = beside.run("cluster.down")
    assert "Remove 1 container: trainyard-compose-beside-head" in done.stderr
    assert left_of(engine, "compose-beside") == []
    assert not beside.state.exists()
    file.unlink()
    assert ids(engine) == before
    assert set(lab.states().values()) == {"up"}


def test_commands_refuse_a_foreign_cluster_of_the_same_name(lab: Yard, other: Yard) -> None:
    file = other.write_cluster(LAB, name="compose-lab")
    for task in ("cluster.up", "cluster.status", "smoke.run", "cluster.down"):
        refused = other.run(task, "-f", str(file), expect=2)
        assert "exists on this Docker host in cluster compose-lab, made by" in refused.stderr
    file.unlink()


def test_a_container_of_others_with_a_node_s_name_is_named(other: Yard, engine: BedEngine) -> None:
    other.write_cluster(ALONE)
    engine.docker("create", "--name", "trainyard-compose-other-head", "trainyard-bed/ray:1")
    try:
        refused = other.run("cluster.up", expect=2).stderr
        message = (
            "a container that this cluster did not make has the name of a node: "
            "trainyard-compose-other-head"
        )
        assert f"error: {message}\n" in refused
    finally:
        engine.docker("rm", "trainyard-compose-other-head")


def test_a_foreign_volume_is_refused_by_up_and_kept_by_down(other: Yard, engine: BedEngine) -> None:
    other.write_cluster(ALONE)
    volume = "trainyard-compose-other-outputs"
    engine.docker("volume", "create", volume)
    try:
        assert "made by an unknown user" in other.run("cluster.up", expect=2).stderr
        other.run("cluster.down")
        assert left_of(engine, "compose-other") == []
        assert volume in engine.docker("volume", "inspect", volume).stdout
    finally:
        engine.docker("volume", "rm", volume)


def test_docker_over_plain_tcp_is_refused(tmp_path: Path) -> None:
    plain = Yard(tmp_path, cluster="compose-plain", environ={"DOCKER_HOST": "tcp://127.0.0.1:2375"})
    plain.write_cluster(ALONE)
    assert plain.run("cluster.up", expect=2).stderr.splitlines()[-3:] == [
        (
            "error: backend 'compose' needs a Docker host here or over SSH, and `docker` talks to "
            "tcp://127.0.0.1:2375"
        ),
        "  at $DOCKER_HOST",
        "  -> Write `compose: {docker: ssh://user@host}`; Docker over plain TCP lets everybody in.",
    ]


def test_without_compose_the_plugin_is_asked_for(other: Yard, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    bare = Yard(
        other.home,
        cluster=other.cluster,
        environ={**other.environ, "DOCKER_CONFIG": str(tmp_path / "config")},
    )
    bare.write_cluster(ALONE)
    refused = bare.run("cluster.up", expect=3)
    assert "error: `docker compose` does not work here" in refused.stderr


def test_a_cluster_is_unknown_while_its_docker_engine_does_not_answer(
    other: Yard, tmp_path: Path
) -> None:
    nobody = Yard(
        tmp_path / "nobody",
        cluster="compose-nobody",
        environ={"DOCKER_HOST": f"unix://{tmp_path}/no.sock"},
    )

    nobody.write_cluster(ALONE)
    for task in ("cluster.status", "cluster.up"):
        refused = nobody.run(task, expect=3)
        assert "error: the Docker engine does not answer" in refused.stderr

    (listed,) = (
        one for one in nobody.json("cluster.list")["clusters"] if one["name"] == "compose-nobody"
    )
    assert listed["state"] == "unknown"
    assert listed["problem"].startswith("the Docker engine does not answer: unix://")
