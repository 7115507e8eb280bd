"""Clusters that end themselves: the operator's processes are killed, its state directory is away, and nothing is left.

Over SSH: test_compose_ssh.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from tests.bed.engine import BedEngine
from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real.jobs import end_of, newest, write_job
from tests.real.yard import HEAD_AND_WORKER, Yard, wait_until
from trainyard.backends.local import node_processes
from trainyard.backends.local.naming import ClusterFiles

KEEPS = """
    command: [sh, -c, "echo kept > $TRAINYARD_OUTPUT/kept; sleep 600"]
    resources: {cpus: 1}
    outputs_every: 1h
    """
# From the time set until everything is gone.
A_MINUTE = 60.0
HELD = "leash: {{idle: 2h, deadline: 12h}}\n"
CONTAINERS = """
name: {name}
backend: compose
image: trainyard-bed/ray:1
head: {{cpus: 1, memory: 1GiB}}
"""
# Ray's autoscaler has an account of its own, which must go on.
PODS = {
    "head": {"cpus": 1, "memory": "1GiB"},
    "workers": [{"name": "burst", "min": 0, "max": 1, "cpus": 1, "memory": "512MiB", "idle_timeout": "5s"}],
    "leash": {"idle": "2h", "deadline": "12h"},
}
SPACE = "leashed"
WAITS = """
    command: [sleep, "600"]
    resources: {cpus: 1}
    """


def followed(yard: Yard, name: str, job: str) -> subprocess.Popen[str]:
    """Dispatch a run, and return what follows it once it runs."""
    following = yard.start("train.dispatch", write_job(yard, name, job), "--skip-smoke", as_leader=True)
    wait_until(
        lambda: any("attempt-started" in path.read_text() for path in yard.results.glob(f"*{name}*/events.jsonl")),
        seconds=120,
        what="a run that is followed",
    )
    return following


def shorten(yard: Yard, *, made: float) -> float:
    """Have the cluster end soon, and return when."""
    deadline = time.time() - made + 40
    yard.run("cluster.up", "--set", f"leash.deadline={deadline:.0f}s")
    return made + round(deadline)


def operator_leaves(yard: Yard, away: Path, *, made: float) -> tuple[str, float]:
    """Have the cluster end soon, kill what follows a run, take the state directory away; return run and time."""
    following = followed(yard, "waits", WAITS)
    due = shorten(yard, made=made)
    for process in [*psutil.Process(following.pid).children(recursive=True), psutil.Process(following.pid)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    following.communicate()
    shutil.move(yard.state, away)
    return newest(yard).name, due


def ended_in_time(yard: Yard, away: Path, left: Callable[[], list[str]], *, due: float) -> None:
    """Wait until nothing is left; then give the operator its directory again, and look at what is said."""
    wait_until(lambda: not left(), seconds=due + A_MINUTE - time.time(), what="everything is gone")
    assert time.time() >= due
    shutil.rmtree(yard.state, ignore_errors=True)
    shutil.move(away, yard.state)
    status = yard.json("cluster.status")
    # Records of processes that came back with the directory say that they have ended.
    assert status["condition"] == ("broken" if status["backend"] == "local" else "absent")
    assert "it had a leash (ends at " in status["remark"]
    assert "outputs of runs that nobody had fetched by then are lost" in status["remark"]
    run = yard.json("train.status", newest(yard).name)
    assert "it had a leash" in json.dumps(run)


def test_processes_of_this_machine_end_themselves(fresh: Yard, tmp_path: Path) -> None:
    fresh.write_cluster(HEAD_AND_WORKER + HELD)
    made = fresh.run("cluster.up")
    assert "note: the cluster ends at " in made.stderr and "or after 2h without a job" in made.stderr
    status = fresh.json("cluster.status")
    assert (status["leash"]["idle"], status["leash"]["problem"], status["differences"]) == (7200.0, "", [])
    assert status["leash"]["deadline"] > status["leash"]["ends_at"]
    assert {step["state"] for step in fresh.json("cluster.plan")["steps"]} == {"already"}
    nodes = [fresh.keeper("head"), fresh.keeper("cpu-0")]
    made_at = psutil.Process(nodes[0].pid).create_time()
    run, due = operator_leaves(fresh, tmp_path / "away", made=made_at)
    files = ClusterFiles(fresh.state)

    def left() -> list[str]:
        return [*map(str, node_processes.of_cluster(files)), *(str(path) for path in (files.temp,) if path.exists())]

    ended_in_time(fresh, tmp_path / "away", left, due=due)
    # Ray went on while the leash was changed.
    assert nodes == [fresh.keeper("head"), fresh.keeper("cpu-0")]
    assert f"stop {run}\n" in (fresh.state / "nodes" / "leash.log").read_text()
    fresh.run("cluster.up")
    following = followed(fresh, "keeps", KEEPS)
    shorten(fresh, made=psutil.Process(fresh.keeper("head").pid).create_time())
    # Whoever follows a run gets what it leaves.
    assert end_of(following)[0] == 1
    assert (newest(fresh) / "outputs" / "keeps" / "kept").read_text() == "kept\n"
    wait_until(lambda: not left(), seconds=A_MINUTE, what="everything is gone")
    assert "it had a leash" in fresh.run("cluster.status").stderr
    assert not fresh.state.joinpath("token").exists()


def test_containers_end_themselves_and_the_outputs_volume_stays(engine: BedEngine, tmp_path: Path) -> None:
    yard = Yard(tmp_path / "home", cluster="leashed", environ=engine.environ())
    yard.write_cluster(CONTAINERS + HELD)
    label = ("--filter", "label=io.trainyard.cluster=leashed")

    def inspected(words: str) -> str:
        return engine.docker("inspect", "--format", words, "trainyard-leashed-head").stdout.strip()

    def left() -> list[str]:
        listed = (("ps", "-a", "--format", "{{.Names}}"), ("network", "ls", "--format", "{{.Name}}"))
        return [name for words in listed for name in engine.docker(*words, *label).stdout.split()]

    try:
        yard.run("cluster.up")
        assert left() == ["trainyard-leashed-leash", "trainyard-leashed-head", "trainyard-leashed"]
        assert {step["state"] for step in yard.json("cluster.plan")["steps"]} == {"already"}
        # The token is in no argument, label or variable of it.
        assert yard.token() not in engine.docker("inspect", "trainyard-leashed-leash").stdout
        started = inspected("{{.State.StartedAt}}")
        made = datetime.fromisoformat(inspected("{{.Created}}")[:19] + "+00:00").timestamp()
        _, due = operator_leaves(yard, tmp_path / "away", made=made)
        assert inspected("{{.State.StartedAt}}") == started
        ended_in_time(yard, tmp_path / "away", left, due=due)
        assert engine.docker("volume", "ls", "-q", *label).stdout.split() == ["trainyard-leashed-outputs"]
    finally:
        yard.run("cluster.down", "--end-runs")
    assert engine.docker("volume", "ls", "-q", *label).stdout == ""


@pytest.mark.breaking
def test_pods_end_themselves_by_an_account_that_may_do_nothing_else(
    kube: KubeBed, operator: None, tmp_path: Path
) -> None:
    yard = kubernetes.yard(kube, tmp_path / "home", "leashed")
    kubernetes.write(kube, yard, PODS, namespace=SPACE)

    def left() -> list[str]:
        deployments = kubernetes.objects(kube, "deployments", "-n", SPACE)
        return [*kubernetes.belongings(kube, "leashed"), *(each["metadata"]["name"] for each in deployments)]

    def may(verb: str, what: str) -> bool:
        account = f"--as=system:serviceaccount:{SPACE}:leashed-leash"
        return kube.kubectl("auth", "can-i", verb, what, "-n", SPACE, account, check=False).stdout.strip() == "yes"

    try:
        yard.run("cluster.up")
        assert {step["state"] for step in yard.json("cluster.plan")["steps"]} == {"already"}
        assert may("delete", "rayclusters.ray.io/leashed")
        for verb, what in (("delete", "rayclusters.ray.io/other"), ("get", "rayclusters.ray.io/leashed")):
            assert not may(verb, what)
        assert not any(may("list", what) for what in ("rayclusters.ray.io", "secrets", "pods"))
        before = kubernetes.uids(kube, "leashed", namespace=SPACE)
        cluster = kubernetes.one(kube, "raycluster", "leashed", namespace=SPACE) or {}
        made = datetime.fromisoformat(cluster["metadata"]["creationTimestamp"].replace("Z", "+00:00")).timestamp()
        run, due = operator_leaves(yard, tmp_path / "away", made=made)
        assert kubernetes.uids(kube, "leashed", namespace=SPACE) == before
        words = ["kubectl", "logs", "--follow", "deployment/leashed-leash", "-n", SPACE]
        log = subprocess.Popen(words, env=kube.environ(), stdout=subprocess.PIPE, text=True)
        ended_in_time(yard, tmp_path / "away", left, due=due)
        assert f"stop {run}\n" in log.communicate(timeout=30)[0]
    finally:
        yard.run("cluster.down", "--end-runs")
        kube.kubectl("delete", "namespace", SPACE, "--ignore-not-found")
