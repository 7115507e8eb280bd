"""Host names, addresses, TCP ports and proxies, as this machine sees them."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
import urllib.request
from urllib.parse import urlsplit

CONNECT_SECONDS = 1.0
IDLE_SECONDS = 15
ANY = ("0.0.0.0", "::")  # noqa: S104 (compared with, not listened on)


def resolve(host: str) -> tuple[str, ...]:
    """Return the IP addresses of a name or address; () for an unknown name."""
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


def outgoing(host: str) -> str:
    """Return the source address for traffic to an IP address; send nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_of(url: str) -> str:
    """Return the proxy for a URL, without its login; "" for none."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
        return ""
    if "@" in proxy:
        return proxy.rpartition("@")[2]
    return proxy


def is_ours(address: str) -> bool:
    return _bind(address, 0) != errno.EADDRNOTAVAIL


def is_free(address: str, port: int) -> bool:
    """Say whether a port is unused, even if only root may use it."""
    return _bind(address, port) != errno.EADDRINUSE


def answers(address: str, port: int, *, ca: str = "") -> bool:
    """Say whether a port accepts connections.

    With `ca`, the port must have a certificate of that CA.
    """
    try:
        with socket.create_connection((address, port), timeout=CONNECT_SECONDS) as connection:
            if ca:
                context = ssl.create_default_context(cadata=ca)
                # MicroK8s' addresses change, so the name is not checked. Its older CAs lack what
                # Python 3.13 requires, so the check is not strict (microk8s#4864).
                context.check_hostname = False
                context.verify_flags &= ~ssl.VERIFY_X509_STRICT
                context.wrap_socket(connection).close()
            return True
    except OSError:
        return False


def keep_alive(connection: socket.socket) -> None:
    """Make the kernel end a connection 30 s after its peer has vanished."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # TCP_KEEPALIVE is macOS's name for TCP_KEEPIDLE.
    for name, value in (
        ("TCP_KEEPIDLE", IDLE_SECONDS),
        ("TCP_KEEPALIVE", IDLE_SECONDS),
        ("TCP_KEEPINTVL", IDLE_SECONDS // 3),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 2000 * IDLE_SECONDS),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bind(address: str, port: int) -> int:
    if ipaddress.ip_address(address).version == 6:
        family = socket.AF_INET6
    else:
        family = socket.AF_INET

    with socket.socket(family) as probe:
        # As in Docker, a port counts as free although a connection has just ended.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno or errno.EINVAL
    return 0
