"""Which registry is meant, where it answers, and where we keep what belongs to it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard import paths
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import Registry

# What works without a `registry:` section: Docker trusts loopback by itself, and nobody else can reach it.
DEFAULT = Registry(address="127.0.0.1:32000", insecure=True)


@dataclass(frozen=True)
class HostPort:
    """Host and port of a registry's address."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Say whether only the machine itself can reach it."""
        return self.host == "localhost" or (is_ip(self.host) and ipaddress.ip_address(self.host).is_loopback)


def registry_of(spec: ClusterSpec) -> Registry:
    """Return the registry that a cluster file names, or the one on loopback that needs no settings."""
    return spec.registry or DEFAULT


def host_port(registry: Registry) -> HostPort:
    """Return where the registry answers; without a port it is HTTP's or HTTPS's own, as for Docker."""
    host, colon, port = registry.address.rpartition(":")
    if not colon or registry.address.endswith("]"):
        host, port = registry.address, "80" if registry.insecure else "443"
    return HostPort(host.strip("[]"), int(port))


def directory(registry: Registry, environ: Mapping[str, str]) -> Path:
    """Return where the certificates of a registry that we made are kept on this machine."""
    name = registry.address.replace("[", "").replace("]", "").replace(":", "_")
    return paths.state_home(environ) / "registries" / name


def ca_file(registry: Registry, environ: Mapping[str, str]) -> Path | None:
    """Return the CA of the registry's certificate: the one that is named, else ours; None for a public one."""
    if registry.insecure:
        return None
    if registry.ca_file:
        return Path(registry.ca_file).expanduser()
    ours = directory(registry, environ) / "ca.pem"
    try:
        return ours if ours.exists() else None
    except PermissionError as error:
        raise paths.not_writable(ours.parent, error) from error


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
