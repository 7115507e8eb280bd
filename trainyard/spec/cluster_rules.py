"""What a cluster file must get right beyond the kinds of its values; each rule raises what is wrong."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from trainyard.spec.complaints import NOTHING, Complaint, complain
from trainyard.spec.fields import RAY_AUTH_VARIABLES, check_variables
from trainyard.spec.units import SIZES, format_size

BUILT_BACKENDS = ("local", "compose", "kuberay", "existing")
PLANNED_BACKENDS = ("microk8s", "ec2")
SMALLEST_NODE = 128 * SIZES["MiB"]

# The grammar of distribution/reference: only the host may have capitals.
_COMPONENT = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_HOST_AND_PORT = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
_HIGHEST_PORT = 65535


def check_backend(backend: object) -> object:
    """Return the backend; the ones that are only planned get an answer of their own."""
    if backend in PLANNED_BACKENDS:
        raise ValueError(f"is not built yet (built: {', '.join(BUILT_BACKENDS)})")
    return backend


def check_group_name(name: str) -> str:
    """Return a group's name that is not the head's."""
    if name == "head":
        raise ValueError("must not be 'head': that is the head node's name")
    return name


def check_group_names(names: Sequence[str]) -> None:
    """Complain about every group whose name was there before."""
    first: dict[str, int] = {}
    complain(
        Complaint((index, "name"), f"is also the name of workers.{first[name]}", name)
        for index, name in enumerate(names)
        if first.setdefault(name, index) != index
    )


def check_node_memory(memory: int) -> int:
    """Return a node's memory that Ray can start with: its object store alone takes at least 75 MiB."""
    if memory < SMALLEST_NODE:
        raise ValueError(f"must be at least {format_size(SMALLEST_NODE)}, which Ray itself needs")
    return memory


def check_group_size(
    count: int | None, minimum: int | None, maximum: int | None, *, idle_timeout: float | None
) -> None:
    """Complain unless a group is either fixed (count) or grows and shrinks (min, max)."""
    complain(_size_complaints(count, minimum, maximum, idle_timeout))


def check_image(image: str) -> str:
    """Return the name of a directory of images/, or an image reference."""
    if len(image) > 512 or not _IMAGE.fullmatch(image):
        raise ValueError(
            "must be a directory of images/ or an image reference such as registry:5000/team/schola:1.2 (lower case)"
        )
    return image


def check_registry_address(address: str) -> str:
    """Return HOST or HOST:PORT."""
    if not _HOST_AND_PORT.fullmatch(address):
        message = "must be HOST or HOST:PORT, without http:// and without a user"
        complain([Complaint((), message, NOTHING if "@" in address else address)])
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(_HIGHEST_PORT)
    if not 1 <= int(port) <= _HIGHEST_PORT:
        raise ValueError(f"must have a port from 1 to {_HIGHEST_PORT}")
    if _is_unspecified(host):
        # What is no address to ask is none to put into the name of an image either.
        raise ValueError(
            "must be an address that clients can ask: 127.0.0.1:PORT for this machine alone, else the one of its "
            "network (hostname -I)"
        )
    return address


def _is_unspecified(host: str) -> bool:
    """Say whether a host stands for every address of a machine: 0.0.0.0, [::]."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host.strip("0.") == ""


def check_namespace(namespace: str) -> str:
    """Return a path of lower-case components, such as team/robots."""
    if not re.fullmatch(rf"{_COMPONENT}(?:/{_COMPONENT})*", namespace):
        raise ValueError("must be lower-case letters and digits, such as team/robots, without slashes at its ends")
    return namespace


def check_platform(platform: str) -> str:
    """Return OS/ARCHITECTURE."""
    if not re.fullmatch(r"linux/[a-z0-9]+(?:/v[0-9]+)?", platform):
        raise ValueError("must be the platform of Linux nodes, such as linux/amd64 or linux/arm64")
    return platform


def check_docker_host(address: str) -> str:
    """Return ssh://[USER@]HOST[:PORT] or unix:///PATH."""
    if re.fullmatch(r"unix:///\S+", address):
        return address
    parts = urlsplit(address)
    if parts.scheme == "ssh" and parts.password:
        complain([Complaint((), "must not hold a password: let SSH use a key", NOTHING)])
    if parts.scheme == "tcp":
        raise ValueError("must be ssh://user@host: Docker over plain TCP lets everybody in")
    if parts.scheme != "ssh" or not parts.hostname or parts.path or parts.hostname.startswith("-"):
        raise ValueError("must be ssh://user@host or unix:///path/docker.sock")
    return address


def check_absolute_path(path: str) -> str:
    """Return an absolute path without '..'."""
    if not path.startswith("/") or ".." in path.split("/") or ":" in path:
        raise ValueError("must be an absolute path, without '..' and ':'")
    return path


def check_login_kind(login: str, username: str | None) -> None:
    """Complain about a user for a registry whose user AWS names."""
    if login == "ecr" and username:
        complain([Complaint((), "has both username and login: ecr; AWS gives user and password")])


def check_login(username: str | None, password_env: str | None, password_file: str | None) -> None:
    """Complain unless a registry has a user with one password, or neither."""
    if password_env and password_file:
        complain([Complaint((), "has both password_env and password_file: give one")])
    if bool(username) != bool(password_env or password_file):
        complain([Complaint((), "needs username together with password_env or password_file, or none of them")])


def check_dashboard_address(address: str) -> str:
    """Return http(s)://HOST[:PORT]."""
    try:
        parts = urlsplit(address)
        is_plain = parts.scheme in ("http", "https") and _HOST_AND_PORT.fullmatch(parts.netloc) is not None
        is_plain = is_plain and parts.path in ("", "/") and not parts.query and not parts.fragment
        is_plain = is_plain and parts.port != 0
    except ValueError:  # a port beyond 65535, a broken [IPv6] address
        is_plain = False
    if not is_plain:
        raise ValueError("must be the dashboard's address such as http://127.0.0.1:8265 (no user, path or query)")
    return address


def check_section(backend: str | None, *, is_given: bool) -> None:
    """Complain about the backend `existing` without an address."""
    if backend == "existing" and not is_given:
        complain([Complaint((), "is missing: the backend 'existing' needs the address of a Ray cluster")])


def check_one_address(address: str | None, service: str | None) -> None:
    """Complain unless there is one way to a cluster of somebody else."""
    if address and service:
        complain([Complaint((), "has both address and service: give one")])
    if not address and not service:
        complain([Complaint((), "needs address (http://HOST:8265) or service (NAMESPACE/NAME on Kubernetes)")])


def check_one_token(
    token_env: str | None, token_file: str | None, token_secret: str | None, *, service: str | None
) -> None:
    """Complain about two sources of one token, and about a Secret without a service beside it."""
    sources = {"token_env": token_env, "token_file": token_file, "token_secret": token_secret}
    given = [name for name, value in sources.items() if value]
    if len(given) > 1:
        complain([Complaint((), f"has both {given[0]} and {given[1]}: give one")])
    if token_secret and not service:
        complain([Complaint(("token_secret",), "means something only with `service`", token_secret)])


def check_auth(auth: str, address: str | None, *, has_token: bool) -> None:
    """Complain unless a token is named, or only this machine can reach the cluster and the file says `auth: none`.

    Without an address the way in is a port-forward, which ends on loopback.
    """
    if auth == "token" and not has_token:
        message = "needs token_env or token_file (or, on loopback, `auth: none`)"
        if address is None:
            message = "needs token_secret, token_env or token_file (or `auth: none`, if it has none)"
        complain([Complaint(("existing",), message, root=True)])
    if auth == "none" and address is not None and not is_loopback(address):
        raise ValueError(f"must be 'token' unless the cluster is on loopback, and existing.address is {address}")
    if auth == "none" and has_token:
        raise ValueError("must be 'token' where existing names a token")


def check_node_variables(env: dict[str, str]) -> None:
    """Complain about variables of Ray nodes that Trainyard sets itself."""
    check_variables(env, lambda name: "is set by Trainyard (see auth)" if name in RAY_AUTH_VARIABLES else None)


def is_loopback(address: str) -> bool:
    """Return whether a URL can be reached from this machine only."""
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _size_complaints(
    count: int | None, minimum: int | None, maximum: int | None, idle_timeout: float | None
) -> Iterator[Complaint]:
    if count is not None and (minimum is not None or maximum is not None):
        yield Complaint((), "has count as well as min or max: count is a fixed size, min and max let Ray choose")
    elif minimum is not None and maximum is None:
        yield Complaint((), "has min but no max: give max too, or count for a fixed size")
    elif minimum is not None and maximum is not None and minimum > maximum:
        yield Complaint(("min",), f"must be at most max ({maximum})", minimum)
    if idle_timeout is not None and maximum is None:
        yield Complaint(("idle_timeout",), "means something only for a group with min and max")
