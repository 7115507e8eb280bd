"""The registry that a command is about, and the Docker engine that runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from trainyard import lock, paths
from trainyard.registry import settings
from trainyard.registry.settings import Place
from trainyard.seams.docker import containers
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry.api import RegistryApi
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.login import login
from trainyard.spec import load_cluster
from trainyard.spec.docker import Registry
from trainyard.steps import Progress, StepResult

# Every container and volume of ours carries it; its value is the registry's address.
LABEL = "io.trainyard.registry"


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Site:
    """A registry, the engine that runs it.

    `backend` is the one of that file: only some run images.
    """

    registry: Registry
    engine: Engine
    environ: Mapping[str, str]
    source: Path | None = None
    backend: str = "compose"
    now: Callable[[], datetime] = _now

    @property
    def address(self) -> str:
        """Return the registry's address, as it stands in references."""
        return self.registry.address

    @property
    def place(self) -> Place:
        """Return its host and port."""
        return settings.place(self.registry)

    @property
    def name(self) -> str:
        """Return what its container and its volume are called; two addresses may share a port."""
        host = self.place.host.replace(":", "-")
        return f"trainyard-registry-{host}-{self.place.port}"

    @property
    def state(self) -> Path:
        """Return the directory with its certificates on this machine."""
        return settings.directory(self.registry, self.environ)

    @property
    def container(self) -> Container | None:
        """Return its container, running or not. Asked anew each time."""
        found = containers.labelled(self.engine, f"{LABEL}={self.address}")
        return found[0] if found else None

    @property
    def login(self) -> Login | None:
        """Return who logs in, if anybody. Raises PrerequisiteError when the password is not where the file says."""
        return login(self.registry, self.environ)

    def api(self) -> RegistryApi:
        """Return a connection to the registry, to be used as a context manager."""
        return RegistryApi(
            self.address,
            insecure=self.registry.insecure,
            ca_file=settings.ca_file(self.registry, self.environ),
            login=self.login,
        )


@contextmanager
def find(
    asked: str | None, environ: Mapping[str, str], *, directory: Path, overrides: Sequence[str] = ()
) -> Iterator[Site]:
    """Connect to the Docker engine here, with the registry that `-f` and `--set` mean.

    Raises RequestError for a wrong file, PrerequisiteError without Docker.
    """
    source = paths.cluster_file(asked, environ, directory=directory)
    spec = load_cluster(source, overrides=overrides).spec
    with docker_engine.engine(environ) as engine:
        yield Site(settings.registry_of(spec), engine, environ, source=source, backend=spec.backend)


@contextmanager
def alone(site: Site, progress: Progress) -> Iterator[None]:
    """Keep other commands from changing the registry meanwhile; show it when we wait for one."""
    title = "Wait for another command on this registry"
    began = time.monotonic()
    waited: list[str] = []

    def waiting() -> None:
        waited.append(title)
        progress.started(title)

    path = site.state.with_name(f"{site.state.name}.lock")
    with lock.held(path, waiting=waiting, keep=site.state.exists, what="registry"):
        if waited:
            progress.finished(StepResult(title, True, time.monotonic() - began))
        yield
