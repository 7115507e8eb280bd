"""`docker compose`, version 2: containers from a document that is on no disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError
from trainyard.seams import programs
from trainyard.seams.docker.engine import Engine

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
    ended = programs.run(["docker", "compose", "version", "--short"], env=engine.cli_environment(), seconds=30.0)
    version = ended.tail[-1].strip().removeprefix("v") if ended.tail else ""
    if ended.code != 0:
        raise PrerequisiteError("`docker compose` is not installed here", where=version or None, hint=INSTALL)
    if tuple(int(part) for part in version.split("-")[0].split(".") if part.isdigit()) < OLDEST:
        raise PrerequisiteError(f"`docker compose` is {version}, which is too old", hint=INSTALL)
    return version


@dataclass(frozen=True)
class Project:
    """What Compose works on. `secrets` are environment variables of its commands, and of nothing else."""

    engine: Engine
    name: str
    document: str
    secrets: Mapping[str, str]


def create(project: Project) -> None:
    _run(project, "create", "--no-recreate", "--remove-orphans", "--no-build")


def up(project: Project) -> None:
    _run(project, "up", "--detach", "--no-recreate", "--remove-orphans", "--no-build")


def reason(tail: tuple[str, ...]) -> str:
    """Return why Compose failed: what stands after its reports about each container."""
    lines = [line.strip() for line in tail if line.strip()]
    complaints = [line for line in lines if line.lower().startswith(("error", "validating", "dependency failed"))]
    return "; ".join(dict.fromkeys(complaints)) or "\n".join(lines[-5:]) or "it said nothing"


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
        last = ended.tail[-1].strip() if ended.tail else None
        raise NotReadyError(
            f"Docker Compose did not end within {SECONDS:.0f} s",
            where=f"it said last: {last}" if last else None,
            hint="Repeat the same command: it continues from here.",
        )
    if ended.code != 0:
        raise OutsideError("Docker Compose could not make the containers", where=reason(ended.tail))
