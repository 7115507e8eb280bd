"""One Docker engine: where it is, and the errors of every call to it.

`docker` finds its engine by $DOCKER_HOST or its current context (Docker
Desktop, Colima and rootless engines use contexts); docker-py knows only the
variable. This module finds one address for both, so that they talk to the same
engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import docker
import requests
from docker.context import ContextAPI
from docker.errors import APIError, DockerException

from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams.forwarding import last_error
from trainyard.seams.ssh import config, forward
from trainyard.seams.ssh.connection import connect as reach

# The command that Docker's own client runs on an SSH host (docker/cli, cli/connhelper).
DIAL = ("docker", "system", "dial-stdio")
DEFAULT_SOCKET = "unix:///var/run/docker.sock"
# The limit for one answer, or between two parts of a stream.
ANSWER_SECONDS = 60


@dataclass(frozen=True)
class Engine:
    """A connection to a Docker engine.

    `api` is docker-py's client, for modules of `seams` only. `socket` is the
    address for programs: with SSH, the local end of the connection.
    """

    address: str
    api: docker.APIClient
    environ: Mapping[str, str]
    socket: str | None = None

    @property
    def is_here(self) -> bool:
        return self.address.startswith("unix://")

    @property
    def host(self) -> str:
        """Return the engine's machine for messages: "here", or a host name."""
        if self.is_here:
            return "here"
        return urlsplit(self.address).hostname or self.address

    @property
    def ssh(self) -> str | None:
        """Return ssh://user@host for an engine that is reached by SSH."""
        if self.address.startswith("ssh://"):
            return self.address
        return None

    @property
    def platform(self) -> str:
        with refusals("describe itself"):
            version = self.api.version(api_version=False)
        return f"{version['Os']}/{version['Arch']}"

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *ended: object) -> None:
        self.api.close()

    def info(self) -> dict[str, Any]:
        with refusals("describe itself"):
            return dict(self.api.info())

    def cli_environment(self) -> dict[str, str]:
        """Return the environment that pins `docker` commands to this engine."""
        dropped = ("DOCKER_CONTEXT", "DOCKER_HOST", "COMPOSE_")
        kept = {key: value for key, value in self.environ.items() if not key.startswith(dropped)}
        return {**kept, "DOCKER_HOST": self.socket or self.address}


def connect(environ: Mapping[str, str], address: str | None = None) -> Engine:
    """Connect to the engine at `address`, by default to that of `docker`.

    Raises PrerequisiteError if no engine answers.
    """
    where = address or found_address(environ)
    if where.startswith("ssh://"):
        socket = f"unix://{forward.local_socket(reach(where, environ), DIAL)}"
    else:
        socket = where

    try:
        # version="auto" asks the engine, so a silent engine is noticed before any change.
        api = docker.APIClient(base_url=socket, version="auto", timeout=ANSWER_SECONDS)
    except (DockerException, requests.RequestException, OSError) as error:
        why = last_error(socket.removeprefix("unix://")) or str(error)
        raise unreachable(where, why) from error

    return Engine(where, api, environ, socket)


def found_address(environ: Mapping[str, str]) -> str:
    """Return the address of the engine that `docker` would use."""
    if environ.get("DOCKER_HOST"):
        return environ["DOCKER_HOST"]
    try:
        context = ContextAPI.get_context(environ.get("DOCKER_CONTEXT"))
    except DockerException as error:
        raise PrerequisiteError(
            f"Docker's context cannot be read: {error}",
            hint="Look at the contexts: docker context ls",
        ) from error
    if context is not None and context.Host:
        return str(context.Host)
    return DEFAULT_SOCKET


def unreachable(address: str, why: str) -> PrerequisiteError:
    """Return the error of a silent engine, with the likely cause."""
    if address.startswith("ssh://"):
        ssh = f"ssh {config.parse(address)} "
    else:
        ssh = ""
    hint = f"Is Docker installed and running there? Try: {ssh}docker info"
    if "permission denied" in why.lower():
        command = f"{ssh}sudo usermod -aG docker $USER"
        hint = f"The user may not use Docker. Allow it: {command}, then log in again."
    return PrerequisiteError(
        "the Docker engine does not answer", where=f"{address}: {why}", hint=hint
    )


@contextmanager
def refusals(doing: str) -> Iterator[None]:
    """Turn docker-py's errors into OutsideError: "Docker refused to DOING"."""
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        raise OutsideError(f"Docker refused to {doing}", where=explanation(error)) from error


def explanation(error: Exception) -> str:
    if isinstance(error, APIError) and error.explanation:
        return str(error.explanation).strip()
    return str(error).strip()
