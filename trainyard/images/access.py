"""The way to the registry that a cluster file names: its CA, its login, a connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainyard.registry import settings
from trainyard.seams.registry_api import RegistryApi
from trainyard.seams.registry_auth import Login
from trainyard.seams.registry_login import login
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
    who = login(registry, environ)
    trusted = ca_file(registry, environ)
    with RegistryApi(registry.address, insecure=registry.insecure, ca_file=trusted, login=who) as api:
        yield Access(registry, api, who)


def ca_file(registry: Registry, environ: Mapping[str, str], *, docker_trust: Path = DOCKER_TRUST) -> Path | None:
    """Return the CA to trust: the file's, ours, or else the one that Docker trusts on this host for this registry."""
    found = settings.ca_file(registry, environ)
    if found is not None or registry.insecure:
        return found
    trusted = sorted((docker_trust / registry.address).glob("*.crt"))
    return trusted[0] if trusted else None
