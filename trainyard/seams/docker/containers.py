"""Containers, volumes and networks of a Docker engine: found again by label or name, made, looked
at, removed.

All of ours carry labels; nothing about them is kept anywhere else, so nothing can go stale.
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

# What a container of one command carries.
ONCE = "io.trainyard.once"
# Docker's default driver keeps all that a container ever printed. Others have other options, and
# bounds of their own.
_KEEPS_ALL = "json-file"
LOG_LIMITS = {"max-size": "10m", "max-file": "3"}
# No program in a container of ours gains rights by being started (setuid), as nodes of a cluster
# may not either.
HARDENED = ("no-new-privileges:true",)
# As the exit code of a process that had to be killed.
KILLED = -9


class Port(NamedTuple):
    """A port of a container that the engine's host answers on."""

    inside: int
    address: str
    outside: int


@dataclass(frozen=True)
class Container:
    """A container as the engine describes it now.

    `state` is the engine's word: created, running, restarting, exited, paused, removing or dead.
    `health` is the health check's: starting, healthy or unhealthy, None without a check. `image` is
    the reference it was made with; `started` is when its program was last started, in the engine's
    time, as is `created`.
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
    """A volume or a network: its name, and the labels that it was made with."""

    name: str
    labels: Mapping[str, str]


def labelled(engine: Engine, *labels: str) -> tuple[Container, ...]:
    """Return the containers that carry every label ("key" or "key=value"), stopped ones too, by
    name.
    """
    listed = _listed(engine, all=True, filters={"label": list(labels)})
    return tuple(sorted(listed, key=lambda container: container.name))


def port_holder(engine: Engine, address: str, port: int) -> str | None:
    """Return who answers at an address of the engine's host, as far as that can be told; None if
    nobody does.
    """
    for each in _listed(engine, filters={"publish": str(port)}):
        if any(
            own.outside == port and own.address in (address, *addresses.ANY, "")
            for own in each.ports
        ):
            return f"the container {each.name} ({each.image})"
    # Also what nobody listens for, such as a Kubernetes node port.
    if addresses.answers(address, port):
        return "another program"
    return None


def container(engine: Engine, name: str) -> Container | None:
    """Return the container of this name or id, or None if there is none (any more).

    (Engine API, GET /containers/{id}/json.)
    """
    with refusals(f"describe the container {name}"), suppress(NotFound):
        described = engine.api.inspect_container(name)
        state = described["State"]
        config = described["Config"]
        published = described["NetworkSettings"].get("Ports") or {}

        return Container(
            id=described["Id"],
            name=described["Name"].lstrip("/"),
            image=config["Image"],
            labels=config.get("Labels") or {},
            state=state["Status"],
            health=(state.get("Health") or {}).get("Status"),
            exit_code=state["ExitCode"],
            restarts=described.get("RestartCount", 0),
            ports=tuple(
                Port(int(inside.split("/")[0]), outside["HostIp"], int(outside["HostPort"]))
                for inside, all_outside in published.items()
                for outside in all_outside or ()
            ),
            started=state.get("StartedAt") or "",
            created=described.get("Created") or "",
        )

    return None


def bounded_log(engine: Engine) -> dict[str, Any]:
    """Return the driver and options with which containers keep their last 30 MB; {} where the host
    has its own.
    """
    driver = engine.info().get("LoggingDriver")
    if driver == _KEEPS_ALL:
        return {"driver": driver, "options": dict(LOG_LIMITS)}
    return {}


@dataclass(frozen=True)
class NewContainer:
    """A container to be made.

    `ports` maps a port inside to the host's (address, port); `volumes` names, or paths of the host,
    to paths.
    """

    image: str
    command: Sequence[str]
    labels: Mapping[str, str]
    volumes: Mapping[str, str]
    ports: Mapping[int | str, tuple[str, int]] = field(default_factory=dict)
    entrypoint: Sequence[str] | None = None
    network: str | None = None
    user: str | None = None


def create(engine: Engine, name: str, new: NewContainer) -> str:
    """Make a container that restarts with Docker, and do not start it; return its id. The engine
    has the image.
    """
    log = bounded_log(engine)
    with refusals(f"make the container {name}"):
        host = engine.api.create_host_config(
            port_bindings=dict(new.ports),
            binds=[f"{volume}:{path}" for volume, path in new.volumes.items()],
            restart_policy={"Name": "unless-stopped"},
            network_mode=new.network,
            security_opt=list(HARDENED),
            log_config=LogConfig(type=log["driver"], config=log["options"]) if log else None,
        )

        made = engine.api.create_container(
            new.image,
            list(new.command),
            name=name,
            labels=dict(new.labels),
            ports=list(new.ports),
            host_config=host,
            entrypoint=None if new.entrypoint is None else list(new.entrypoint),
            user=new.user,
        )

    return str(made["Id"])


def start(engine: Engine, name: str) -> None:
    with refusals(f"start the container {name}"):
        engine.api.start(name)


def stop(engine: Engine, name: str) -> None:
    """End a container's program: SIGTERM, after some seconds SIGKILL; no change if it does not run
    or is gone.
    """
    with refusals(f"stop the container {name}"), suppress(NotFound):
        engine.api.stop(name)


def remove(engine: Engine, name: str) -> None:
    """Remove a container, running or not, with its anonymous volumes; no change if it is gone."""
    with refusals(f"remove the container {name}"), suppress(NotFound):
        engine.api.remove_container(name, v=True, force=True)


def put_files(engine: Engine, name: str, files: Mapping[str, bytes]) -> None:
    """Put files into a container, running or not, at absolute paths: for its root alone."""
    with refusals(f"put files into the container {name}"):
        engine.api.put_archive(name, "/", packed(files))


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of files that only their owner may read."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size = len(content)
            member.mode = 0o600
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def open_directory(engine: Engine, name: str, path: str) -> None:
    """Let everybody in a container write to a directory, also one of a volume; the container need
    not run.
    """
    member = tarfile.TarInfo(path.strip("/") + "/")
    member.type = tarfile.DIRTYPE
    member.mode = 0o1777
    with refusals(f"open {path} of the container {name}"):
        engine.api.put_archive(name, "/", member.tobuf() + bytes(2 * tarfile.BLOCKSIZE))


def read_file(engine: Engine, name: str, path: str) -> bytes | None:
    """Return the content of a container's file, or None if there is no such file or container."""
    with refusals(f"read {path} of the container {name}"), suppress(NotFound):
        stream, _ = engine.api.get_archive(name, path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            content = archive.extractfile(archive.getmembers()[0])
            return content.read() if content else None
    return None


def tail(engine: Engine, name: str, *, lines: int = 20) -> tuple[str, ...]:
    with refusals(f"show what the container {name} printed"), suppress(NotFound):
        return tuple(engine.api.logs(name, tail=lines).decode(errors="replace").splitlines())
    return ()


def run_once(
    engine: Engine,
    reference: str,
    command: Sequence[str],
    *,
    entrypoint: Sequence[str] | None = None,
    seconds: float = 60.0,
) -> Ran:
    """Run a command in a container of an image; the image's own entry point runs it unless one is
    given.

    The container is removed in any case, also on Ctrl-C. One that runs after `seconds` has the exit
    code KILLED. Raises OutsideError when the engine cannot start it, which is also how it reports
    that a program does not exist.
    """
    # Named here, so that it can be removed even if Ctrl-C comes before the engine's answer.
    name = f"trainyard-once-{secrets.token_hex(6)}"
    api = engine.api
    try:
        with refusals(f"run {' '.join(command)[:60]} in {reference}"):
            api.create_container(
                reference,
                list(command),
                name=name,
                entrypoint=list(entrypoint) if entrypoint is not None else None,
                labels={ONCE: "true"},
                host_config=api.create_host_config(
                    network_mode="none", security_opt=list(HARDENED)
                ),
            )

            api.start(name)
            code = KILLED
            # urllib3 reports a time-out of a Unix socket in either way; an engine that is gone
            # fails the next call.
            with suppress(requests.exceptions.ReadTimeout, requests.exceptions.ConnectionError):
                code = int(api.wait(name, timeout=math.ceil(seconds))["StatusCode"])

            stdout, stderr = (
                api.logs(name, stdout=wanted, stderr=not wanted) for wanted in (True, False)
            )
            return Ran(code, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    finally:
        with suppress(DockerException, requests.RequestException):
            api.remove_container(name, v=True, force=True)


def volumes(engine: Engine, *labels: str) -> tuple[Labelled, ...]:
    """Return the volumes that carry every label ("key" or "key=value"), by name; without labels
    all.
    """
    with refusals("list volumes"):
        return _by_name(engine.api.volumes(filters={"label": list(labels)})["Volumes"] or ())


def create_volume(engine: Engine, name: str, *, labels: Mapping[str, str]) -> None:
    with refusals(f"make the volume {name}"):
        engine.api.create_volume(name, labels=dict(labels))


def remove_volume(engine: Engine, name: str) -> None:
    with refusals(f"remove the volume {name}"), suppress(NotFound):
        engine.api.remove_volume(name)


def networks(engine: Engine, *labels: str) -> tuple[Labelled, ...]:
    """Return the networks that carry every label ("key" or "key=value"), by name."""
    with refusals("list networks"):
        return _by_name(engine.api.networks(filters={"label": list(labels)}))


def remove_network(engine: Engine, name: str) -> None:
    """Remove a network that no container uses any more; no change if it is gone."""
    with refusals(f"remove the network {name}"), suppress(NotFound):
        engine.api.remove_network(name)


def _listed(engine: Engine, **options: Any) -> Iterator[Container]:
    with refusals("list containers"):
        listed = engine.api.containers(**options)
    for entry in listed:
        if described := container(engine, str(entry["Id"])):
            yield described


def _by_name(described: Iterable[Mapping[str, Any]]) -> tuple[Labelled, ...]:
    found = (Labelled(entry["Name"], entry["Labels"] or {}) for entry in described)
    return tuple(sorted(found, key=lambda labelled: labelled.name))
