"""Clusters with a leash (deadline, idle limit) end themselves after the operator's loss.

The tests kill the operator's processes and move its state directory away. Local nodes would be lost
with their operator's machine, so there the directory stays. Over SSH: test_compose_ssh.py.
"""

from __future__ import annotations

import subprocess
import time
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from tests.bed.engine import BedEngine
from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real.jobs import end_of, newest
from tests.real.leashed import (
    A_MINUTE,
    WAITS,
    assert_told,
    ended_in_time,
    followed,
    killed,
    operator_leaves,
    shorten,
)
from tests.real.yard import HEAD_AND_WORKER, Yard, wait_until
from trainyard.backends.local import node_processes
from trainyard.backends.local.naming import ClusterFiles

KEEPS = """
    command: [sh, -c, "echo kept > $TRAINYARD_OUTPUT/kept; sleep 600"]
    resources: {cpus: 1}
    outputs_every: 1h
    """
HELD = "leash: {{idle: 2h, deadline: 12h}}\n"
# Seconds until the deadline of local processes; their runs take some seconds more to end.
SOON = 8.0
CONTAINERS = """
name: {name}
backend: compose
image: trainyard-bed/ray:1
head: {{cpus: 1, memory: 1GiB}}
"""
# Ray's autoscaler has an account of its own, which must keep working.
PODS = {
    "head": {"cpus": 1, "memory": "1GiB"},
    "workers": [
        {"name": "burst", "min": 0, "max": 1, "cpus": 1, "memory": "512MiB", "idle_timeout": "5s"}
    ],
    "leash": {"idle": "2h", "deadline": "12h"},
}
SPACE = "leashed"


@pytest.mark.waiting
def test_processes_of_this_machine_end_themselves(fresh: Yard) -> None:
    fresh.write_cluster(HEAD_AND_WORKER + HELD)
    made = fresh.run("cluster.up")
    assert (
        "note: the cluster ends at " in made.stderr and "or after 2h without a job" in made.stderr
    )
    status = fresh.json("cluster.status")
    assert (status["leash"]["idle"], status["leash"]["problem"], status["differences"]) == (
        7200.0,
        "",
        [],
    )

    assert status["leash"]["deadline"] > status["leash"]["ends_at"]
    assert {step["state"] for step in fresh.json("cluster.plan")["steps"]} == {"already"}
    nodes = [fresh.keeper("head"), fresh.keeper("cpu-0")]
    files = ClusterFiles(fresh.state)

    def left() -> list[str]:
        return [
            *map(str, node_processes.of_cluster(files)),
            *(str(path) for path in (files.temp,) if path.exists()),
        ]

    keeps = followed(fresh, "keeps", KEEPS)
    kept = newest(fresh)
    waits = followed(fresh, "waits", WAITS)
    alone = newest(fresh)
    due = shorten(fresh, made=psutil.Process(nodes[0].pid).create_time(), seconds=SOON)
    # Ray keeps running when the leash is changed.
    assert nodes == [fresh.keeper("head"), fresh.keeper("cpu-0")]
    killed(waits)
    # A run that is followed sends its outputs home before the end.
    code, output = end_of(keeps)
    assert (code, "stopped by the leash of the cluster, 1 of 1 tasks stopped" in output) == (
        1,
        True,
    ), output
    assert (kept / "outputs" / "keeps" / "kept").read_text() == "kept\n"
    wait_until(lambda: not left(), seconds=A_MINUTE, what="everything is gone")
    assert time.time() >= due
    assert not fresh.state.joinpath("token").exists()
    assert_told(fresh, alone.name)


def test_containers_end_themselves_and_the_outputs_volume_stays(
    engine: BedEngine, tmp_path: Path
) -> None:
    yard = Yard(tmp_path / "home", cluster="leashed", environ=engine.environ())
    yard.write_cluster(CONTAINERS + HELD)
    label = ("--filter", "label=io.trainyard.cluster=leashed")

    def inspected(words: str) -> str:
        return engine.docker("inspect", "--format", words, "trainyard-leashed-head").stdout.strip()

    def left() -> list[str]:
        listed = (
            ("ps", "-a", "--format", "{{.Names}}"),
            ("network", "ls", "--format", "{{.Name}}"),
        )
        return [name for words in listed for name in engine.docker(*words, *label).stdout.split()]

    with yard.up():
        assert left() == ["trainyard-leashed-leash", "trainyard-leashed-head", "trainyard-leashed"]
        assert {step["state"] for step in yard.json("cluster.plan")["steps"]} == {"already"}
        # The token is in no argument, label or variable of the leash's container.
        assert yard.token() not in engine.docker("inspect", "trainyard-leashed-leash").stdout
        started = inspected("{{.State.StartedAt}}")
        made = datetime.fromisoformat(inspected("{{.Created}}")[:19] + "+00:00").timestamp()
        _, due = operator_leaves(yard, tmp_path / "away", made=made)
        assert inspected("{{.State.StartedAt}}") == started
        ended_in_time(yard, tmp_path / "away", left, due=due)
        assert engine.docker("volume", "ls", "-q", *label).stdout.split() == [
            "trainyard-leashed-outputs"
        ]

    assert engine.docker("volume", "ls", "-q", *label).stdout == ""


@pytest.mark.breaking
def test_pods_end_themselves_by_an_account_that_may_do_nothing_else(
    kube: KubeBed, operator: None, tmp_path: Path
) -> None:
    yard = kubernetes.yard(kube, tmp_path / "home", "leashed")
    kubernetes.write(kube, yard, PODS, namespace=SPACE)

    def left() -> list[str]:
        deployments = kubernetes.objects(kube, "deployments", "-n", SPACE)
        return [
            *kubernetes.belongings(kube, "leashed"),
            *(each["metadata"]["name"] for each in deployments),
        ]

    def may(verb: str, what: str) -> bool:
        account = f"--as=system:serviceaccount:{SPACE}:leashed-leash"
        return (
            kube.kubectl(
                "auth", "can-i", verb, what, "-n", SPACE, account, check=False
            ).stdout.strip()
            == "yes"
        )

    with yard.up():
        assert {step["state"] for step in yard.json("cluster.plan")["steps"]} == {"already"}
        assert may("delete", "rayclusters.ray.io/leashed")

        for verb, what in (
            ("delete", "rayclusters.ray.io/other"),
            ("get", "rayclusters.ray.io/leashed"),
        ):
            assert not may(verb, what)

        assert not any(may("list", what) for what in ("rayclusters.ray.io", "secrets", "pods"))
        before = kubernetes.uids(kube, "leashed", namespace=SPACE)
        cluster = kubernetes.one(kube, "raycluster", "leashed", namespace=SPACE) or {}
        made = datetime.fromisoformat(
            cluster["metadata"]["creationTimestamp"].replace("Z", "+00:00")
        ).timestamp()
        run, due = operator_leaves(yard, tmp_path / "away", made=made)
        assert kubernetes.uids(kube, "leashed", namespace=SPACE) == before
        words = ["kubectl", "logs", "--follow", "deployment/leashed-leash", "-n", SPACE]
        log = subprocess.Popen(words, env=kube.environ(), stdout=subprocess.PIPE, text=True)
        ended_in_time(yard, tmp_path / "away", left, due=due)
        assert f"stop {run}\n" in log.communicate(timeout=30)[0]
        kube.kubectl("delete", "namespace", SPACE, "--ignore-not-found")
