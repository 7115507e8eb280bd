"""A cluster of containers on a host reached by SSH: a container with a real sshd and engine."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.bed import hosts, images, publishing
from tests.bed.engine import BedEngine
from tests.bed.host import DockerHost
from tests.bed.places import free_port
from tests.real.jobs import COUNTING, counted, newest, write_job
from tests.real.yard import Yard, wait_until

FAR = """
name: {{name}}
backend: compose
image: {image}
head: {{{{cpus: 1, memory: 1GiB}}}}
workers:
  - {{{{name: cpu, count: 1, cpus: 1, memory: 1GiB}}}}
compose: {{{{docker: "{ssh}"}}}}
registry: {{{{address: "{registry}", insecure: true}}}}
"""


@pytest.fixture(scope="module")
def image(engine: BedEngine) -> Iterator[str]:
    """Give an image that only a registry has; other hosts reach the registry's address too."""
    registry = f"{engine.bridge_ip}:{free_port()}"
    publishing.publish(engine, registry, images.RAY, owner=hosts.this_process())
    try:
        yield f"{registry}/{images.RAY}"
    finally:
        engine.docker("rm", "-f", "-v", publishing.container_of(registry))


@pytest.fixture(scope="module")
def far(
    image: str, docker_host: DockerHost, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    """Give a head and a worker on another host, which had to pull the image first."""
    far = Yard(tmp_path_factory.mktemp("far"), cluster="compose-far", environ=docker_host.environ())
    far.write_cluster(
        FAR.format(ssh=docker_host.ssh, image=image, registry=image.partition("/")[0])
    )
    with far.up() as made:
        assert f"ok  Pull the image {image} (done" in made.stderr
        yield far
    label = ("--filter", "label=io.trainyard.cluster=compose-far")
    for listed in (("ps", "-aq"), ("network", "ls", "-q"), ("volume", "ls", "-q")):
        assert docker_host.docker(*listed, *label).stdout == ""


def sessions(host: DockerHost) -> list[str]:
    """Return the processes of sshd, without the one that listens."""
    return sorted(host.run("pidof", "sshd").stdout.split(), key=int)[1:]


def test_the_cluster_answers_through_a_tunnel_that_ends_with_the_command(
    far: Yard, docker_host: DockerHost
) -> None:
    assert far.states() == {"head": "up", "cpu-0": "up"}
    far.run("smoke.run")
    runs = docker_host.docker(
        "inspect", "--format", "{{.Config.Image}}", "trainyard-compose-far-cpu-0"
    ).stdout
    assert f"{images.RAY.partition(':')[0]}@sha256:" in runs
    assert {step["state"] for step in far.json("cluster.plan")["steps"]} == {"already"}
    # The host notices a moment later that a connection has ended.
    wait_until(
        lambda: len(sessions(docker_host)) == 0, seconds=10, what="every connection has ended"
    )


def test_a_run_completes_when_its_tunnel_breaks(far: Yard, docker_host: DockerHost) -> None:
    lines = 300
    job = f'command: [python3, count.py, "{lines}", "0.3"]\nresources: {{cpus: 1}}\n'
    write_job(far, "counting", job, count=COUNTING)
    command = far.start("train.dispatch", "counting", "--skip-smoke")

    try:
        wait_until(
            lambda: bool(list(far.results.glob("*/logs/counting.1.log"))),
            seconds=90,
            what="the task prints",
        )
        docker_host.run("kill", *sessions(docker_host))
        output, _ = command.communicate(timeout=120)
        assert command.returncode == 0, output
    finally:
        command.kill()

    assert (newest(far) / "logs" / "counting.1.log").read_text() == counted(lines)


def test_a_host_where_docker_cannot_be_run_says_so_in_its_own_words(
    far: Yard, docker_host: DockerHost
) -> None:
    docker_host.run("mv", "/usr/bin/docker", "/usr/bin/docker.away")
    try:
        refused = far.run("cluster.status", expect=3)
    finally:
        docker_host.run("mv", "/usr/bin/docker.away", "/usr/bin/docker")
    assert refused.stderr.splitlines()[-3:] == [
        "error: the Docker engine does not answer",
        f"  at {docker_host.ssh}: bash: line 1: docker: command not found",
        f"  -> Is Docker installed and running there? Try: ssh root@{docker_host.ip} docker info",
    ]


def test_open_holds_its_tunnel_until_ctrl_c(far: Yard) -> None:
    command = far.start("cluster.open")
    try:
        line = next(line for line in command.stdout or () if line.startswith("dashboard: "))
        address = line.split()[1]
        assert httpx.get(
            f"{address}/api/version", headers={"Authorization": f"Bearer {far.token()}"}
        ).is_success
        command.send_signal(signal.SIGINT)
        assert command.wait(timeout=30) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/api/version")
    finally:
        command.kill()


def test_the_cluster_ends_itself_when_it_was_idle_for_long_enough(
    far: Yard, docker_host: DockerHost
) -> None:
    far.run("cluster.up", "--set", "leash.idle=8s")
    label = ("--filter", "label=io.trainyard.cluster=compose-far")
    wait_until(
        lambda: not docker_host.docker("ps", "-aq", *label).stdout,
        seconds=60,
        what="no container is left",
    )
    assert "it had a leash (ends after 8s without a job)" in far.run("cluster.status").stderr
