"""Whether a registry can be run at its address: whose address it is, who has the port, how much disk there is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import OutsideError, PrerequisiteError, RequestError
from trainyard.registry import passwords
from trainyard.registry.settings import DEFAULT, Place, is_ip, place
from trainyard.registry.site import LABEL, Site
from trainyard.results import formats
from trainyard.seams import addresses
from trainyard.seams.docker import containers
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine

GIBIBYTE = 1024**3
# Ray's own image takes 0.7 GiB, Isaac's tens of them.
DISK_NEEDED = 1 * GIBIBYTE
DISK_WANTED = 20 * GIBIBYTE


@dataclass(frozen=True)
class Holder:
    """Who has a port, as far as it can be told, and what to do about it."""

    who: str
    hint: str | None = None


def check_kind(site: Site) -> None:
    """Refuse a registry that is not ours to run."""
    if site.registry.login == "ecr":
        raise RequestError(
            f"{site.address} is Amazon's: registry.up runs registries of one's own",
            where=_where(site),
            hint="Nothing needs to be started for it; its repositories are made in AWS.",
        )
    if not site.engine.is_here and site.place.is_loopback:
        raise RequestError(
            f"{site.address} would be reachable on {site.engine.host} only, which is where Docker runs",
            where=_where(site),
            hint=f"Give registry.address an address of {site.engine.host} that this machine reaches.",
        )


def check_login(site: Site) -> None:
    """Refuse a login that cannot be used before anything is made. Raises PrerequisiteError, RequestError."""
    login = site.login if site.registry.username else None
    if login:
        passwords.check(login.username, login.password)


def bind_address(site: Site) -> str:
    """Return the IP address to publish on. Raises RequestError when it is not one of this machine's."""
    host = site.place.host
    found = addresses.resolve(host)
    if not found:
        raise RequestError(f"nobody knows the host of registry.address: {host}", where=_where(site))
    if not site.engine.is_here:
        return found[0]
    # IPv4 first where a name has both: programs that know only that are still around.
    ours = sorted((one for one in found if addresses.is_ours(one)), key=lambda one: ":" in one)
    if not ours:
        raise RequestError(
            f"registry.address names {host}{_resolved(host, found)}, which is not an address of this machine",
            where=_where(site),
            hint="registry.up runs the registry where Docker runs. Run it there, or give an address of this host.",
        )
    return ours[0]


def check_port(site: Site, address: str) -> None:
    """Raise PrerequisiteError when somebody else has the port; say who, if it can be told."""
    holder = _holder(site, address)
    if holder is None:
        return
    other = f"Choose another port: registry.address{f' in {site.source}' if site.source else ''}."
    hint = f"{holder.hint} Or: {other[0].lower()}{other[1:]}" if holder.hint else other
    raise PrerequisiteError(f"port {site.place.port} of {address} is taken by {holder.who}", hint=hint)


def disk_warnings(free: int | None) -> list[str]:
    """Return what is worth a warning about the disk. Raises PrerequisiteError when it is as good as full."""
    if free is not None and free < DISK_NEEDED:
        raise PrerequisiteError(
            f"too little disk for a registry: {formats.size(free)} free where Docker keeps its data",
            hint="Make room: docker system df, docker system prune",
        )
    if free is not None and free < DISK_WANTED:
        return [
            f"only {formats.size(free)} of disk are free where Docker keeps its data, and training images are large"
        ]
    return []


def disk_free(engine: Engine, df: Callable[[], str] | None) -> int | None:
    """Return the free bytes where the engine keeps its data; None if that cannot be told.

    `df` asks in a container, for engines whose directory is not this machine's: remote ones, rootless ones, Docker
    Desktop's.
    """
    root = Path(str(engine.info().get("DockerRootDir") or "/nowhere"))
    with suppress(OSError):
        if engine.is_here and root.is_dir():
            return shutil.disk_usage(root).free
    with suppress(OutsideError, IndexError, ValueError):
        if df is not None:
            return int(df().splitlines()[-1].split()[3]) * 1024
    return None


def address_warnings(site: Site, address: str) -> list[str]:
    """Return what is worth a warning about who can reach the registry, and how."""
    warnings = []
    registry = site.registry
    exposed = not Place(address, site.place.port).is_loopback
    if exposed and registry.username is None:
        warnings.append(f"whoever reaches {site.address} can push to it: give it registry.username and password_env")
    if exposed and registry.insecure and registry.username is not None:
        warnings.append("the password travels in clear text: leave out `insecure: true`, and TLS is made for you")
    if not exposed and not site.place.is_loopback:
        warnings.append(f"{site.place.host} is {address} here, so that no other host can reach the registry")
    return warnings


def _holder(site: Site, address: str) -> Holder | None:
    port = site.place.port
    for one in containers.publishing(site.engine, port):
        if any(each.outside == port and each.address in (address, *addresses.ANY, "") for each in one.ports):
            return _container_holds(site, one)
    if not site.engine.is_here:
        return Holder(f"something on {site.engine.host}") if addresses.answers(address, port) else None
    if not addresses.is_free(address, port):
        found = addresses.listener(address, port)
        if found and found.program:
            return Holder(f"{found.program} (pid {found.pid})", _microk8s(port))
        return Holder("a program of another user", _microk8s(port))
    if addresses.answers(address, port):
        # kube-proxy serves node ports by packet rules: nobody listens, and yet somebody answers.
        return Holder("something that nobody here listens for, such as a Kubernetes node port", _microk8s(port))
    return None


def _container_holds(site: Site, container: Container) -> Holder:
    ours = container.labels.get(LABEL)
    if ours is None:
        who = f"the container {container.name} ({container.image})"
        return Holder(who, f"If it is not needed: docker rm -f {container.name}")
    return Holder(f"the registry {ours} of ours", f"To remove that: invoke registry.down --set registry.address={ours}")


def _microk8s(port: int) -> str | None:
    if port != place(DEFAULT).port:
        return None
    return "MicroK8s' own registry uses this port: microk8s disable registry, or use that one."


def _resolved(host: str, found: tuple[str, ...]) -> str:
    return "" if is_ip(host) else f" ({', '.join(found)})"


def _where(site: Site) -> str | None:
    return str(site.source) if site.source else None
