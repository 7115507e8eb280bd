"""The steps that remove everything of a cluster from its Docker host, and prove it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from trainyard.backends import contract, wording
from trainyard.backends.compose import found, host, labels
from trainyard.backends.contract import Tools
from trainyard.errors import LeftoverError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import volumes as docker_volumes
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# The engine answers before a container's last file is closed; on a busy disk that takes seconds.
GONE_SECONDS = 30.0
Names = Callable[[], Sequence[str]]


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Step]:
    """Return the steps that remove the cluster, whatever its file says by now: what carries its label goes."""
    if purge:
        raise contract.nothing_to_purge(
            "compose", "`cluster.down` removes everything that was made on the Docker host."
        )
    engine = host.connect(spec, tools)
    name = spec.name
    found.refuse_foreign(found.everything(engine, name), name=name, owner=host.owner(tools))
    label = labels.of_cluster(name)

    def containers() -> list[str]:
        return [one.name for one in docker_containers.labelled(engine, label)]

    def networks() -> list[str]:
        return [one.name for one in docker_volumes.networks(engine, label)]

    def volumes() -> list[str]:
        return [one.name for one in docker_volumes.volumes(engine, label)]

    return [
        replace(_step("container", containers, lambda one: docker_containers.remove(engine, one)), disruptive=True),
        _step("network", networks, lambda one: docker_volumes.remove_network(engine, one)),
        _step("volume", volumes, lambda one: docker_volumes.remove_volume(engine, one)),
        Step(
            "Remove the token, and what was written down",
            done=lambda: _no_files(tools),
            do=lambda: shutil.rmtree(tools.state, ignore_errors=True),
        ),
    ]


def _step(kind: str, names: Names, remove: Callable[[str], None]) -> Step:
    """Return the step after which there is nothing of a kind; its title says what there was."""
    there = names()
    title = f"Remove {wording.counted(len(there), kind)}: {wording.named(there)}" if there else f"Leave no {kind}"
    return Step(title, done=lambda: _none(names()), do=lambda: _remove(kind, names, remove))


def _remove(kind: str, names: Names, remove: Callable[[str], None]) -> None:
    for one in names():
        remove(one)
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


def _no_files(tools: Tools) -> Answer:
    return no(f"still there: {tools.state}") if tools.state.exists() else YES
