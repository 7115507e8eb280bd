"""Whether a registry can be run at its address: whose address it is, who has the port, how much disk there is."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from trainyard.errors import OutsideError, PrerequisiteError, RequestError
from trainyard.registry.container import DATA, check_password
from trainyard.registry.settings import HostPort
from trainyard.registry.target import Target
from trainyard.results import formats
from trainyard.seams.docker import containers, ports
from trainyard.seams.docker.containers import Container
from trainyard.seams.registry.login import named_login

GIBIBYTE = 1024**3
# Ray's own image takes 0.7 GiB, Isaac's tens of them.
DISK_NEEDED = 1 * GIBIBYTE
DISK_DESIRED = 20 * GIBIBYTE


def check_request(target: Target) -> None:
    """Refuse a registry that is not ours to run, or a login that cannot be used, before anything is made."""
    if target.registry.login == "ecr":
        raise RequestError(
            f"{target.address} is Amazon's: registry.up runs registries of one's own",
            where=target.where,
            hint="Nothing needs to be started for it; its repositories are made in AWS.",
        )
    host = target.engine.host
    if not target.engine.is_here and target.host_port.is_loopback:
        raise RequestError(
            f"{target.address} would be reachable on {host} only, which is where Docker runs",
            where=target.where,
            hint=f"Give registry.address an address of {host} that this machine reaches.",
        )
    login = named_login(target.registry, target.environ)
    if login:
        check_password(login.username, login.password)


def check_port(target: Target, address: str) -> None:
    """Raise PrerequisiteError when somebody else has the port; say who, if it can be told."""
    port = target.host_port.port
    holder = ports.holder(target.engine, address, port)
    if holder:
        raise PrerequisiteError(
            f"port {port} of {address} is taken by {holder}",
            hint="End that if it is not needed (a container: docker rm -f NAME; MicroK8s' own registry, which uses "
            "32000: microk8s disable registry), or choose another port: registry.address.",
        )


def disk_free(target: Target, container: Container | None) -> int | None:
    """Return the free bytes where the engine keeps its data; None if that cannot be told.

    Engines elsewhere, rootless ones and Docker Desktop's are asked in the registry's container, once there is one.
    """
    root = Path(str(target.engine.info().get("DockerRootDir") or "/nowhere"))
    with suppress(OSError):
        if target.engine.is_here and root.is_dir():
            return shutil.disk_usage(root).free
    with suppress(OutsideError, IndexError, ValueError):
        if container:
            printed = containers.execute(target.engine, container.id, ["df", "-Pk", DATA])[1]
            return int(printed.splitlines()[-1].split()[3]) * 1024
    return None


def disk_warnings(free: int | None) -> list[str]:
    """Return what is worth a warning about the disk. Raises PrerequisiteError when it is as good as full."""
    if free is None or free >= DISK_DESIRED:
        return []
    if free < DISK_NEEDED:
        raise PrerequisiteError(
            f"too little disk for a registry: {formats.size(free)} free where Docker keeps its data",
            hint="Make room: docker system df, docker system prune",
        )
    return [f"only {formats.size(free)} of disk are free where Docker keeps its data, and training images are large"]


def address_warnings(target: Target, address: str) -> list[str]:
    """Return what is worth a warning about who can reach the registry, and how."""
    registry, host_port = target.registry, target.host_port
    if HostPort(address, host_port.port).is_loopback:
        if host_port.is_loopback:
            return []
        return [f"{host_port.host} is {address} here, so that no other host can reach the registry"]
    if registry.username is None:
        return [f"anybody who reaches {target.address} can push to it: give it registry.username and password_env"]
    if registry.insecure:
        return ["the password travels in clear text: leave out `insecure: true`, and TLS is made for you"]
    return []
