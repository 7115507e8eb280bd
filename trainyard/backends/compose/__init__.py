"""Head and workers as containers of one Docker host, here or over SSH.

The dashboard listens only on the host's loopback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from trainyard.backends import contract
from trainyard.backends.compose import image, location, naming
from trainyard.backends.compose.machine import DockerHost
from trainyard.backends.contract import Backend, ClusterStatus, Finding, LogLine, Site, Traits
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

# On a busy disk the engine confirms a removal seconds before it closes the container's last file.
GONE_SECONDS = 30.0


def up_steps(spec: ClusterSpec, site: Site) -> list[Stage]:
    ray_nodes.refuse_growing_groups(spec)
    return [Stage("docker-host", "Look at the Docker host", expand=lambda: _up_steps(spec, site))]


def down_steps(spec: ClusterSpec, site: Site, *, purge: bool) -> list[Stage | Step]:
    return [
        Stage("docker-host", "Look at the Docker host", expand=lambda: _removals(spec, site)),
        forget_step(site.state, title="Remove the token and the record"),
    ]


def status(spec: ClusterSpec, site: Site) -> ClusterStatus:
    return DockerHost(spec, site, location.connect(spec, site)).status()


def diagnose(spec: ClusterSpec, site: Site) -> list[Finding]:
    engine = location.connect(spec, site)
    if engine.is_here:
        return [*full_disk(Path(str(engine.info().get("DockerRootDir") or "/nowhere")))]
    return []


def connect(spec: ClusterSpec, site: Site) -> Endpoint:
    return DockerHost(spec, site, location.connect(spec, site)).endpoint()


def logs(spec: ClusterSpec, site: Site, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    return DockerHost(spec, site, location.connect(spec, site)).logs(follow=follow, node=node)


def shell(spec: ClusterSpec, site: Site, *, node: str, command: str, terminal: bool) -> list[str]:
    host = DockerHost(spec, site, location.connect(spec, site))
    container = contract.pick(host.containers(), node, cluster=spec.name).name
    interactive = "-i"
    if terminal:
        interactive = "-it"

    docker = ["docker", "--host", host.engine.address, "exec", interactive, container]
    return [*docker, *contract.shell_words(command)]


def _up_steps(spec: ClusterSpec, site: Site) -> list[Step]:
    location.refuse_other_host(spec, site)
    engine = location.connect(spec, site)
    location.refuse_taken_volume(spec, site, engine)

    running: dict[str, str] = {}
    if not site.wishes.recreate:
        for node in DockerHost(spec, site, engine).nodes().values():
            running[node.plan.get("group", "")] = node.plan.get("image", "")

    head = running.get("head") or None
    pinned = resolve.pinned(
        spec, site.environ, directory=site.directory, engine=engine, running=head
    )
    images = resolve.of_groups(
        spec, site.environ, directory=site.directory, engine=engine, running=running
    )
    pulls = [image.pull_step(engine, each) for each in resolve.distinct(pinned, images)]
    return node_steps(DockerHost(spec, site, engine, pinned, images), pulls)


def _removals(spec: ClusterSpec, site: Site) -> list[Step]:
    engine = location.connect(spec, site)
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


# `documents` is left out: each command generates Docker Compose's document, which is useless
# elsewhere.
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
