"""`docker compose`, version 2: containers from a document that is on no disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams import programs
from trainyard.seams.docker.engine import Engine

INSTALL = (
    "Install Docker's Compose plugin, 2.20 or newer: sudo apt-get install docker-compose-v2 (or docker-compose-plugin)"
)
# Compose gives every container of a project a moment; an engine on a busy machine needs much longer.
SECONDS = 600.0
LAST_LINES = 5


def require(engine: Engine) -> None:
    """Raise PrerequisiteError if Compose is not installed here."""
    ended = programs.run(["docker", "compose", "version"], env=engine.cli_environment(), seconds=30.0)
    if ended.code != 0:
        raise PrerequisiteError("`docker compose` is not installed here", where=" ".join(ended.tail[-1:]), hint=INSTALL)


@dataclass(frozen=True)
class Project:
    """What Compose works on. `secrets` are environment variables of its commands, and of nothing else."""

    engine: Engine
    name: str
    document: str
    secrets: Mapping[str, str]


def create(project: Project) -> None:
    _run(project, "create")


def up(project: Project) -> None:
    _run(project, "up", "--detach")


def _run(project: Project, *words: str) -> None:
    # No file of the directory we happen to be in may change what the document says.
    environment = {**project.engine.cli_environment(), "COMPOSE_DISABLE_ENV_FILE": "1", **project.secrets}
    command = ["docker", "compose", "--project-directory", "/", "-p", project.name, "-f", "-", *words]
    ended = programs.run(
        [*command, "--no-recreate", "--remove-orphans", "--no-build"],
        env=environment,
        stdin=project.document.encode(),
        directory=Path("/"),
        seconds=SECONDS,
    )
    if ended.code != 0:
        lines = [line.strip() for line in ended.tail if line.strip()]
        where = "\n".join(lines[-LAST_LINES:]) or f"exit code {ended.code}"
        raise OutsideError("Docker Compose could not make the containers", where=where)
