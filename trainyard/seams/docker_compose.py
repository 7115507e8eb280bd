"""`docker compose`, version 2: containers from a document that is on no disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError
from trainyard.seams import programs
from trainyard.seams.docker_engine import Engine

INSTALL = (
    "Install Docker's Compose plugin, 2.20 or newer: sudo apt-get install docker-compose-v2 (or docker-compose-plugin)"
)
# What the tests use is far newer; before this one, `create` and `up` took other options (docker/compose, releases).
OLDEST = (2, 20)
# Compose gives every container of a project a moment; an engine on a busy machine needs much longer.
SECONDS = 600.0
# What it exits with when it is interrupted, as a shell counts signals.
INTERRUPTED = 130


def require(engine: Engine) -> str:
    """Return the version of Compose here. Raises PrerequisiteError if it is not installed, or too old."""
    docker = programs.find("docker", engine.environ, hint="Install Docker's command line, with its Compose plugin.")
    ended = programs.run([docker, "compose", "version", "--short"], env=engine.cli_environment(), seconds=30.0)
    found = ended.tail[-1].strip().removeprefix("v") if ended.tail else ""
    if ended.code != 0:
        raise PrerequisiteError("`docker compose` is not installed here", where=found or None, hint=INSTALL)
    if _numbers(found) < OLDEST:
        raise PrerequisiteError(f"`docker compose` is {found}, which is too old", hint=INSTALL)
    return found


@dataclass(frozen=True)
class Project:
    """What Compose works on. `secrets` are environment variables of its commands, and of nothing else."""

    engine: Engine
    name: str
    document: str
    secrets: Mapping[str, str]


def create(project: Project) -> None:
    """Make what the document asks for and is not there, without starting it; what is there is left as it is."""
    _run(project, "create", "--no-recreate", "--remove-orphans", "--no-build")


def up(project: Project) -> None:
    """Make and start what the document asks for; what is there is left as it is."""
    _run(project, "up", "--detach", "--no-recreate", "--remove-orphans", "--no-build")


def reason(tail: tuple[str, ...]) -> str:
    """Return why Compose failed: what stands after its reports about each container."""
    said = [line.strip() for line in tail if line.strip()]
    complaints = [line for line in said if line.lower().startswith(("error", "validating", "dependency failed"))]
    return "; ".join(dict.fromkeys(complaints)) or "\n".join(said[-5:]) or "it said nothing"


def _run(project: Project, *words: str) -> None:
    # No file of the directory we happen to be in may change what the document says.
    environment = {**project.engine.cli_environment(), "COMPOSE_DISABLE_ENV_FILE": "1", **project.secrets}
    options = ("--project-directory", "/", "-p", project.name, "-f", "-")
    ended = programs.run(
        ["docker", "compose", *options, *words],
        env=environment,
        stdin=project.document.encode(),
        directory=Path("/"),
        seconds=SECONDS,
    )
    if ended.code < 0 or ended.code == INTERRUPTED:
        # Ctrl-C is raised as such: only our own time limit ends here.
        said = ended.tail[-1].strip() if ended.tail else None
        raise NotReadyError(
            f"Docker Compose did not end within {SECONDS:.0f} s",
            where=f"it said last: {said}" if said else None,
            hint="Repeat the same command: it continues from here.",
        )
    if ended.code != 0:
        raise OutsideError("Docker Compose could not make the containers", where=reason(ended.tail))


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("-")[0].split(".")
    return tuple(int(part) for part in parts if part.isdigit())
