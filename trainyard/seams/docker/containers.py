"""Find, make and remove a Docker engine's containers, volumes and networks.

Labels on the objects are the only record, so no record can be stale.
"""

from __future__ import annotations

import io
import math
import secrets
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import requests
from docker.errors import DockerException, NotFound
from docker.types import LogConfig

from trainyard.seams import addresses
from trainyard.seams.docker.engine import Engine, refusals
from trainyard.seams.programs import Ran

# The label of a container for one command.
ONCE = "io.trainyard.once"
# Docker's default log driver, which keeps all output. Others have other options, and limits of
# their own.
_KEEPS_ALL = "json-file"
LOG_LIMITS = {"max-size": "10m", "max-file": "3"}
# For this module's containers and nodes of `compose`: no program gains rights by setuid.
HARDENED = ("no-new-privileges:true",)
# The exit code of a command that was killed because it ran for too long.
KILLED = -9


class Port(NamedTuple):
    """Port `inside`, published on the engine's host at `address`:`outside`."""

    inside: int
    address: str
    outside: int


@dataclass(frozen=True)
class Container:
    """A container as the engine describes it now.

    `state` is created, running, restarting, exited, paused, removing or dead.
    `health` is starting, healthy or unhealthy; None without a health check.
    `image` is the reference with which the container was made. `created` and
    `started` (the last start) are timestamps of the engine.
    """

    id: str
    name: str
    image: str
    labels: Mapping[str, str]
    state: str
    health: str | None = None
    exit_code: int = 0
    restarts: int = 0
    ports: tuple[Port, ...] = ()
    started: str = ""
    created: str = ""


@dataclass(frozen=True)
class Labelled:
    """A volume or a network."""

    name: str
    labels: Mapping[str, str]


def labelled(engine: Engine, *labels: str) -> tuple[Container, ...]:
    """Return all containers, even stopped ones, with every label, by name.

    A label is "key" or "key=value".
    """
    containers = _listed(engine, all=True, filters={"label": list(labels)})
    return tuple(sorted(containers, key=lambda container: container.name))


def port_holder(engine: Engine, address: str, port: int) -> str | None:
    """Name the container or program that uses a port of the engine's host.

    Programs are noticed only if this machine can connect to the address.
    """
    covering = (address, *addresses.ANY, "")
    for candidate in _listed(engine, filters={"publish": str(port)}):
        for published in candidate.ports:
            if published.outside == port and published.address in covering:
                return f"the container {candidate.name} ({candidate.image})"

    # A connection also shows ports without a listener, such as a Kubernetes node port.
    if addresses.answers(address, port):
        return "another program"
    return None


def container(engine: Engine, name: str) -> Container | None:
    """Return the container of this name or id; None if it does not exist."""
    with refusals(f"describe the container {name}"), suppress(NotFound):
        described = engine.api.inspect_container(name)
        state = described["State"]
        config = described["Config"]
        return Container(
            id=described["Id"],
            name=described["Name"].lstrip("/"),
            image=config["Image"],
            labels=config.get("Labels") or {},
            state=state["Status"],
            health=(state.get("Health") or {}).get("Status"),
            exit_code=state["ExitCode"],
            restarts=described.get("RestartCount", 0),
            ports=_ports(described["NetworkSettings"].get("Ports") or {}),
            started=state.get("StartedAt") or "",
            created=described.get("Created") or "",
        )
    return None


def _ports(published: Mapping[str, Any]) -> tuple[Port, ...]:
    ports = []
    for inside, bindings in published.items():
        number = int(inside.split("/")[0])
        for binding in bindings or ():
            ports.append(Port(number, binding["HostIp"], int(binding["HostPort"])))
    return tuple(ports)


def bounded_log(engine: Engine) -> dict[str, Any]:
    """Return json-file's options for 30 MB of log; {} for another driver."""
    driver = engine.info().get("LoggingDriver")
    if driver == _KEEPS_ALL:
        return {"driver": driver, "options": dict(LOG_LIMITS)}
    return {}


@dataclass(frozen=True)
class NewContainer:
    """The settings of a container to be made.

    `ports` maps a port inside to the host's (address, port). `volumes` maps
    names of volumes, or paths of the host, to paths inside.
    """

    image: str
    command: Sequence[str]
    labels: Mapping[str, str]
    volumes: Mapping[str, str]
    ports: Mapping[int | str, tuple[str, int]] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    network: str | None = None
    user: str | None = None


def create(engine: Engine, name: str, new: NewContainer) -> str:
    """Make a container without starting it, and return its id.

    The engine must have the image. Docker restarts a started container until it
    is stopped.
    """
    log_config = None
    log = bounded_log(engine)
    if log:
        log_config = LogConfig(type=log["driver"], config=log["options"])

    with refusals(f"make the container {name}"):
        host = engine.api.create_host_config(
            port_bindings=dict(new.ports),
            binds=[f"{volume}:{path}" for volume, path in new.volumes.items()],
            restart_policy={"Name": "unless-stopped"},
            network_mode=new.network,
            security_opt=list(HARDENED),
            log_config=log_config,
        )
        answer = engine.api.create_container(
            new.image,
            list(new.command),
            name=name,
            labels=dict(new.labels),
            ports=list(new.ports),
            host_config=host,
            entrypoint=list(new.entrypoint) or None,
            user=new.user,
        )
    return str(answer["Id"])


def start(engine: Engine, name: str) -> None:
    with refusals(f"start the container {name}"):
        engine.api.start(name)


def stop(engine: Engine, name: str) -> None:
    """End a container by SIGTERM, then SIGKILL; do nothing if it is gone."""
    with refusals(f"stop the container {name}"), suppress(NotFound):
        engine.api.stop(name)


def remove(engine: Engine, name: str) -> None:
    """Remove a container, even a running one, with its anonymous volumes."""
    with refusals(f"remove the container {name}"), suppress(NotFound):
        engine.api.remove_container(name, v=True, force=True)


def put_files(engine: Engine, name: str, files: Mapping[str, bytes]) -> None:
    """Put files, which only root may read, at absolute paths in a container.

    The container need not run.
    """
    with refusals(f"put files into the container {name}"):
        engine.api.put_archive(name, "/", packed(files))


def packed(files: Mapping[str, bytes]) -> bytes:
    """Pack files into a tar archive, each with the mode 600."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size = len(content)
            member.mode = 0o600
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def open_directory(engine: Engine, name: str, path: str) -> None:
    """Let all users write to a directory of a container, even a stopped one."""
    member = tarfile.TarInfo(path.strip("/") + "/")
    member.type = tarfile.DIRTYPE
    member.mode = 0o1777
    with refusals(f"open {path} of the container {name}"):
        engine.api.put_archive(name, "/", member.tobuf() + bytes(2 * tarfile.BLOCKSIZE))


def read_file(engine: Engine, name: str, path: str) -> bytes | None:
    """Return a container's file; None if the file or container is missing."""
    with refusals(f"read {path} of the container {name}"), suppress(NotFound):
        stream, _ = engine.api.get_archive(name, path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            content = archive.extractfile(archive.getmembers()[0])
            return content.read() if content else None
    return None


def tail(engine: Engine, name: str, *, lines: int = 20) -> tuple[str, ...]:
    with refusals(f"show the log of the container {name}"), suppress(NotFound):
        return tuple(engine.api.logs(name, tail=lines).decode(errors="replace").splitlines())
    return ()


def run_once(
    engine: Engine,
    reference: str,
    command: Sequence[str],
    *,
    entrypoint: Sequence[str],
    seconds: float,
) -> Ran:
    """Run a command in a new container of an image.

    An `entrypoint` replaces the image's own. The container is removed in any
    case, also on Ctrl-C. A command that still runs after `seconds` is killed,
    and has the exit code KILLED. Raises OutsideError if the engine cannot start
    the command, for instance because the program does not exist.
    """
    # Named here, so that the container can be removed if Ctrl-C comes before the engine's answer.
    name = f"trainyard-once-{secrets.token_hex(6)}"
    api = engine.api

    try:
        with refusals(f"run {' '.join(command)[:60]} in {reference}"):
            api.create_container(
                reference,
                list(command),
                name=name,
                entrypoint=list(entrypoint) or None,
                labels={ONCE: "true"},
                host_config=api.create_host_config(
                    network_mode="none", security_opt=list(HARDENED)
                ),
            )
            api.start(name)

            code = KILLED
            # urllib3 reports a time-out of a Unix socket as either of these. If the engine is gone,
            # the next call fails.
            with suppress(requests.exceptions.ReadTimeout, requests.exceptions.ConnectionError):
                code = int(api.wait(name, timeout=math.ceil(seconds))["StatusCode"])

            stdout = api.logs(name, stdout=True, stderr=False).decode(errors="replace")
            stderr = api.logs(name, stdout=False, stderr=True).decode(errors="replace")
            return Ran(code, stdout, stderr)
    finally:
        with suppress(DockerException, requests.RequestException):
            api.remove_container(name, v=True, force=True)


def volumes(engine: Engine, *labels: str) -> tuple[Labelled, ...]:
    """Return the volumes with every label ("key" or "key=value"), by name."""
    with refusals("list volumes"):
        return _by_name(engine.api.volumes(filters={"label": list(labels)})["Volumes"] or ())


def create_volume(engine: Engine, name: str, *, labels: Mapping[str, str]) -> None:
    with refusals(f"make the volume {name}"):
        engine.api.create_volume(name, labels=dict(labels))


def remove_volume(engine: Engine, name: str) -> None:
    with refusals(f"remove the volume {name}"), suppress(NotFound):
        engine.api.remove_volume(name)


def networks(engine: Engine, *labels: str) -> tuple[Labelled, ...]:
    """Return the networks with every label ("key" or "key=value"), by name."""
    with refusals("list networks"):
        return _by_name(engine.api.networks(filters={"label": list(labels)}))


def remove_network(engine: Engine, name: str) -> None:
    with refusals(f"remove the network {name}"), suppress(NotFound):
        engine.api.remove_network(name)


def _listed(engine: Engine, **options: Any) -> Iterator[Container]:
    with refusals("list containers"):
        entries = engine.api.containers(**options)
    for entry in entries:
        described = container(engine, str(entry["Id"]))
        if described:
            yield described


def _by_name(described: Iterable[Mapping[str, Any]]) -> tuple[Labelled, ...]:
    objects = [Labelled(entry["Name"], entry["Labels"] or {}) for entry in described]
    return tuple(sorted(objects, key=lambda labelled: labelled.name))
