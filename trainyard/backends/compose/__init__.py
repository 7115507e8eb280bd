"""Head and workers as containers of one Docker host, here or reached by SSH; the dashboard on
loopback only.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from trainyard.backends import contract
from trainyard.backends.compose import image, location, naming
from trainyard.backends.compose.machine import DockerHost
from trainyard.backends.contract import Backend, ClusterStatus, Finding, LogLine, Tools, Traits
from trainyard.backends.shared import ray_nodes
from trainyard.backends.shared.findings import full_disk
from trainyard.backends.shared.single_host import node_steps
from trainyard.endpoint import Endpoint
from trainyard.images import resolve
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.containers import Container, Labelled
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no
from trainyard.wording import counted, named

# The engine answers before a container's last file is closed; on a busy disk that takes seconds.
GONE_SECONDS = 30.0


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Stage]:
    """Return the steps that make the cluster match its file; which they are, its Docker host
    knows.
    """
    ray_nodes.refuse_growing_groups(spec)
    return [Stage("docker-host", "Look at the Docker host", expand=lambda: _up_steps(spec, tools))]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Stage | Step]:
    """Return the steps that remove the cluster, whatever its file says by now: what carries its
    label goes.
    """
    return [
        Stage("docker-host", "Look at the Docker host", expand=lambda: _removals(spec, tools)),
        Step(
            "forget",
            "Remove the token, and what was written down",
            done=lambda: no(f"still there: {tools.state}") if tools.state.exists() else YES,
            do=lambda: shutil.rmtree(tools.state, ignore_errors=True),
        ),
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
    interactive = "-it" if terminal else "-i"
    docker = ["docker", "--host", host.engine.address, "exec", interactive, container]
    return [*docker, *contract.shell_words(command)]


def _up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    location.refuse_other_host(spec, tools)
    engine = location.connect(spec, tools)
    location.refuse_taken_volume(spec, tools, engine)

    if tools.recreate:
        made = {}
    else:
        made = DockerHost(spec, tools, engine).nodes()

    running = {node.plan.get("group", ""): node.plan.get("image", "") for node in made.values()}
    head = running.get("head") or None
    pinned = resolve.pinned(
        spec, tools.environ, directory=tools.directory, engine=engine, running=head
    )
    others = resolve.of_groups(
        spec, tools.environ, directory=tools.directory, engine=engine, running=running
    )
    pulls = [image.pull_step(engine, each) for each in resolve.distinct(pinned, others)]

    return node_steps(DockerHost(spec, tools, engine, pinned, others), pulls)


def _removals(spec: ClusterSpec, tools: Tools) -> list[Step]:
    """Return the steps after which nothing carries the cluster's label."""
    engine = location.connect(spec, tools)
    label = naming.of_cluster(spec.name)
    return [
        _removal(kind, partial(listed, engine, label), partial(remove, engine))
        for kind, listed, remove in (
            ("container", docker_containers.labelled, docker_containers.remove),
            ("network", docker_containers.networks, docker_containers.remove_network),
            ("volume", docker_containers.volumes, docker_containers.remove_volume),
        )
    ]


def _removal(
    kind: str, listed: Callable[[], Sequence[Container | Labelled]], remove: Callable[[str], None]
) -> Step:
    """Return the step after which there is nothing of a kind; its title says what there was."""

    def none() -> Answer:
        left = [thing.name for thing in listed()]
        if left:
            return no(f"still there: {named(left)}")
        return YES

    def remove_all() -> None:
        for thing in listed():
            remove(thing.name)

    present = [thing.name for thing in listed()]
    if present:
        title = f"Remove {counted(len(present), kind)}: {named(present)}"
    else:
        title = f"Leave no {kind}"

    return Step(
        f"remove-{kind}",
        title,
        none,
        remove_all,
        deadline=GONE_SECONDS,
        disruptive=kind == "container",
    )


# What Docker Compose gets is made for each command, and nobody else needs it: no documents.
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
