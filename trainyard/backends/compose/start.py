"""Docker Compose makes what is missing, and its refusals are told with what helps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainyard.backends.compose import found, labels
from trainyard.backends.compose.document import TOKEN_VARIABLE
from trainyard.backends.compose.wanted import Wanted
from trainyard.errors import OutsideError
from trainyard.seams.docker import compose as docker_compose
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.compose import Project

# What Docker says, and what helps.
_CAUSES = (
    ("port is already allocated", "Leave out compose.dashboard_port: then a free port is taken."),
    ("address already in use", "Leave out compose.dashboard_port: then a free port is taken."),
    ("executable file not found", "There is no `ray` on the image's PATH: invoke image.lint"),
    ("bind source path does not exist", "compose.mounts names directories of the Docker host; make them there first."),
    ("could not find an available", "Docker's address pools are used up; remove networks: docker network prune"),
)


def start(asked: Wanted) -> None:
    """Make every missing container, let everybody in them write to the outputs, then start them."""
    secrets = {TOKEN_VARIABLE: asked.token} if asked.token else {}
    project = Project(asked.engine, labels.project(asked.spec.name), asked.document().text, secrets=secrets)
    with _explained(asked):
        docker_compose.create(project)
        _open_outputs(asked)
        docker_compose.up(project)


def _open_outputs(asked: Wanted) -> None:
    """Open the new volume, which belongs to root: before its first head runs, so that no running one lacks it."""
    head = asked.containers().get("head")
    if head is not None and head.state not in found.RUNNING:
        docker_containers.open_directory(asked.engine, head.id, asked.spec.compose.outputs)


@contextmanager
def _explained(asked: Wanted) -> Iterator[None]:
    try:
        yield
    except OutsideError as error:
        hint = next((fix for words, fix in _CAUSES if words in str(error.where)), error.hint)
        raise OutsideError(error.what, where=error.where, hint=hint) from error
