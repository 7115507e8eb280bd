"""A connection to the registry that a cluster file names, with its CA and login."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainyard.registry import settings
from trainyard.seams.registry.api import RegistryApi
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.login import login
from trainyard.spec.docker import Registry

# Where Docker on Linux looks for the CA of one registry (docs.docker.com/engine/security/certificates).
DOCKER_TRUST = Path("/etc/docker/certs.d")


@dataclass(frozen=True)
class Access:
    """A connection to a registry, with what the Docker engine needs to use it too."""

    registry: Registry
    api: RegistryApi
    login: Login | None

    def name(self, image: str, tag: str) -> str:
        """Return the full reference of an image of ours: REGISTRY/NAMESPACE/IMAGE:TAG."""
        return f"{self.registry.address}/{self.registry.repository(image)}:{tag}"

    def by_digest(self, image: str, digest: str) -> str:
        """Return the reference that clusters run: REGISTRY/NAMESPACE/IMAGE@DIGEST."""
        return f"{self.registry.address}/{self.registry.repository(image)}@{digest}"


@contextmanager
def access(registry: Registry, environ: Mapping[str, str]) -> Iterator[Access]:
    """Connect to a registry; nothing is asked yet. Raises PrerequisiteError when a login or CA file is not there."""
    found = login(registry, environ)
    with connect(registry, environ, found) as api:
        yield Access(registry, api, found)


def connect(registry: Registry, environ: Mapping[str, str], as_login: Login | None) -> RegistryApi:
    """Return a connection as somebody, or as nobody, to be used as a context manager; nothing is asked yet."""
    trusted = ca_file(registry, environ)
    return RegistryApi(registry.address, insecure=registry.insecure, ca_file=trusted, login=as_login)


def ca_file(registry: Registry, environ: Mapping[str, str], *, docker_trust: Path = DOCKER_TRUST) -> Path | None:
    """Return the CA to trust: the file's, ours, or else the one that Docker trusts on this host for this registry."""
    found = settings.ca_file(registry, environ)
    if found is not None or registry.insecure:
        return found
    return next(iter(sorted((docker_trust / registry.address).glob("*.crt"))), None)
