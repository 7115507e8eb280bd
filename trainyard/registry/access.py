"""A cluster file's registry: its address, its CA, and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from trainyard import paths
from trainyard.seams.addresses import is_loopback
from trainyard.seams.registry.api import RegistryApi, trusting
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.login import login
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import Registry

# The registry of a cluster file without a `registry:` section. Docker trusts loopback without
# settings, and no other machine can reach it.
DEFAULT = Registry(address="127.0.0.1:32000", insecure=True)


class HostPort(NamedTuple):
    """Host and port of a registry's address."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def registry_of(spec: ClusterSpec) -> Registry:
    return spec.registry or DEFAULT


def registry_at(host: str, spec: ClusterSpec) -> Registry:
    """Return the registry at HOST[:PORT].

    The cluster file's settings are used if they are for this registry. Like
    Docker, use plain HTTP for any other registry on loopback.
    """
    if spec.registry and spec.registry.address == host:
        return spec.registry
    return Registry(address=host, insecure=host_port(Registry(address=host)).is_loopback)


def host_port(registry: Registry) -> HostPort:
    parts = urlsplit(f"//{registry.address}")
    default_port = 80 if registry.insecure else 443
    return HostPort(parts.hostname or "", parts.port or default_port)


def directory(registry: Registry, environ: Mapping[str, str]) -> Path:
    """Return this machine's directory for the registry's certificate."""
    name = registry.address.replace("[", "").replace("]", "").replace(":", "_")
    return paths.state_home(environ) / "registries" / name


def ca_file(registry: Registry, environ: Mapping[str, str]) -> Path | None:
    """Return the registry's CA file: the named one, else Trainyard's."""
    if registry.insecure:
        return None
    if registry.ca_file:
        return Path(registry.ca_file).expanduser()

    made_here = directory(registry, environ) / "ca.pem"
    try:
        if made_here.exists():
            return made_here
    except PermissionError as error:
        raise paths.not_writable(made_here.parent, error) from error
    return None


def read_ca(registry: Registry, environ: Mapping[str, str]) -> bytes | None:
    """Read the registry's CA (PEM); None if no CA file is needed.

    Raises PrerequisiteError if the file cannot be read.
    """
    file = ca_file(registry, environ)
    if file is None:
        return None
    trusting(file)
    return file.read_bytes()


@dataclass(frozen=True)
class Access:
    """A connection to a registry, with the login for the Docker engine."""

    registry: Registry
    api: RegistryApi
    login: Login | None

    def name(self, image: str, tag: str) -> str:
        return f"{self.registry.address}/{self.registry.repository(image)}:{tag}"

    def by_digest(self, image: str, digest: str) -> str:
        return f"{self.registry.address}/{self.registry.repository(image)}@{digest}"


@contextmanager
def access(registry: Registry, environ: Mapping[str, str]) -> Iterator[Access]:
    """Open a connection to a registry; no request is sent yet.

    Raises PrerequisiteError if a login or a CA file is missing.
    """
    as_login = login(registry, environ)
    with connect(registry, environ, as_login) as api:
        yield Access(registry, api, as_login)


def connect(registry: Registry, environ: Mapping[str, str], as_login: Login | None) -> RegistryApi:
    """Return a connection, anonymous without `as_login`. No request is sent."""
    ca = ca_file(registry, environ)
    return RegistryApi(registry.address, insecure=registry.insecure, ca_file=ca, login=as_login)
