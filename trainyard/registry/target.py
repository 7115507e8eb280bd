"""The registry of a command, and the Docker engine for its container."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from trainyard import lock, paths
from trainyard.errors import RequestError
from trainyard.registry import access
from trainyard.registry.access import HostPort
from trainyard.seams import addresses
from trainyard.seams.docker import containers
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry.api import RegistryApi
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.login import login
from trainyard.spec.docker import Registry
from trainyard.spec.load import load_cluster
from trainyard.steps import Progress, Step, StepResult, run

# The label of every registry's container and volume; its value is the registry's address.
LABEL = "io.trainyard.registry"


@dataclass(frozen=True)
class Target:
    """A registry and its engine, from the cluster file `source`."""

    registry: Registry
    engine: Engine
    environ: Mapping[str, str]
    source: Path | None = None
    backend: str = ""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    @property
    def address(self) -> str:
        return self.registry.address

    @property
    def host_port(self) -> HostPort:
        return access.host_port(self.registry)

    @property
    def name(self) -> str:
        """Name the container and the volume; hosts may share a port."""
        return f"trainyard-registry-{self.host_port.host.replace(':', '-')}-{self.host_port.port}"

    @property
    def state(self) -> Path:
        return access.directory(self.registry, self.environ)

    @property
    def container(self) -> Container | None:
        """Ask the engine for the registry's container, running or not."""
        labelled = containers.labelled(self.engine, f"{LABEL}={self.address}")
        return labelled[0] if labelled else None

    @property
    def volume(self) -> str | None:
        """Ask the engine for the name of the volume with the images."""
        labelled = containers.volumes(self.engine, f"{LABEL}={self.address}")
        return labelled[0].name if labelled else None

    @property
    def bind_address(self) -> str:
        """Return the IP address that Docker publishes on, preferably IPv4.

        Raises RequestError if the registry's host has no IP address, or if
        Docker runs here and no address of the host is this machine's.
        """
        host = self.host_port.host
        candidates = list(addresses.resolve(host))
        if self.engine.is_here:
            candidates = [address for address in candidates if addresses.is_ours(address)]
        if not candidates:
            raise RequestError(
                f"registry.address names {host}, which is not an address of this machine",
                where=str(self.source) if self.source else None,
                hint="registry.up runs the registry where Docker runs. Run it there, or give an "
                "address of this host.",
            )
        return min(candidates, key=lambda address: ":" in address)

    @property
    def login(self) -> Login | None:
        return login(self.registry, self.environ)

    def api(self) -> RegistryApi:
        return access.connect(self.registry, self.environ, self.login)

    def run(self, steps: Sequence[Step], progress: Progress) -> list[StepResult]:
        """Run the steps under a lock; other commands on this registry wait."""
        path = self.state.with_name(f"{self.state.name}.lock")
        with lock.alone(path, progress, keep=self.state.exists, what="registry"):
            return run(steps, progress)


@contextmanager
def find(
    file: str | None, environ: Mapping[str, str], *, directory: Path, overrides: Sequence[str] = ()
) -> Iterator[Target]:
    """Yield the registry that the cluster file names, and this user's engine.

    Raises RequestError for a wrong file, PrerequisiteError without Docker.
    """
    source = paths.cluster_file(file, environ, directory=directory, may_be_sample=True)
    spec = load_cluster(source, overrides=overrides).spec
    with docker_engine.connect(environ) as engine:
        yield Target(access.registry_of(spec), engine, environ, source=source, backend=spec.backend)
