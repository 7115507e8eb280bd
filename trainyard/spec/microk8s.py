"""The section `microk8s` of the cluster file: hosts and their MicroK8s."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import Field

from trainyard import versions
from trainyard.spec.fields import Complaint, Filled, Listed, Section, matching, rule, setting

# A snap channel is TRACK[/RISK]; MicroK8s' tracks are minor versions of Kubernetes.
Channel = Annotated[
    str,
    matching(
        r"1\.\d{2}(?:-strict)?(?:/(?:stable|candidate|beta|edge))?",
        "must be a channel of MicroK8s such as 1.34/stable",
    ),
]
HostAddress = Annotated[
    Filled,
    matching(
        r"(?:[^@\s/:]+@)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?",
        "must be [user@]host[:port], or a name of ~/.ssh/config",
    ),
]
IPv4 = Annotated[Filled, matching(r"\d{1,3}(?:\.\d{1,3}){3}", "must be an IPv4 address")]
# The beginning of an image's name: docker.io, ghcr.io, registry.lab:5000.
RegistryHost = Annotated[
    Filled,
    matching(
        r"[A-Za-z0-9.-]+(?::\d{1,5})?", "must be a registry as images name it, such as docker.io"
    ),
]
MirrorUrl = Annotated[
    Filled,
    matching(
        r"https?://[^\s/?#@]+(?:/[^\s?#]*)?",
        "must be http(s)://host[:port][/path], without a login",
    ),
]
SnapFile = Annotated[Filled, matching(r"[^\0]*\.snap", "must be a file NAME.snap")]


class LabHost(Section):
    """A machine that is reached by SSH."""

    address: HostAddress = Field(description="[user@]host[:port], or a name of ~/.ssh/config.")
    user: Filled | None = setting(
        None, "The user who logs in, and may use sudo; left out: the one that `ssh` uses."
    )
    port: int | None = setting(
        None, "The port of sshd; left out: the one that `ssh` uses.", ge=1, le=65535
    )
    ip: IPv4 | None = setting(
        None,
        "The address by which the other hosts reach this one; left out: the address that this "
        "machine reaches.",
    )
    role: Literal["control-plane", "worker"] | None = setting(
        None,
        "control-plane or worker; left out: the first host is the control plane, the others are "
        "workers.",
    )

    @property
    def ssh(self) -> str:
        """Return [user@]host[:port]."""
        login = self.address
        if self.user:
            login = f"{self.user}@{self.address}"
        if self.port:
            return f"{login}:{self.port}"
        return login


def _login_once(hosts: tuple[LabHost, ...]) -> Iterator[Complaint]:
    for index, host in enumerate(hosts):
        message = f"is in address, too: {host.address}"
        if host.user and "@" in host.address:
            yield Complaint((index, "user"), message, host.user)
        if host.port and re.search(r":\d+$", host.address):
            yield Complaint((index, "port"), message, host.port)


def _addressed_once(hosts: tuple[LabHost, ...]) -> Iterator[Complaint]:
    first: dict[str, int] = {}
    for index, host in enumerate(hosts):
        key = host.ssh.rpartition("@")[2]
        if first.setdefault(key, index) != index:
            yield Complaint(
                (index, "address"), f"is also the address of hosts.{first[key]}", host.address
            )


def _ends_with_microk8s(files: tuple[str, ...]) -> Iterator[Complaint]:
    if files and not re.fullmatch(r"microk8s(?:[_-].*)?\.snap", PurePath(files[-1]).name):
        yield Complaint(
            (len(files) - 1,),
            "must be MicroK8s' own, microk8s_N.snap: snaps that it needs come before it",
        )


class Microk8sSection(Section):
    """MicroK8s on hosts that are reached by SSH, and the cluster on it."""

    channel: Channel = setting(
        versions.MICROK8S, "The snap channel that is installed on every host, and held there."
    )
    upgrade: bool = setting(
        False, "true: hosts of an older channel are upgraded, one minor at a time."
    )
    registry: bool = setting(
        False, "true: MicroK8s' own registry, without a login, at port 32000 of every host."
    )
    mirror: dict[RegistryHost, MirrorUrl] = setting(
        {}, "Mirrors from which hosts pull first, by registry: {docker.io: http://192.0.2.10:5000}."
    )
    snap: Annotated[Listed[SnapFile], rule(_ends_with_microk8s)] = setting(
        (),
        "Files of `snap download`, the last one MicroK8s', for hosts that do not reach snapd's "
        "store.",
    )
    images: Filled | None = setting(
        None, "A directory of *.tar with images, for hosts that reach no registry."
    )
    hosts: Annotated[Listed[LabHost], rule(_login_once), rule(_addressed_once)] = Field(
        min_length=1, description="The machines; the first is a control plane."
    )

    @property
    def control_planes(self) -> tuple[LabHost, ...]:
        planes = []
        for index, host in enumerate(self.hosts):
            if host.role == "control-plane" or (host.role is None and index == 0):
                planes.append(host)
        return tuple(planes)

    @property
    def workers(self) -> tuple[LabHost, ...]:
        planes = self.control_planes
        return tuple(host for host in self.hosts if host not in planes)

    def complaints(self) -> Iterator[Complaint]:
        """Reject a first host that is a worker, and two control planes.

        With two control planes, one dead host stops both.
        """
        if self.hosts and self.hosts[0].role == "worker":
            yield Complaint(
                ("hosts", 0, "role"), "must be control-plane: the others join this host", "worker"
            )
        if len(self.control_planes) == 2:
            message = "has 2 control planes, which both end if one is lost: give 1, or 3 and more"
            yield Complaint(("hosts",), message)
