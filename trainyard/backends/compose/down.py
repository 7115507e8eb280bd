"""The steps that remove everything of a cluster from its Docker host, and prove it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence

from trainyard.backends import contract, wording
from trainyard.backends.compose import naming, record, snapshot
from trainyard.backends.contract import Tools
from trainyard.errors import LeftoverError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import volumes as docker_volumes
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no

# The engine answers before a container's last file is closed; on a busy disk that takes seconds.
GONE_SECONDS = 30.0
Names = Callable[[], Sequence[str]]


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


def _removals(spec: ClusterSpec, tools: Tools) -> list[Step]:
    engine = record.connect(spec, tools)
    snapshot.refuse_foreign(engine, spec.name, owner=record.owner(tools))
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


def _removal(kind: str, names: Names, remove: Callable[[str], None]) -> Step:
    """Return the step after which there is nothing of a kind; its title says what there was."""
    found = names()
    title = f"Remove {wording.counted(len(found), kind)}: {wording.named(found)}" if found else f"Leave no {kind}"
    return Step(
        title, done=lambda: _none(names()), do=lambda: _remove(kind, names, remove), disruptive=kind == "container"
    )


def _remove(kind: str, names: Names, remove: Callable[[str], None]) -> None:
    for name in names():
        remove(name)
    give_up = time.monotonic() + GONE_SECONDS
    while left := names():
        if time.monotonic() > give_up:
            raise LeftoverError(
                f"{wording.counted(len(left), kind)} of the cluster cannot be removed",
                where=", ".join(left),
                hint=f"Does something else use it? docker {kind} inspect {left[0]}; then repeat the same command.",
            )
        time.sleep(0.2)


def _none(left: Sequence[str]) -> Answer:
    return no(f"still there: {wording.named(left)}") if left else YES
