"""Containers of a Docker engine: found again by label or name, made, looked at, removed.

Every container of ours carries labels; nothing about it is kept anywhere else, so nothing can go stale.
"""

from __future__ import annotations

import calendar
import io
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from docker.errors import NotFound

from trainyard.seams import addresses
from trainyard.seams.docker.engine import Engine, refusals

# What a container may take to end by itself before the engine kills it.
STOP_SECONDS = 10


@dataclass(frozen=True)
class Port:
    """A port of a container that the engine's host answers on."""

    inside: int
    address: str
    outside: int


@dataclass(frozen=True)
class Bind:
    """A directory or file of the engine's host that a container sees."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True)
class Container:
    """A container as the engine describes it now.

    `state` is the engine's word: created, running, restarting, exited, paused, removing or dead. `health` is the health
    check's: starting, healthy or unhealthy, None without a check. `image` is the reference it was made with, `image_id`
    what that was; `started` is when its program was last started, in the engine's time. `entrypoint`, `environment`,
    `binds` and `shm_size` are as it was made, with what its image adds.
    """

    id: str
    name: str
    image: str
    image_id: str
    labels: Mapping[str, str]
    state: str
    health: str | None
    exit_code: int
    restarts: int
    ports: tuple[Port, ...]
    started: str = ""
    entrypoint: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    shm_size: int = 0

    @property
    def is_running(self) -> bool:
        return self.state == "running"


@dataclass(frozen=True)
class NewContainer:
    """A container to make. `ports` maps a port inside to the host's (address, port); `volumes` names to paths."""

    name: str
    image: str
    labels: Mapping[str, str]
    command: Sequence[str]
    ports: Mapping[int | str, tuple[str, int]]
    volumes: Mapping[str, str]
    restart: str


@dataclass(frozen=True)
class NewFile:
    """A file to put into a container."""

    content: bytes
    mode: int = 0o644


def labelled(engine: Engine, *labels: str) -> tuple[Container, ...]:
    """Return the containers that carry every label ("key" or "key=value"), stopped ones too, by name."""
    return tuple(sorted(_listed(engine, all=True, filters={"label": list(labels)}), key=lambda found: found.name))


def port_holder(engine: Engine, address: str, port: int) -> str | None:
    """Return who answers at an address of the engine's host, as far as that can be told; None if it is free."""
    for found in _listed(engine, filters={"publish": str(port)}):
        if any(each.outside == port and each.address in (address, *addresses.ANY, "") for each in found.ports):
            return f"the container {found.name} ({found.image})"
    if not engine.is_here:
        return f"something on {engine.host}" if addresses.answers(address, port) else None
    if not addresses.is_free(address, port):
        listener = addresses.listener(address, port)
        known = listener is not None and listener.program
        return f"{listener.program} (pid {listener.pid})" if listener and known else "a program of another user"
    # kube-proxy serves node ports by packet rules: nobody listens, and yet somebody answers.
    answers = addresses.answers(address, port)
    return "something that nobody here listens for, such as a Kubernetes node port" if answers else None


def container(engine: Engine, name: str) -> Container | None:
    """Return the container of this name or id, or None if there is none (any more)."""
    with refusals(f"describe the container {name}"), suppress(NotFound):
        return _container(engine.api.inspect_container(name))
    return None


def create(engine: Engine, new: NewContainer) -> str:
    """Make a container without starting it; return its id. Its image must be on the engine."""
    with refusals(f"make the container {new.name}"):
        host = engine.api.create_host_config(
            port_bindings=dict(new.ports),
            binds=[f"{volume}:{path}" for volume, path in new.volumes.items()],
            restart_policy={"Name": new.restart},
        )
        made = engine.api.create_container(
            image=new.image,
            name=new.name,
            command=list(new.command),
            labels=dict(new.labels),
            ports=list(new.ports),
            host_config=host,
        )
    return str(made["Id"])


def start(engine: Engine, name: str) -> None:
    with refusals(f"start the container {name}"):
        engine.api.start(name)


def stop(engine: Engine, name: str) -> None:
    """End a container's program: SIGTERM, after some seconds SIGKILL; no change if it does not run or is gone."""
    with refusals(f"stop the container {name}"), suppress(NotFound):
        engine.api.stop(name, timeout=STOP_SECONDS)


def remove(engine: Engine, name: str) -> None:
    """Remove a container, running or not, with its anonymous volumes; no change if it is gone."""
    with refusals(f"remove the container {name}"), suppress(NotFound):
        engine.api.remove_container(name, v=True, force=True)


def put_files(engine: Engine, name: str, files: Mapping[str, NewFile]) -> None:
    """Put files into a container, running or not, at absolute paths; missing directories are made, owned by root."""
    members = []
    for path, file in files.items():
        member = tarfile.TarInfo(path.lstrip("/"))
        member.size, member.mode = len(file.content), file.mode
        members.append((member, file.content))
    with refusals(f"put files into the container {name}"):
        engine.api.put_archive(name, "/", _archive(members))


def open_directory(engine: Engine, name: str, path: str) -> None:
    """Let everybody in a container write to a directory, also one of a volume; the container need not run."""
    member = tarfile.TarInfo(path.strip("/") + "/")
    member.type, member.mode = tarfile.DIRTYPE, 0o1777
    with refusals(f"open {path} of the container {name}"):
        engine.api.put_archive(name, "/", _archive([(member, b"")]))


def read_file(engine: Engine, name: str, path: str) -> bytes | None:
    """Return the content of a container's file, or None if there is no such file or container."""
    with refusals(f"read {path} of the container {name}"), suppress(NotFound):
        stream, _ = engine.api.get_archive(name, path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            content = archive.extractfile(archive.getmembers()[0])
            return content.read() if content else None
    return None


def tail(engine: Engine, name: str, *, lines: int = 20) -> tuple[str, ...]:
    return _printed(engine, name, tail=lines)


def stamped(
    engine: Engine, name: str, *, since: str | None = None, lines: int | None = None
) -> tuple[tuple[str, str], ...]:
    """Return the last lines that a container printed, or those since a stamp, each with the engine's stamp.

    Stamps sort as text. The line that `since` belongs to comes again: Docker counts in whole seconds.
    """
    options: dict[str, Any] = {"timestamps": True, "tail": "all" if lines is None else lines}
    if since:
        options["since"] = calendar.timegm(time.strptime(since[:19], "%Y-%m-%dT%H:%M:%S"))
    rows = (line.partition(" ") for line in _printed(engine, name, **options))
    return tuple((stamp, text) for stamp, _, text in rows)


def execute(engine: Engine, name: str, command: Sequence[str]) -> tuple[int, str]:
    """Run a short command in a running container; return its exit code, and stdout and stderr together."""
    with refusals(f"run {command[0]} in the container {name}"):
        made = engine.api.exec_create(name, list(command))
        output = engine.api.exec_start(made["Id"])
        code = engine.api.exec_inspect(made["Id"])["ExitCode"]
    return int(code), bytes(output).decode(errors="replace")


def _listed(engine: Engine, **options: Any) -> Iterator[Container]:
    with refusals("list containers"):
        listed = engine.api.containers(**options)
    for entry in listed:
        found = container(engine, str(entry["Id"]))
        if found:
            yield found


def _printed(engine: Engine, name: str, **options: Any) -> tuple[str, ...]:
    with refusals(f"show what the container {name} printed"), suppress(NotFound):
        return tuple(engine.api.logs(name, **options).decode(errors="replace").splitlines())
    return ()


def _archive(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _container(described: Mapping[str, Any]) -> Container:
    """Read the engine's description (Engine API, GET /containers/{id}/json)."""
    state, config = described["State"], described["Config"]
    return Container(
        id=described["Id"],
        name=described["Name"].lstrip("/"),
        image=config["Image"],
        image_id=described["Image"],
        labels=config.get("Labels") or {},
        state=state["Status"],
        health=(state.get("Health") or {}).get("Status"),
        exit_code=state["ExitCode"],
        restarts=described.get("RestartCount", 0),
        ports=tuple(_ports(described["NetworkSettings"].get("Ports") or {})),
        started=state.get("StartedAt") or "",
        entrypoint=tuple(config.get("Entrypoint") or ()),
        environment=dict(variable.partition("=")[::2] for variable in config.get("Env") or ()),
        binds=tuple(
            Bind(mount["Source"], mount["Destination"], not mount.get("RW", True))
            for mount in described.get("Mounts") or ()
            if mount["Type"] == "bind"
        ),
        shm_size=(described.get("HostConfig") or {}).get("ShmSize") or 0,
    )


def _ports(described: Mapping[str, Any]) -> Iterator[Port]:
    for inside, published in described.items():
        for address in published or ():
            yield Port(int(inside.split("/")[0]), address["HostIp"], int(address["HostPort"]))
