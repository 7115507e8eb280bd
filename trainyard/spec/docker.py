"""Sections of the cluster file about images, registries and Docker hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from trainyard.spec.fields import (
    NOTHING,
    AbsolutePath,
    Complaint,
    Filled,
    Listed,
    Section,
    Size,
    VariableName,
    complain,
    matching,
    pattern,
    setting,
)

# The grammar of distribution/reference: only the host may have capitals.
_COMPONENT = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_IMAGE = (
    rf"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_HOST_AND_PORT = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(?::([0-9]{1,5}))?")


def is_host_and_port(text: str) -> bool:
    match = _HOST_AND_PORT.fullmatch(text)
    return match is not None and 1 <= int(match[1] or 1) <= 65535


def _check_registry_address(address: str) -> str:
    if not is_host_and_port(address):
        message = "must be HOST or HOST:PORT, without http:// and without a user"
        complain([Complaint((), message, NOTHING if "@" in address else address)])
    # 0.0.0.0 and [::] would publish a registry on every address of a machine.
    if not re.sub(r":[0-9]+$", "", address).strip("0.:[]"):
        raise ValueError("must be an address that clients can reach")
    return address


def _check_docker_host(address: str) -> str:
    parts = urlsplit(address)
    is_ssh = parts.scheme == "ssh" and parts.hostname and not parts.path and not parts.password
    # The SSH client would read a host that begins with a dash as an option.
    is_host = is_ssh and not str(parts.hostname).startswith("-")
    if not is_host and not re.fullmatch(r"unix:///\S+", address):
        raise ValueError(
            "must be ssh://user@host (with a key, not a password) or unix:///path/docker.sock"
        )
    return address


check_image = pattern(
    _IMAGE,
    "must name a directory below images/, or be an image reference such as "
    "registry:5000/team/schola:1.2 (lower case)",
)
Image = Annotated[Filled, AfterValidator(check_image)]
Platform = Annotated[
    Filled,
    matching(
        r"linux/[a-z0-9]+(?:/v[0-9]+)?",
        "must be the platform of Linux nodes, such as linux/amd64 or linux/arm64",
    ),
]
RegistryAddress = Annotated[Filled, AfterValidator(_check_registry_address)]
DockerHost = Annotated[Filled, AfterValidator(_check_docker_host)]
Namespace = Annotated[
    Filled,
    matching(
        rf"{_COMPONENT}(?:/{_COMPONENT})*",
        "must be lower-case letters and digits, such as team/robots, without slashes at its ends",
    ),
]


class Registry(Section):
    """Where images are pushed to, and where the nodes pull them from."""

    address: RegistryAddress = Field(
        description="HOST[:PORT], under which this machine pushes and the nodes pull."
    )
    namespace: Namespace | None = setting(
        None, "The part between the address and an image's name, such as team/robots."
    )
    insecure: bool = setting(False, "true: plain HTTP, without TLS.")
    ca_file: Filled | None = setting(
        None,
        "The CA of the registry's certificate; left out: a public one, or what registry.up made.",
    )
    username: Filled | None = setting(None, "The user who logs in; left out: no login.")
    password_env: VariableName | None = setting(
        None,
        "The environment variable that holds the password; the password itself is never written.",
    )
    password_file: Filled | None = setting(None, "The file that holds the password.")
    login: Literal["docker", "ecr"] = setting(
        "docker",
        "docker: `username`, else the login that `docker login` stored. ecr: a login from AWS, "
        "which is valid for 12 hours.",
    )
    image: Filled = setting(
        "registry:2", "The image that `registry.up` runs, perhaps by its name in a mirror."
    )

    def complaints(self) -> Iterator[Complaint]:
        """Require username and one password together, and neither for ECR."""
        passwords = [name for name in ("password_env", "password_file") if getattr(self, name)]
        if len(passwords) != bool(self.username):
            yield Complaint(
                (),
                "needs username together with one of password_env and password_file, or none of "
                "them",
            )
        elif self.login == "ecr" and self.username:
            yield Complaint((), "has both username and login: ecr; AWS gives user and password")

    def repository(self, image: str) -> str:
        if self.namespace:
            return f"{self.namespace}/{image}"
        return image


class BuildSection(Section):
    """Settings of image builds here.

    Neither `ca_bundle` nor `pip_config` stays in the image.
    """

    ca_bundle: Filled | None = setting(
        None, "A PEM file with every CA to trust during the build, such as a company's proxy's."
    )
    pip_config: Filled | None = setting(
        None, "A pip.conf for the build, such as for a private index; it may hold a password."
    )
    network: Literal["default", "host"] = setting("default", "host: build in this host's network.")
    base: Image | None = setting(None, "The base image, instead of the one that image.yaml names.")
    platform: Platform | None = setting(
        None, "The platform of the nodes, such as linux/arm64; left out: the Docker host's."
    )


class Mount(Section):
    """A directory on the Docker host; every node sees it."""

    source: AbsolutePath = Field(description="The directory on the Docker host.")
    target: AbsolutePath = Field(description="Where the nodes see it.")
    read_only: bool = setting(False, "true: the nodes cannot change it.")


class Logging(Section):
    """Docker's log settings of a node, with the keys of Compose's `logging`."""

    driver: Filled = setting("json-file", "Docker's log driver.")
    options: dict[Filled, str] = setting(
        {}, 'Options of the driver, such as {max-size: "10m", max-file: "3"}.'
    )


class ComposeSection(Section):
    """Head and workers as containers of one Docker host."""

    docker: DockerHost | None = setting(
        None,
        "The Docker host: ssh://user@host, or unix:///path; left out: the one that `docker` uses "
        "here.",
    )
    shm_size: Size | None = setting(
        None,
        "The shared memory of each node, which holds Ray's object store; left out: as much as the "
        "store needs.",
    )
    mounts: Listed[Mount] = setting((), "Directories of the Docker host that every node sees.")
    outputs: AbsolutePath = setting(
        "/outputs",
        "Where every node sees the volume that all nodes share; `cluster.down` removes the volume.",
    )
    dashboard_port: int | None = setting(
        None, "The dashboard's port on loopback; left out: a free port.", ge=1024, le=65535
    )
    simulated_gpus: bool = setting(
        False,
        "true: nodes may declare GPUs that the Docker host does not have, to try a job's layout.",
    )
    limits: bool = setting(
        False,
        "true: Docker holds each node to its CPUs, and to its memory and shared memory together.",
    )
    hardened: bool = setting(
        True,
        "false: `sudo` and other programs that gain privileges work in the nodes.",
    )
    logging: Logging | None = setting(
        None, "How Docker keeps the output of nodes; left out: at most 30 MB of each node."
    )
