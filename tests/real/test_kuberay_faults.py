"""Faults of a cluster on Kubernetes: pods, the head, the API server, a registry, a whole host.

In all tests the user may use one namespace and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real.jobs import (
    COUNTING,
    RESUMING,
    assert_whole,
    end_of,
    events,
    newest,
    running,
    runs,
    started,
    write_job,
)
from tests.real.kube import RAY_IMAGE
from tests.real.proxy import Proxy
from tests.real.yard import Yard, assert_one_error, wait_until

pytestmark = pytest.mark.breaking
SPACE = "faults"
LINES = 400
MEGABYTE = 1_000_000


def lab(count: int) -> dict[str, Any]:
    workers = [{"name": "cpu", "count": count, "cpus": 1, "memory": "512MiB"}]
    return {"head": {"cpus": 0, "memory": "1GiB"}, "workers": workers}


# Waits for a file on its node; with a checkpoint, ends at once.
WAITING = (
    RESUMING
    + 'while not pathlib.Path("/tmp", os.environ["TRAINYARD_RUN"]).exists():\n    time.sleep(0.2)\n'
)


@pytest.fixture(scope="module")
def config(kube: KubeBed, operator: None) -> Path:
    """Give a kubeconfig for one namespace; the KubeRay operator is an administrator's."""
    return kube.restricted(SPACE)


@pytest.fixture(scope="module")
def faulty(kube: KubeBed, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a cluster with two workers, which every test leaves as good as it found it.

    After the tests nothing outside the cluster has changed.
    """
    before = kubernetes.general(kube)
    yard = kubernetes.yard(kube, tmp_path_factory.mktemp("faults"), "faulty", kubeconfig=config)
    kubernetes.write(kube, yard, lab(2), namespace=SPACE)
    try:
        yard.run("cluster.up")
        yield yard
    finally:
        purged = yard.run("cluster.down", "--end-runs", "--purge").stderr
    assert "Leave the KubeRay operator: it is not known who made it" in purged
    assert f"Leave namespace {SPACE}: there is none that Trainyard made" in purged
    assert kubernetes.belongings(kube, "faulty") == []
    assert kubernetes.general(kube) == before
    assert not yard.state.exists()


def counting_job(yard: Yard, *, pause: float) -> str:
    """Write a job that counts, ten lines and a pause at a time."""
    job = f'command: [python3, count.py, "{LINES}", "{pause}"]\n'
    return write_job(yard, "counting", job, count=COUNTING)


def kill_pod(kube: KubeBed, pod: str, *, space: str = SPACE) -> None:
    """Remove a pod at once, as the loss of its host would."""
    kube.kubectl("delete", "pod", pod, "-n", space, "--force", "--grace-period=0")


def name_of(kube: KubeBed, node: str) -> str:
    return str(kubernetes.pods(kube, "faulty", namespace=SPACE)[node]["metadata"]["name"])


def assert_good(yard: Yard, *, workers: int = 2) -> None:
    states = yard.states()
    assert set(states.values()) == {"up"}, states
    assert len(states) == workers + 1, states


def test_a_namespace_is_enough_to_train_repair_and_scale_in(kube: KubeBed, faulty: Yard) -> None:
    assert faulty.json("smoke.run")["ok"]
    write_job(faulty, "where", "command: [hostname]\nresources: {cpus: 1}\n")
    faulty.run("train.dispatch", "where", "--skip-smoke")
    pods = kubernetes.pods(kube, "faulty", namespace=SPACE)
    names = {pod["metadata"]["name"] for node, pod in pods.items() if node != "head"}
    assert (newest(faulty) / "logs" / "where.1.log").read_text().strip() in names
    assert kubernetes.listed(faulty)["faulty"] == "up"
    assert {
        line.split()[0] for line in faulty.run("cluster.logs", "--no-follow").stdout.splitlines()
    } == set(pods)
    verified = faulty.json("image.verify")
    assert verified["ok"]
    assert "you may not list the Kubernetes nodes" in verified["remark"]
    kill_pod(kube, min(names))
    faulty.run("cluster.scale", "cpu=1")
    faulty.run("cluster.up")
    assert_good(faulty)
    kubernetes.settled(kube, SPACE)
    before = kubernetes.versions(kube, SPACE, ",".join(kubernetes.KINDS))
    assert not any(step["changed"] for step in faulty.json("cluster.up")["steps"])
    assert kubernetes.versions(kube, SPACE, ",".join(kubernetes.KINDS)) == before
    refused = faulty.run(
        "cluster.up", "--set", "name=other", "--set", "kuberay.namespace=default", expect=3
    )
    assert_one_error(refused.stderr, "lacks rights that cluster other needs")
    lacking = [line for line in refused.stderr.splitlines() if line.startswith("  - ")]
    assert lacking[:3] == [
        "  - rayclusters.ray.io: get, create, patch, delete",
        "  - secrets: get, create, patch, delete",
        "  - persistentvolumeclaims: get, delete",
    ]


def test_another_user_s_cluster_is_used_unchanged_and_its_head_not_evicted(
    kube: KubeBed, faulty: Yard, config: Path, tmp_path: Path
) -> None:
    bob = kubernetes.yard(kube, tmp_path, "faulty", kubeconfig=config)
    bob.environ["TRAINYARD_OWNER"] = "bob"
    kubernetes.write(kube, bob, lab(2), namespace=SPACE)
    owner = bob.json("cluster.status")["owner"]
    assert not any(step["changed"] for step in bob.json("cluster.up")["steps"][1:])

    for task in (("cluster.down",), ("cluster.scale", "cpu=1"), ("cluster.up", "--recreate")):
        refused = bob.run(*task, expect=2)
        assert_one_error(refused.stderr, f"cluster faulty belongs to {owner}")

    plan = bob.json("cluster.plan", "--recreate")["steps"]
    assert [step["needs"] for step in plan if step["needs"]] == ["--adopt"]
    bob.environ["TRAINYARD_OWNER"] = owner
    assert not any(step["needs"] for step in bob.json("cluster.plan", "--recreate")["steps"])
    assert_good(faulty)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name_of(kube, "head"), "namespace": SPACE},
    }

    path = f"/api/v1/namespaces/{SPACE}/pods/{name_of(kube, 'head')}/eviction"
    done = kube.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction), check=False)
    assert "would violate the pod's disruption budget" in done.stderr


def test_a_frozen_host_is_lost_to_a_run_and_ends_its_task_when_it_thaws(
    kube: KubeBed, faulty: Yard
) -> None:
    job = (
        "command: [python3, wait.py, '7301.5', '{task}']\nmatrix: {task: [0, 1]}\nresources: "
        "{cpus: 1}\n"
    )
    write_job(faulty, "frozen", job, wait=WAITING)
    command = faulty.start("train.dispatch", "frozen", "--skip-smoke")
    where = kubernetes.hosts_of(kube, "faulty", namespace=SPACE)

    try:
        wait_until(
            lambda: len(list(faulty.results.glob("frozen-*/logs/*.1.log"))) == 2,
            seconds=180,
            what="tasks run",
        )

        time.sleep(3)  # for the checkpoints to reach the head
        started = [event for event in events(newest(faulty)) if event["event"] == "attempt-started"]
        # One task runs on each worker; the first host also runs the API server.
        vital = (where["head"], kube.plane.host.name)
        task, host = next(
            (one["task"], where[one["node"]]) for one in started if where[one["node"]] not in vital
        )
        (other,) = (one["node"] for one in started if one["task"] != task)
        began = time.monotonic()

        with paused(kube, host):
            kube.kubectl(
                "exec",
                name_of(kube, other),
                "-n",
                SPACE,
                "--",
                "touch",
                f"/tmp/{newest(faulty).name}",
            )

            code, output = end_of(command)
            print(f"a run on a frozen host was over after {time.monotonic() - began:.1f} s")
            named = f"Kubernetes calls its node {host} not ready"
            wait_until(
                lambda: named in faulty.json("cluster.status")["seen"], seconds=120, what=named
            )
    finally:
        command.kill()

    assert code == 0, output
    ended = [
        event
        for event in events(newest(faulty))
        if event["event"] == "attempt-ended" and event["task"] == task
    ]

    assert [one["outcome"] for one in ended] == ["lost", "succeeded"]
    assert (newest(faulty) / "logs" / f"{task}.2.log").read_text() == "resumed\n"
    assert (newest(faulty) / "checkpoints" / task / "began").exists()
    wait_until(lambda: not running("7301.5"), seconds=30, what="the task that thawed has ended")
    wait_until(lambda: len(kube.ready()) == len(kube.hosts), seconds=60, what="every host is ready")
    faulty.run("cluster.up")
    assert_good(faulty)


@contextmanager
def paused(kube: KubeBed, host: str) -> Iterator[None]:
    """Freeze a whole host inside the block; its connections stay open."""
    container = kube.host(host).container
    kube.engine.docker("pause", container)
    try:
        yield
    finally:
        kube.engine.docker("unpause", container)


def test_an_api_server_away_for_a_while_costs_no_line_and_is_one_error(
    kube: KubeBed, faulty: Yard
) -> None:
    job, before = counting_job(faulty, pause=0.5), runs(faulty)
    following = faulty.start("train.dispatch", job, "--skip-smoke")
    run = started(faulty, before, following)
    kube.stop_api()

    try:
        gone_at = time.monotonic()
        for command in ("cluster.status", "cluster.up", "smoke.run"):
            refused = faulty.run(command, expect=6, seconds=30)
            assert_one_error(refused.stderr, "the Kubernetes API does not answer", kube.plane.url)
        assert "unsure" in faulty.json("train.status", run.name)
        time.sleep(max(15 - (time.monotonic() - gone_at), 0))
    finally:
        kube.start_api()

    code, output = end_of(following)
    assert code == 0, output
    assert "connection to the cluster lost, trying again" in output
    assert_whole(output, run, LINES)
    wait_until(lambda: len(kube.ready()) == len(kube.hosts), seconds=60, what="every host is ready")
    faulty.run("cluster.up")
    assert_good(faulty)


def test_a_killed_head_ends_the_run_clearly_and_up_repairs_the_cluster(
    kube: KubeBed, faulty: Yard
) -> None:
    job, before = counting_job(faulty, pause=5), runs(faulty)
    following = faulty.start("train.dispatch", job, "--skip-smoke")
    run = started(faulty, before, following)
    began = time.monotonic()
    kill_pod(kube, name_of(kube, "head"))
    code, output = end_of(following, seconds=120)
    print(f"a killed head was said after {time.monotonic() - began:.1f} s", output)
    assert code == 6, output
    assert_one_error(output)
    # Either nothing answers for a while, or the next head answers, and does not know the run.
    assert f"trainyard train.logs {run.name}" in output or "trainyard cluster.status" in output, (
        output
    )
    faulty.run("cluster.up")
    print(f"repaired after {time.monotonic() - began:.1f} s")
    assert_good(faulty)
    faulty.run("smoke.run")


def test_a_registry_lost_in_mid_pull_is_named_and_up_continues_with_it(
    kube: KubeBed, config: Path, tmp_path: Path
) -> None:
    slow = Proxy(f"http://{kube.registry}", host=kube.engine.bridge_ip, rate=MEGABYTE)
    slow.start()
    registry = slow.address.removeprefix("http://")
    kube.trust_registry(registry)
    fresh = with_layer(kube, megabytes=16)
    yard = kubernetes.yard(kube, tmp_path, "pull", kubeconfig=config)
    slowly = {"image": f"{registry}/{fresh}", "registry": {"address": registry, "insecure": True}}
    kubernetes.write(kube, yard, {**lab(1), **slowly}, namespace=SPACE)
    up = yard.start("cluster.up")

    try:
        wait_until(lambda: slow.brought > 4 * MEGABYTE, seconds=120, what="a layer is on its way")
        slow.cut()
        code, output = end_of(up)
        said = time.time() - known_since(kube, "pull-")
        print(f"a registry that is gone was said {said:.0f} s after Kubernetes knew it")
        assert slow.brought < 12 * MEGABYTE
        assert code == 6, output
        assert_one_error(
            output, f"{registry}/{fresh.partition(':')[0]}", f"registry {registry} does not answer"
        )
        assert re.search(r"on host-\d", output), output
        assert said < 15, said
        slow.rate = None
        slow.start()
        yard.run("cluster.up")
        assert_good(yard, workers=1)
    finally:
        up.kill()
        slow.cut()
        yard.run("cluster.down")

    assert kubernetes.belongings(kube, "pull") == []


def with_layer(kube: KubeBed, *, megabytes: int) -> str:
    """Publish Ray's image with another layer, which no host has; the layer is always the same."""
    fresh = "trainyard-bed/fresh:1"
    write = f"open('fresh', 'wb').write(random.Random(0).randbytes({megabytes * MEGABYTE}))"
    script = f'cd && python3 -c "import random; {write}" && touch -d @0 fresh .'
    docker, name = kube.engine.docker, f"fresh-{os.getpid()}"
    try:
        docker("run", "--name", name, "--entrypoint", "sh", RAY_IMAGE, "-c", script)
        docker("commit", "--change", "ENTRYPOINT []", name, fresh)
        kube.publish(fresh)
    finally:
        docker("rm", "-f", name, check=False)
        docker("rmi", "-f", fresh, check=False)
    return fresh


def known_since(kube: KubeBed, pods: str) -> float:
    """Return when a kubelet first reported a failure for one of these pods, in Unix seconds."""
    failed = [
        one["firstTimestamp"]
        for one in kubernetes.objects(kube, "events", "-n", SPACE)
        if one["reason"] == "Failed" and one["involvedObject"]["name"].startswith(pods)
    ]
    return datetime.fromisoformat(min(failed)).timestamp()
