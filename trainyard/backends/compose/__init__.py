"""Head and workers as containers of one Docker host, here or over SSH; dashboard on loopback only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from trainyard.backends import contract
from trainyard.backends.compose import image, location, naming
from trainyard.backends.compose.machine import DockerHost
from trainyard.backends.contract import Backend, ClusterStatus, Finding, LogLine, Tools, Traits
from trainyard.backends.shared import ray_nodes, removal
from trainyard.backends.shared.findings import full_disk
from trainyard.backends.shared.record import forget_step
from trainyard.backends.shared.single_host import node_steps
from trainyard.endpoint import Endpoint
from trainyard.images import resolve
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.containers import Container, Labelled
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import Stage, Step

# The engine answers before a container's last file is closed; on a busy disk that takes seconds.
GONE_SECONDS = 30.0


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Stage]:
    """Return the steps that make the cluster match its file; which they are, its Docker host knows."""
    ray_nodes.refuse_growing_groups(spec)
    return [Stage("docker-host", "Look at the Docker host", expand=lambda: _up_steps(spec, tools))]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Stage | Step]:
    """Return the steps that remove all that carries the cluster's label, whatever its file says."""
    return [
        Stage("docker-host", "Look at the Docker host", expand=lambda: _removals(spec, tools)),
        forget_step(tools.state, title="Remove the token, and what was written down"),
    ]


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    return DockerHost(spec, tools, location.connect(spec, tools)).status()


def diagnose(spec: ClusterSpec, tools: Tools) -> list[Finding]:
    engine = location.connect(spec, tools)
    if engine.is_here:
        return [*full_disk(Path(str(engine.info().get("DockerRootDir") or "/nowhere")))]
    return []


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    return DockerHost(spec, tools, location.connect(spec, tools)).endpoint()


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    return DockerHost(spec, tools, location.connect(spec, tools)).logs(follow=follow, node=node)


def shell(spec: ClusterSpec, tools: Tools, *, node: str, command: str, terminal: bool) -> list[str]:
    host = DockerHost(spec, tools, location.connect(spec, tools))
    container = contract.pick(host.containers(), node, cluster=spec.name).name
    interactive = "-i"
    if terminal:
        interactive = "-it"

    docker = ["docker", "--host", host.engine.address, "exec", interactive, container]
    return [*docker, *contract.shell_words(command)]


def _up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    location.refuse_other_host(spec, tools)
    engine = location.connect(spec, tools)
    location.refuse_taken_volume(spec, tools, engine)

    running: dict[str, str] = {}
    if not tools.recreate:
        for node in DockerHost(spec, tools, engine).nodes().values():
            running[node.plan.get("group", "")] = node.plan.get("image", "")

    head = running.get("head") or None
    pinned = resolve.pinned(
        spec, tools.environ, directory=tools.directory, engine=engine, running=head
    )
    images = resolve.of_groups(
        spec, tools.environ, directory=tools.directory, engine=engine, running=running
    )
    pulls = [image.pull_step(engine, each) for each in resolve.distinct(pinned, images)]
    return node_steps(DockerHost(spec, tools, engine, pinned, images), pulls)


def _removals(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return the steps after which nothing carries the cluster's label."""
    engine = location.connect(spec, tools)
    label = naming.of_cluster(spec.name)

    def removal_of(
        noun: str,
        labelled: Callable[[Engine, str], Sequence[Container | Labelled]],
        remove: Callable[[Engine, str], None],
    ) -> Step:
        def names() -> list[str]:
            return [thing.name for thing in labelled(engine, label)]

        def remove_all(names: list[str]) -> None:
            for name in names:
                remove(engine, name)

        is_node = noun == "container"
        return removal.step(noun, names, remove_all, deadline=GONE_SECONDS, disruptive=is_node)

    return [
        removal_of("container", docker_containers.labelled, docker_containers.remove),
        removal_of("network", docker_containers.networks, docker_containers.remove_network),
        removal_of("volume", docker_containers.volumes, docker_containers.remove_volume),
    ]


# No documents: what Docker Compose gets is made for each command, and serves nothing else.
BACKEND = Backend(
    traits=Traits(pushed_image="image.verify", grows=False),
    up_steps=up_steps,
    down_steps=down_steps,
    status=status,
    connect=connect,
    logs=logs,
    diagnose=diagnose,
    shell=shell,
    verify=image.verify,
)
