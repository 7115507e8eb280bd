"""Head and workers as containers of one Docker host, here or reached by SSH; the dashboard on loopback only."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence

from trainyard.backends import contract, node_steps, ray_nodes
from trainyard.backends.compose import image, location, naming
from trainyard.backends.compose.image import verify
from trainyard.backends.compose.machine import DockerHost
from trainyard.backends.contract import ClusterStatus, LogLine, Tools, Traits
from trainyard.backends.record import make_token
from trainyard.endpoint import Endpoint
from trainyard.errors import LeftoverError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import volumes as docker_volumes
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no
from trainyard.wording import counted, named

__all__ = ["TRAITS", "connect", "discover", "documents", "down_steps", "logs", "status", "up_steps", "verify"]

TRAITS = Traits(pushed_image="image.verify")
# What Docker Compose gets is made for each command, and nobody else needs it.
documents = contract.nothing_to_show
discover = contract.nothing_to_discover
# The engine answers before a container's last file is closed; on a busy disk that takes seconds.
GONE_SECONDS = 30.0


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Stage]:
    """Return the steps that make the cluster match its file; which they are, its Docker host knows."""
    ray_nodes.refuse_growing_groups(spec)
    return [Stage("Look at the Docker host", expand=lambda: _up_steps(spec, tools))]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Stage | Step]:
    """Return the steps that remove the cluster, whatever its file says by now: what carries its label goes."""
    if purge:
        raise contract.nothing_to_purge(
            tools.backend, "`cluster.down` removes everything that was made on the Docker host."
        )
    return [
        Stage("Look at the Docker host", expand=lambda: _removals(spec, tools)),
        Step(
            "Remove the token, and what was written down",
            done=lambda: no(f"still there: {tools.state}") if tools.state.exists() else YES,
            do=lambda: shutil.rmtree(tools.state, ignore_errors=True),
        ),
    ]


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    return DockerHost(spec, tools, location.connect(spec, tools)).status()


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    return DockerHost(spec, tools, location.connect(spec, tools)).endpoint()


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    return DockerHost(spec, tools, location.connect(spec, tools)).logs(follow=follow)


def _up_steps(spec: ClusterSpec, tools: Tools) -> list[Step]:
    location.refuse_other_host(spec, tools)
    engine = location.connect(spec, tools)
    location.refuse_taken_names(spec, tools, engine)
    head = None if tools.recreate else DockerHost(spec, tools, engine).nodes().get("head")
    pinned = image.pinned_for(spec, tools, engine, running=head.plan.get("image") if head else None)
    machine = DockerHost(spec, tools, engine, pinned)
    record = Step(
        "Make the cluster's token" if spec.auth == "token" else "Write down where the cluster is",
        done=lambda: _is_recorded(machine),
        do=lambda: _record(machine),
    )
    return node_steps.steps(machine, [image.pull_step(engine, pinned), record])


def _is_recorded(machine: DockerHost) -> Answer:
    if location.read(machine.tools) is None:
        return no("nothing is written down")
    return YES if machine.token or machine.spec.auth == "none" else no("there is none")


def _record(machine: DockerHost) -> None:
    location.write(machine.spec, machine.tools, machine.engine)
    if machine.spec.auth == "token" and machine.token is None:
        make_token(machine.token_file)


def _removals(spec: ClusterSpec, tools: Tools) -> list[Step]:
    engine = location.connect(spec, tools)
    label = naming.of_cluster(spec.name)

    def containers() -> list[str]:
        return [container.name for container in docker_containers.labelled(engine, label)]

    def networks() -> list[str]:
        return [network.name for network in docker_volumes.networks(engine, label)]

    def volumes() -> list[str]:
        return [volume.name for volume in docker_volumes.volumes(engine, label)]

    return [
        _removal("container", containers, lambda name: docker_containers.remove(engine, name)),
        _removal("network", networks, lambda name: docker_volumes.remove_network(engine, name)),
        _removal("volume", volumes, lambda name: docker_volumes.remove_volume(engine, name)),
    ]


def _removal(kind: str, names: Callable[[], Sequence[str]], remove: Callable[[str], None]) -> Step:
    """Return the step after which there is nothing of a kind; its title says what there was."""

    def none() -> Answer:
        left = names()
        return no(f"still there: {named(left)}") if left else YES

    def remove_all() -> None:
        for name in names():
            remove(name)
        give_up = time.monotonic() + GONE_SECONDS
        while not none().holds:
            if time.monotonic() > give_up:
                raise LeftoverError(f"{none().detail}: Docker does not remove it", hint="Repeat the same command.")
            time.sleep(0.2)

    present = names()
    title = f"Remove {counted(len(present), kind)}: {named(present)}" if present else f"Leave no {kind}"
    return Step(title, none, remove_all, disruptive=kind == "container")
